"""The section `spec.routing` of an InferencePool."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass

from fairlead.schemas.shapes import duration, nested, number, whole
from fairlead.tables import RoutingFacts, SessionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingSpec:
    """The steps in which a new instance gets its share of the keys while other instances have full caches."""

    duration_seconds: float = duration(
        "Time from the first keys to the full weight, in four steps; 0s gives all at once.", "20s", minimum=0.0, maximum=3600.0
    )
    first_weight: float = number("Share of the full weight with which a new instance begins.", 0.25, minimum=0.01, maximum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec(RoutingFacts):
    """How requests are assigned to instances."""

    block_tokens: int = whole("Tokens per routing block; prompts are compared in whole blocks.", 512, minimum=1, maximum=65536)
    anchors_per_instance: int = whole("Points of one instance on each hash ring.", 160, minimum=1, maximum=4096)
    warming: WarmingSpec = nested(WarmingSpec, "How a new instance gets its part of the keys while other instances have full caches.")
    session: SessionFacts = nested(SessionFacts, "How requests of one session are recognised, and how long a binding lives.")
