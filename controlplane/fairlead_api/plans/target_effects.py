"""Estimates the effect of other latency targets and of early rejection, by replaying what was recorded. Pure."""

from collections.abc import Mapping

from fairlead.pools import TableFacts
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_api.plans.evidence import PoolUse, Replay
from fairlead_api.slo.budgets import what_if
from fairlead_client.resources.plans import PlanEffect


def slo_effect(pool: PoolUse, after: SloFacts, latencies: Mapping[str, Mapping[int, int]], refused: Replay | None) -> PlanEffect:
    """The attainment that the requests of the past day would have had; where requests are refused early, also their
    share. `latencies` are counts by cell, by priority class.
    """
    whole, classes = what_if(latencies, {}, after.ttft_seconds, after.tpot_seconds, after.percentile)
    least, most = whole.attainment_least, whole.attainment_most
    if least is None or most is None:
        return PlanEffect(warnings=_refusing(refused))
    warnings, notes = _refusing(refused), []
    if whole.met is False:
        warnings.insert(0, f"The goal of {after.percentile:g}% in time would have been missed: {most:.1%} were.")
    elif whole.met and pool.attainment is not None and pool.attainment < pool.facts.slo.percentile / 100:
        notes.append("The targets become easy enough to be met; requests are served no faster for it.")
    if most > least:
        notes.append(f"Latencies are recorded in steps, and a target lies within one: {least:.1%} to {most:.1%} would have been in time.")
    if len(classes) > 1:
        each = ", ".join(f"{one.priority_class} {one.attainment_least or 0:.1%} of {one.requests:,}" for one in classes)
        notes.append(f"By priority class: {each}.")
    return PlanEffect(
        predicted_attainment=least,
        predicted_refusals=refused.share if refused else None,
        prediction_basis=f"from {whole.requests:,} requests of the past day, served as they were",
        notes=notes,
        warnings=warnings,
    )


def rejection_effect(after: EarlyRejectionFacts, refused: Replay | None) -> PlanEffect:
    """The share of recorded decisions in which every candidate was predicted to be over the limit."""
    if after.mode == "Disabled":
        return PlanEffect(warnings=["Nothing is refused early: under overload requests wait until they time out."])
    notes = ["What decoding would add is not in the estimate; Predicted refuses at least as much as Load."]
    notes = notes if after.mode == "Predicted" else []
    if refused is None:
        return PlanEffect(notes=notes)
    return PlanEffect(
        predicted_refusals=refused.share,
        prediction_basis=f"from {refused.requests:,} sampled decisions of the last {_minutes(refused)}, by their predicted TTFT",
        notes=notes,
        warnings=_refusing(refused),
    )


def limit_seconds(facts: TableFacts) -> float | None:
    """The predicted TTFT above which a request is refused early; None when nothing is."""
    return None if facts.early_rejection.mode == "Disabled" else facts.early_rejection.headroom * facts.slo.ttft_seconds


def _refusing(refused: Replay | None) -> list[str]:
    return [f"{refused.share:.1%} of requests like those would be refused."] if refused and refused.share >= 0.001 else []


def _minutes(replay: Replay) -> str:
    return f"{replay.seconds / 60:.0f} minutes"
