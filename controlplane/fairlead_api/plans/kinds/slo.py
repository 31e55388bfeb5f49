"""Changes the latency targets of a pool."""

from collections.abc import Mapping

from fairlead.amounts import amount
from fairlead.percentages import percentage
from fairlead.tables import SloFacts
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.evidence import PoolUse, Replay
from fairlead_api.plans.kinds.early_rejection import refusing
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_api.slo.budgets import what_if
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class SloQuestion(SpecQuestion):
    """Finds the effect of changed latency targets."""

    async def effect(self, known: Known) -> PlanEffect:
        facts = self.after.facts()
        latencies = await known.evidence.latencies(known.pool, known.now)
        return slo_effect(known.use, facts.slo, latencies, await known.refused(facts))

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("targets only change how requests are judged; the effect above is computed from recorded latencies")


def slo_effect(pool: PoolUse, after: SloFacts, latencies: Mapping[str, Mapping[int, int]], refused: Replay | None) -> PlanEffect:
    """Return the effect of changed latency targets: the attainment that the past day's requests would have had and,
    with early rejection, the share that would be refused. `latencies` are numbers of requests by latency cell, for each
    priority class.
    """
    whole, classes = what_if(latencies, {}, after.ttft_seconds, after.tpot_seconds, after.percentile)
    least, most = whole.attainment_least, whole.attainment_most
    if least is None or most is None:
        return PlanEffect(warnings=refusing(refused))
    warnings, notes = refusing(refused), []
    if whole.met is False:
        warnings.insert(
            0, f"The goal of {after.percentile:g} % in time would have been missed: {percentage(most)} would have been in time."
        )
    elif whole.met and pool.attainment is not None and pool.attainment < pool.facts.slo.percentile / 100:
        notes.append("The targets become easier to meet; requests are not served faster.")
    if most > least:
        notes.append(
            f"Latencies are recorded in steps, and a target lies within one: {percentage(least)} to "
            f"{percentage(most)} would have been in time."
        )
    if len(classes) > 1:
        each = ", ".join(f"{one.priority_class} {percentage(one.attainment_least or 0)} of {one.requests:,}" for one in classes)
        notes.append(f"By priority class: {each}.")
    return PlanEffect(
        predicted_attainment=least,
        predicted_refusals=refused.share if refused else None,
        prediction_basis=f"from {amount(whole.requests, 'request')} of the past day, served as they were",
        notes=notes,
        warnings=warnings,
    )


KIND = section_kind(PlanKind.SLO, lambda after: SloQuestion(after=after))
