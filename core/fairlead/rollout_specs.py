"""The section `spec.rollout` of an InferencePool."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from typing import ClassVar

from fairlead.instances import MAX_REPLICAS
from fairlead.schemas.shapes import Rule, duration, nested, number, truth, whole

_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSpec:
    """When a rollout is stopped because it is worse than the version it replaces."""

    attainment_drop: float = number(
        "Percentage points by which the SLO attainment may fall below its value at the rollout's start; 100 = attainment is ignored.",
        10,
        minimum=0,
        maximum=100,
    )
    window_seconds: float = duration(
        "How long attainment must be too low, or updated instances must fail, before the rollout stops.", "60s", minimum=0.0, maximum=_DAY
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """How instances are replaced after a change of their template or engine."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.maxSurge) || !has(self.maxUnavailable) || self.maxSurge > 0 || self.maxUnavailable > 0",
            holds=lambda rollout: rollout.max_surge > 0 or rollout.max_unavailable > 0,
            field="maxSurge",
            message="maxSurge and maxUnavailable must not both be 0, because nothing could be replaced",
        ),
    )

    max_surge: int = whole("Instances above the desired number while others are replaced.", 1, maximum=MAX_REPLICAS)
    max_unavailable: int = whole(
        "Instances that may be missing during a rollout; never below minReplicas or an open window's minimum.", 0, maximum=MAX_REPLICAS
    )
    paused: bool = truth("Whether the rollout is paused: outdated instances are not replaced.", False)
    progress_deadline_seconds: float = duration(
        "Longest time without another updated instance before Progressing becomes False.", "10m", minimum=1.0, maximum=_DAY
    )
    revision_history: int = whole("Number of revisions kept for roll-backs, including the present one.", 10, minimum=1, maximum=100)
    regression: RegressionSpec = nested(RegressionSpec, "When a rollout is stopped because it is worse than the version it replaces.")
