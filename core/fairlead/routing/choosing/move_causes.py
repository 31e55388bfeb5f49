"""Move causes: which of the numbers that a policy weighed took a session from its home to another instance."""

from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit


def listed(weighed: Weighing, instance: str | None) -> CandidateScore | None:
    """The instance among the candidates that were weighed."""
    return next((one for one in weighed.candidates if one.instance == instance), None)


def stay_and_go(weighed: Weighing, home: str | None) -> tuple[CandidateScore, CandidateScore]:
    """The compared values of a home that could have taken the request, and of the chosen instance. Raises LookupError
    if the policy did not compare the home.
    """
    here = listed(weighed, home)
    if here is None:
        raise LookupError(f"the home {home} was left and not weighed")
    return here, weighed.candidates[0]


def by_hits(here: CandidateScore, there: CandidateScore) -> MoveCause:
    """The request went to the larger hit or, among equal hits, to the less loaded instance."""
    if there.hit_tokens != here.hit_tokens:
        hits = float(there.hit_tokens), float(here.hit_tokens)
        return MoveCause(trigger=BindingReason.PREFIX_AFFINITY, crossed=hits[0], threshold=hits[1], unit=Unit.TOKENS)
    pending = float(here.pending_tokens), float(there.pending_tokens)
    return MoveCause(trigger=BindingReason.PREFIX_EQUAL, crossed=pending[0], threshold=pending[1], unit=Unit.TOKENS)


def by_cost(here: CandidateScore, there: CandidateScore, unit: Unit) -> MoveCause:
    """The lower cost took the request, with fewer tokens of its prompt cached, as many, or more."""
    if there.hit_tokens > here.hit_tokens:
        return by_hits(here, there)
    trigger = BindingReason.PREFIX_EQUAL if there.hit_tokens == here.hit_tokens else BindingReason.PREFIX_OUTWEIGHED
    return MoveCause(trigger=trigger, crossed=here.total, threshold=there.total, unit=unit)


def by_score(here: CandidateScore, there: CandidateScore) -> MoveCause:
    """The higher score took the request."""
    return MoveCause(trigger=BindingReason.BEST_SCORE, crossed=there.total, threshold=here.total, unit=Unit.SCORE)


def endangered(here: CandidateScore, target_seconds: float, measured: float, limit: float, unit: Unit) -> MoveCause:
    """A term was above a limit that guards the TTFT target: staying was predicted late, or the instance is
    hot.
    """
    stay = here.predicted_ttft_seconds
    if stay >= target_seconds:
        return MoveCause(trigger=BindingReason.SLO, crossed=stay, threshold=target_seconds, unit=Unit.SECONDS)
    return MoveCause(trigger=BindingReason.HOT_MIGRATION, crossed=measured, threshold=limit, unit=unit)
