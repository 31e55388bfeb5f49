"""The section `spec.rollout` of an InferencePool."""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from typing import ClassVar

from fairlead.instances import MAX_REPLICAS
from fairlead.schemas.shapes import Rule, duration, listing, nested, number, truth, whole

_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSpec:
    """The conditions under which a rollout is stopped because the new version is worse than the version it replaces."""

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
class CanaryStepSpec:
    """A step of a canary."""

    share: int = whole(
        "Per cent of the sessions that go to the new revision, and of the instances that have it, rounded up.", minimum=1, maximum=99
    )
    hold_seconds: float = duration("Least time of the step, counted from when all its instances serve.", "5m", minimum=0.0, maximum=_DAY)


_STEPS = (CanaryStepSpec(share=10), CanaryStepSpec(share=25), CanaryStepSpec(share=50))


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """A rollout in steps. Each step sends whole sessions to the new revision and is judged by these sessions."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.stopAbove) || !has(self.goBelow) || self.stopAbove < self.goBelow",
            holds=lambda canary: canary.stop_above < canary.go_below,
            field="goBelow",
            message="goBelow must be greater than stopAbove, or no step could be decided",
        ),
    )

    steps: tuple[CanaryStepSpec, ...] = listing(
        CanaryStepSpec,
        "Steps, taken in the order of their shares; after the last one all instances are replaced.",
        _STEPS,
        key="share",
        max_items=8,
    )
    judge: bool = truth(
        "Whether a step is judged by its sessions: the rollout goes on when no metric is worse, and goes back when a metric is worse. "
        "false: it goes on after the hold.",
        True,
    )
    stop_above: float = number(
        "Per cent by which the new revision may be slower, or points by which its hits may be lower, before the rollout goes back.",
        2,
        minimum=0,
        maximum=100,
    )
    go_below: float = number(
        "The rollout goes on only if the new revision is certain to be less than this slower (per cent), and its hits less than this lower (points).",
        10,
        minimum=0.1,
        maximum=100,
    )
    warm_caches_seconds: float = duration(
        "Time after the start of a step in which cache hits are not judged.", "5m", minimum=0.0, maximum=_DAY
    )

    @property
    def in_order(self) -> tuple[CanaryStepSpec, ...]:
        """The steps, the smallest share first."""
        return tuple(sorted(self.steps, key=lambda step: step.share))


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
    canary: CanarySpec | None = nested(
        CanarySpec,
        "Rolls out in steps of whole sessions, and rolls back if the new revision is worse. Without it, instances are replaced one after the other.",
        optional=True,
    )
    regression: RegressionSpec = nested(
        RegressionSpec, "Conditions under which a rollout is stopped because the new revision is worse than the former one."
    )
