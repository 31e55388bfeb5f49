"""Move causes: the figure that made a session leave its instance for another instance, such as its cost or its hit."""

from fairlead.reports.bindings import BindingReason
from fairlead.reports.decisions import CandidateScore, Weighing
from fairlead.reports.moves import MoveCause
from fairlead.reports.units import Unit


def listed(weighed: Weighing, instance: str | None) -> CandidateScore | None:
    """Return the score of the instance among the compared candidates; None if the instance was not compared."""
    return next((one for one in weighed.candidates if one.instance == instance), None)


def stay_and_go(weighed: Weighing, home: str | None) -> tuple[CandidateScore, CandidateScore]:
    """Return the scores of two instances: the session's present instance `home`, which could have taken the request,
    and the chosen instance. Raises LookupError if the policy did not compare `home`.
    """
    here = listed(weighed, home)
    if here is None:
        raise LookupError(f"the session left its home {home}, which the policy did not compare")
    return here, weighed.candidates[0]


def by_hits(here: CandidateScore, there: CandidateScore) -> MoveCause:
    """Return the cause "the new instance holds more of the prompt" or, if both hold equally much, "the new instance is
    less loaded".
    """
    if there.hit_tokens != here.hit_tokens:
        hits = float(there.hit_tokens), float(here.hit_tokens)
        return MoveCause(trigger=BindingReason.PREFIX_AFFINITY, crossed=hits[0], threshold=hits[1], unit=Unit.TOKENS)
    pending = float(here.pending_tokens), float(there.pending_tokens)
    return MoveCause(trigger=BindingReason.PREFIX_EQUAL, crossed=pending[0], threshold=pending[1], unit=Unit.TOKENS)


def by_cost(here: CandidateScore, there: CandidateScore, unit: Unit) -> MoveCause:
    """Return the cause "the cost is lower on the new instance". The cause also says whether the new instance has fewer,
    as many or more of the prompt's tokens cached than the old instance.
    """
    if there.hit_tokens > here.hit_tokens:
        return by_hits(here, there)
    trigger = BindingReason.PREFIX_EQUAL if there.hit_tokens == here.hit_tokens else BindingReason.PREFIX_OUTWEIGHED
    return MoveCause(trigger=trigger, crossed=here.total, threshold=there.total, unit=unit)


def by_score(here: CandidateScore, there: CandidateScore) -> MoveCause:
    """Return the cause "the score is higher on the new instance"."""
    return MoveCause(trigger=BindingReason.BEST_SCORE, crossed=there.total, threshold=here.total, unit=Unit.SCORE)


def endangered(here: CandidateScore, target_seconds: float, measured: float, limit: float, unit: Unit) -> MoveCause:
    """Return the cause of a move by which a policy protects the TTFT target. The cause is that the TTFT predicted on
    the home exceeded the target, or that a figure of the home exceeded its limit (a hotspot).
    """
    stay = here.predicted_ttft_seconds
    if stay >= target_seconds:
        return MoveCause(trigger=BindingReason.SLO, crossed=stay, threshold=target_seconds, unit=Unit.SECONDS)
    return MoveCause(trigger=BindingReason.HOT_MIGRATION, crossed=measured, threshold=limit, unit=unit)
