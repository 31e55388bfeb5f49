"""What a controller recommends, why, and the outcome: a row of history, with every figure of its sentence."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.capabilities import UNKNOWN, Figure
from fairlead.instances import Role
from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.signals import PoolDemand, RoleSignals


class Controller(StrEnum):
    """The controller that recommends."""

    SCALING = "Scaling"
    """`spec.scaling`: the number of a role."""
    RATIO = "Ratio"
    """`spec.ratio`: one instance from one role to the other."""


class Cause(StrEnum):
    """What requires the number: the largest part of the need, or a comparison of two roles."""

    PROMPTS = "Prompts"
    QUEUE = "Queue"
    OUTPUTS = "Outputs"
    SLOW_OUTPUTS = "SlowOutputs"
    LOADS_APART = "LoadsApart"
    WORK_EXCEEDS = "WorkExceeds"
    """More work arrives than the role can do, and another split of instances between roles would serve more of it."""
    IDLE = "Idle"
    """No router has had a request for a while."""
    HELD = "Held"
    """Routers hold requests for a pool without an instance."""


class Hold(StrEnum):
    """Why a recommendation is not followed, or not wholly."""

    STABILIZING = "Stabilizing"
    """Another number was recommended within the stabilisation window."""
    COOLDOWN = "Cooldown"
    STEP_LIMIT = "StepLimit"
    AT_BOUND = "AtBound"
    """Bounds of the role or of a schedule's window forbid it."""
    SLO_MISSED = "SloMissed"
    """Fewer instances are not allowed while requests miss the SLO."""
    NOT_WORTH_IT = "NotWorthIt"
    """The pool would serve no more requests after the move, and its busier role would be no less busy."""


class Verdict(StrEnum):
    """The outcome of a recommendation."""

    APPLIED = "Applied"
    """The number changed, if only in part (`hold` then says why)."""
    ADVISED = "Advised"
    """The mode is Advise."""
    HELD = "Held"
    """Nothing changed; `hold` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Instances a role needs, in fractions of instances; None if that side is not computed or not measured."""

    for_prompts: float | None = None
    """To prefill what arrives, within the target load."""
    for_queue: float | None = None
    """Additional instances to work off requests that have waited too long."""
    for_outputs: float | None = None
    """To decode what arrives, within the target load."""
    for_slow_outputs: float | None = None
    """To decode what runs, where it is predicted to be slower than the target."""

    @property
    def instances(self) -> float | None:
        """The whole need; None when nothing could be measured."""
        return max((need for need, _ in self._parts()), default=None)

    @property
    def cause(self) -> Cause:
        """The part that decides. Prompts when nothing was measured."""
        return max(self._parts(), default=(0.0, Cause.PROMPTS), key=lambda part: part[0])[1]

    def _parts(self) -> list[tuple[float, Cause]]:
        queue = self.for_queue or 0.0
        prefill = None if self.for_prompts is None else self.for_prompts + queue
        parts = (
            (prefill, Cause.QUEUE if queue > (self.for_prompts or 0.0) else Cause.PROMPTS),
            (self.for_outputs, Cause.OUTPUTS),
            (self.for_slow_outputs, Cause.SLOW_OUTPUTS),
        )
        return [(need, cause) for need, cause in parts if need is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """What the ratio controller saw: smoothed loads, the comparisons in a row that called for the move, who would give,
    and the share (0-1) of requests that could be served before and after, by the work that arrives.
    """

    prefill_load: float
    decode_load: float
    comparisons: int
    donor: Role
    donor_replicas: int
    """Before the move."""
    servable: float | None = None
    servable_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A recommended number for a role that differs from the present one; for the ratio controller, of the receiver.
    `replicas` is the number after this round, or in mode Advise the number it would be.
    """

    controller: Controller
    role: Role
    current: int
    recommended: int
    replicas: int
    verdict: Verdict
    cause: Cause
    hold: Hold | None
    bounds: BoundsInForce
    need: Need | None = None
    imbalance: Imbalance | None = None
    signals: tuple[RoleSignals, ...] = ()
    """The signals it was computed from: the role's, or those of both."""
    demand: PoolDemand | None = None
    """What it was found from, to zero and from zero."""
    speed: Figure = UNKNOWN
    """The prefill speed of an instance by which the first ones were counted, from zero."""
    start: Figure = UNKNOWN
    """How long an instance takes to start, if more are wanted for the requests until the first ones serve."""
    expected_prompt_tokens: int | None = None
    """Prompt tokens that will be held by then, if requests keep arriving as since the first instances were requested.
    """

    @property
    def line(self) -> str:
        """Equal for recommendations that say the same; while one is held, only its direction counts, not its number."""
        said = f"{self.controller} {self.role} {self.verdict} {self.hold or '-'} {self.bounds.lower}..{self.bounds.upper} "
        if self.verdict is Verdict.HELD:
            return said + ("up" if self.recommended > self.current else "down")
        return said + f"{self.current}>{self.recommended}>{self.replicas}"
