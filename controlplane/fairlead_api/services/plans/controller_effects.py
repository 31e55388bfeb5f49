"""Says what handing numbers to a controller means, or taking them back. Pure.

What the controller will do is not predicted here: mode Advise shows it for the traffic there is.
"""

from collections.abc import Mapping
from types import MappingProxyType

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


def controller_effect(mode: str, words: Mapping[str, str]) -> PlanEffect:
    """What the mode means, as a warning to read before applying."""
    return PlanEffect(warnings=[words[mode]])
