"""The sections `spec.scaling` and `spec.ratio` of an InferencePool.

The words and their meanings follow the `behavior` of Kubernetes' autoscaling/v2, so that knowledge of HPAs applies.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import MAX_REPLICAS
from fairlead.schemas.shapes import Rule, duration, nested, number, text, whole
from fairlead.tables import HoldingFacts

_HOUR = 3600.0


class ScalingMode(StrEnum):
    """What decides the number of instances of a role."""

    FIXED = "Fixed"
    SLO = "SLO"
    ADVISE = "Advise"


class RatioMode(StrEnum):
    """What decides how many of a pool's instances prefill and how many decode."""

    FIXED = "Fixed"
    AUTO = "Auto"
    ADVISE = "Advise"


class RatioMethod(StrEnum):
    """How an instance goes from one role to the other."""

    ROLE_FLIP = "RoleFlip"
    REPLACE = "Replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpSpec:
    """How fast a role may grow. With `instances` and `percent` both 0 it never grows."""

    stabilization_window_seconds: float = duration(
        "The lowest number recommended in this time counts, so that a short burst starts nothing.", "30s", minimum=0.0, maximum=_HOUR
    )
    instances: int = whole("Instances that may be added within one period; the larger of this and percent counts.", 4, maximum=MAX_REPLICAS)
    percent: float = number(
        "Percent of the instances at the period's start that may be added within it, rounded up.", 100, minimum=0, maximum=10000
    )
    period_seconds: float = duration("The period of instances and percent.", "60s", minimum=1.0, maximum=_HOUR)
    cooldown_seconds: float = duration("Minimum time from any step of the role to a step up.", "0s", minimum=0.0, maximum=_HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDownSpec:
    """How fast a role may shrink. With `instances` and `percent` both 0 it never shrinks."""

    stabilization_window_seconds: float = duration(
        "The highest number recommended in this time counts, so that a short lull stops nothing.", "5m", minimum=0.0, maximum=_HOUR
    )
    instances: int = whole(
        "Instances that may be removed within one period; the larger of this and percent counts.", 1, maximum=MAX_REPLICAS
    )
    percent: float = number(
        "Percent of the instances at the period's start that may be removed within it, rounded up.", 10, minimum=0, maximum=100
    )
    period_seconds: float = duration("The period of instances and percent.", "60s", minimum=1.0, maximum=_HOUR)
    cooldown_seconds: float = duration("Minimum time from any step of the role to a step down.", "60s", minimum=0.0, maximum=_HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSpec(HoldingFacts):
    """When a pool scales to zero instances, and how requests are handled then."""

    idle_after_seconds: float = duration(
        "In mode SLO, with minReplicas 0: time without a request at any router after which the pool's last instances are removed.",
        "10m",
        minimum=1.0,
        maximum=7 * 24 * _HOUR,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSpec:
    """How the number of instances of each role is determined."""

    mode: ScalingMode = text(
        (
            "Fixed: the declared number; SLO: the number that meets the targets of slo for the arriving load, "
            "starting from the declared number; Advise: the declared number, with the number of mode SLO as a "
            "recommendation."
        ),
        ScalingMode.FIXED.value,
        enum=tuple(mode.value for mode in ScalingMode),
        convert=ScalingMode,
    )
    target_load: float = number("Share of its capacity to which an instance should be used.", 0.8, minimum=0.05, maximum=1)
    tolerance: float = number(
        "Tolerance: the needed number must differ from the present one by more than this share to count.", 0.1, minimum=0, maximum=0.9
    )
    period_seconds: float = duration("Time from one recommendation to the next.", "15s", minimum=1.0, maximum=_HOUR)
    recovery_seconds: float = duration(
        "Time within which a queue that waits longer than slo.ttft allows should be worked off.", "30s", minimum=1.0, maximum=_HOUR
    )
    scale_up: ScaleUpSpec = nested(ScaleUpSpec, "How fast a role may grow.")
    scale_down: ScaleDownSpec = nested(ScaleDownSpec, "How fast a role may shrink.")
    zero: ZeroSpec = nested(ZeroSpec, "When a pool scales to zero instances, and how requests are handled then.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSpec:
    """The number of a pool's instances that prefill, and the number that decode. Instances move between the two roles
    one at a time.

    A load is a predicted latency over its SLO, smoothed.
    """

    mode: RatioMode = text(
        (
            "Fixed: as declared; Auto: an instance moves from the role with less load to the one with more; "
            "Advise: the move is only recommended."
        ),
        RatioMode.FIXED.value,
        enum=tuple(mode.value for mode in RatioMode),
        convert=RatioMode,
    )
    method: RatioMethod = text(
        "RoleFlip: the instance drains and takes the other role in the same pod; Replace: it drains and is deleted, and a new one starts.",
        RatioMethod.ROLE_FLIP.value,
        enum=tuple(method.value for method in RatioMethod),
        convert=RatioMethod,
    )
    band: float = number("Loads of prefill and decode that differ by no more than this are in balance.", 0.3, minimum=0.01, maximum=10)
    donor_load: float = number("A role gives an instance away only while its load is below this.", 0.7, minimum=0.01, maximum=10)
    receiver_load: float = number("A role is given an instance only while its load is above this.", 0.8, minimum=0, maximum=10)
    period_seconds: float = duration("Time from one comparison of the loads to the next.", "30s", minimum=1.0, maximum=_HOUR)
    periods: int = whole("Comparisons in a row that must call for the same move before it is made.", 3, minimum=1, maximum=100)
    cooldown_seconds: float = duration("Minimum time from one move to the next.", "120s", minimum=0.0, maximum=24 * _HOUR)


RATIO_NEEDS_ROLES = Rule(
    cel="self.ratio.mode == 'Fixed' || self.roles.exists(role, role.name == 'prefill')",
    holds=lambda spec: spec.ratio.mode is RatioMode.FIXED or any(role.name == "prefill" for role in spec.roles),
    field="ratio",
    message="ratio.mode Auto and Advise need the roles prefill and decode; declare them in roles or write ratio.mode Fixed",
)
"""A rule of the whole spec: if the mode of `ratio` is not Fixed, the pool must have the roles prefill and decode."""

ZERO_TOGETHER = Rule(
    cel="self.scaling.mode == 'Fixed' || self.roles.all(role, role.minReplicas >= 1) || self.roles.all(role, role.minReplicas == 0)",
    holds=lambda spec: spec.scaling.mode is ScalingMode.FIXED or len({role.min_replicas == 0 for role in spec.roles}) == 1,
    field="roles",
    message="with scaling.mode SLO or Advise either all roles have minReplicas 0 or none: prefill and decode go to zero together",
)
"""A rule of the whole spec: with automatic scaling, either all roles may go to zero or no role may."""
