"""Says what handing numbers to a controller means, or taking them back. Pure.

What the controller will do is not predicted here: mode Advise shows it for the traffic there is.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.durations import format_duration
from fairlead.pools import PoolSpec
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead_client.resources.plans import PlanEffect

SCALING_MODES: Mapping[str, str] = MappingProxyType(
    {
        ScalingMode.FIXED: "Each role goes to its declared number, whatever arrives.",
        ScalingMode.SLO: "Instances are added and drained without a person from now on, within each role's bounds.",
        ScalingMode.ADVISE: "Numbers stay as declared; every recommendation is kept with its signals.",
    }
)
RATIO_MODES: Mapping[str, str] = MappingProxyType(
    {
        RatioMode.FIXED: "What the controller moved between the roles is taken back: each goes to its declared number.",
        RatioMode.AUTO: "Instances drain and change between prefill and decode without a person, one per cooldown, never the last of a role.",
        RatioMode.ADVISE: "Roles go to their declared numbers; every move that would be made is kept with its signals.",
    }
)


def scaling_effect(after: PoolSpec) -> PlanEffect:
    """What the mode of scaling means from now on, and what becomes of the pool while nobody uses it."""
    scaling, zero = after.scaling, after.scaling.zero
    goes = scaling.mode is ScalingMode.SLO and all(role.min_replicas == 0 for role in after.roles)
    notes = [SCALING_MODES[scaling.mode]]
    if goes:
        notes.append(f"Its last instances go after {format_duration(zero.idle_after_seconds)} without a request.")
    elif scaling.mode is ScalingMode.SLO:
        notes.append("Its last instances stay without requests: roles have a minReplicas above 0.")
    else:
        notes.append("Its instances stay without requests: only mode SLO takes the last ones.")
    if zero.hold_for_seconds == 0 or zero.held_requests == 0:
        return PlanEffect(notes=notes, warnings=["Routers hold no request while the first instance starts: each gets a 503 until then."])
    most = "1 request" if zero.held_requests == 1 else f"{zero.held_requests} requests"
    notes.append(f"While its first instance starts, a router holds up to {most}, each for up to {format_duration(zero.hold_for_seconds)}.")
    return PlanEffect(notes=notes)


def ratio_effect(after: PoolSpec) -> PlanEffect:
    """What the mode of the ratio means from now on."""
    return PlanEffect(notes=[RATIO_MODES[after.ratio.mode]])
