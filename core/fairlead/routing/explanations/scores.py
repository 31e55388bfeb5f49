"""The scores of a decision's candidates on one scale, for readers who do not know the policy."""

from collections.abc import Sequence

from fairlead.reports.decisions import CandidateScore
from fairlead.routing.contracts.weighing import Better, PolicyTerms


def relative_scores(known: PolicyTerms | None, candidates: Sequence[CandidateScore]) -> dict[str, float]:
    """Return each candidate's score on a scale from 1 (the best of the compared candidates) to 0 (the worst), by the
    total that the policy compares. If all totals are equal, all scores are 1. Empty if the policy compares no total, or
    if this version does not know the policy.
    """
    totals = {one.instance: one.total for one in candidates if one.total is not None}
    if known is None or known.total is None or not totals:
        return {}
    best, worst = min(totals.values()), max(totals.values())
    if known.total.better is Better.HIGHER:
        best, worst = worst, best
    return {instance: 1.0 if best == worst else (worst - total) / (worst - best) for instance, total in totals.items()}
