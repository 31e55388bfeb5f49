"""The scores of a decision's candidates on one scale, for readers who do not know the policy."""

from collections.abc import Sequence

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import Better, PolicyTerms


def relative_scores(known: PolicyTerms | None, candidates: Sequence[CandidateScore]) -> dict[str, float]:
    """Return each candidate's score: from 1 for the best of the compared candidates to 0 for the worst, by the total
    that the policy compares; 1 for all if their totals are equal. Empty if the policy compares no total, or is unknown
    to this version.
    """
    totals = {one.instance: one.total for one in candidates if one.total is not None}
    if known is None or known.total is None or not totals:
        return {}
    best, worst = min(totals.values()), max(totals.values())
    if known.total.better is Better.HIGHER:
        best, worst = worst, best
    return {instance: 1.0 if best == worst else (worst - total) / (worst - best) for instance, total in totals.items()}
