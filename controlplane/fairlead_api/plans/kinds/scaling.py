"""Changes automatic scaling: its mode, its target load, and scaling to zero."""

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.amounts import amount
from fairlead.durations import format_duration
from fairlead.pools import PoolSpec
from fairlead.scaling.specs import ScalingMode
from fairlead_api.plans.changes import SpecQuestion, section_kind
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Tried
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import PlanEffect


class ScalingQuestion(SpecQuestion):
    """Finds the effect of changed rules for automatic scaling."""

    async def effect(self, _known: Known) -> PlanEffect:
        return scaling_effect(self.after)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("see the recorded scaling decisions (mode Advise) for its effect")


SCALING_MODES: Mapping[str, str] = MappingProxyType(
    {
        ScalingMode.FIXED: "Each role returns to its declared number, regardless of load.",
        ScalingMode.SLO: "Instances are added and drained automatically from now on, within each role's bounds.",
        ScalingMode.ADVISE: "Numbers stay as declared; every recommendation is recorded with its signals.",
    }
)


def scaling_effect(after: PoolSpec) -> PlanEffect:
    """Return the effect of the scaling mode from now on, and of scaling to zero while the pool has no requests."""
    scaling, zero = after.scaling, after.scaling.zero
    goes = scaling.mode is ScalingMode.SLO and all(role.min_replicas == 0 for role in after.roles)
    notes = [SCALING_MODES[scaling.mode]]
    if goes:
        notes.append(f"Its last instances are removed after {format_duration(zero.idle_after_seconds)} without a request.")
    elif scaling.mode is ScalingMode.SLO:
        notes.append("Its last instances stay without requests: roles have a minReplicas above 0.")
    else:
        notes.append("Its instances stay without requests: only mode SLO removes the last ones.")
    if zero.hold_for_seconds == 0 or zero.held_requests == 0:
        return PlanEffect(
            notes=notes, warnings=["Routers hold no request while the first instance starts: each request gets a 503 until then."]
        )
    most = amount(zero.held_requests, "request")
    notes.append(f"While its first instance starts, a router holds up to {most}, each for up to {format_duration(zero.hold_for_seconds)}.")
    return PlanEffect(notes=notes)


KIND = section_kind(PlanKind.SCALING, lambda after: ScalingQuestion(after=after))
