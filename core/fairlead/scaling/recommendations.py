"""A controller's recommendation, its cause and its outcome: a row of history with all figures of the sentence that
describes it.
"""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.capabilities import UNKNOWN, Figure
from fairlead.instances import Role
from fairlead.scaling.bounds import BoundsInForce
from fairlead.scaling.signals import PoolDemand, RoleSignals


class Controller(StrEnum):
    """The controller that recommends."""

    SCALING = "Scaling"
    """`spec.scaling`: changes the number of a role's instances."""
    RATIO = "Ratio"
    """`spec.ratio`: moves one instance from one role to the other."""


class Cause(StrEnum):
    """The main reason for a recommended number of instances: the largest part of the need, or a comparison of the two
    roles.
    """

    PROMPTS = "Prompts"
    QUEUE = "Queue"
    OUTPUTS = "Outputs"
    SLOW_OUTPUTS = "SlowOutputs"
    LOADS_APART = "LoadsApart"
    WORK_EXCEEDS = "WorkExceeds"
    """More work arrives than the role can do, and another division of the instances between the roles would serve more
    of the work.
    """
    IDLE = "Idle"
    """No router has had a request for the pool for a while."""
    HELD = "Held"
    """Routers hold requests for a pool without an instance."""


class Hold(StrEnum):
    """The reason why a recommendation is not followed, or only in part."""

    STABILIZING = "Stabilizing"
    """Another number was recommended within the stabilisation window."""
    COOLDOWN = "Cooldown"
    STEP_LIMIT = "StepLimit"
    AT_BOUND = "AtBound"
    """Bounds of the role or of a schedule's window forbid the number."""
    SLO_MISSED = "SloMissed"
    """Fewer instances are not allowed while requests miss the SLO."""
    NOT_WORTH_IT = "NotWorthIt"
    """After the move, the pool would not serve more requests, and its busier role would not be less busy."""


class Verdict(StrEnum):
    """The outcome of a recommendation."""

    APPLIED = "Applied"
    """The number changed. If it changed only in part, `hold` says why."""
    ADVISED = "Advised"
    """Nothing changed, because the mode is Advise."""
    HELD = "Held"
    """Nothing changed; `hold` says why. If `hold` is None, the present number is recommended again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Number of instances that a role needs, as fractions; a part is None if it is not computed or not measured."""

    for_prompts: float | None = None
    """Instances to prefill the arriving prompts, within the target load."""
    for_queue: float | None = None
    """Additional instances to work off requests that have waited too long."""
    for_outputs: float | None = None
    """Instances to decode the arriving requests, within the target load."""
    for_slow_outputs: float | None = None
    """Instances to decode the running requests, if decoding is predicted to be slower than the target."""

    @property
    def instances(self) -> float | None:
        """The whole need; None when nothing could be measured."""
        return max((need for need, _ in self._parts()), default=None)

    @property
    def cause(self) -> Cause:
        """The largest part of the need; prompts if nothing was measured."""
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
    """The ratio controller's observations. The fields are the smoothed loads, the number of comparisons in a row that
    called for the move, the role that would give an instance, and the share (0-1) of the arriving requests that could
    be served before and after the move.
    """

    prefill_load: float
    decode_load: float
    comparisons: int
    donor: Role
    donor_replicas: int
    """Instances of the giving role before the move."""
    servable: float | None = None
    servable_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A recommended number of instances for a role; for the ratio controller, the role is the receiver. The present
    number is recommended only to replace an earlier recommendation of another number. `replicas` is the number in force
    after this round, or in mode Advise the number that would be in force.
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
    """The signals from which the recommendation was computed: the signals of the role, or of both roles."""
    demand: PoolDemand | None = None
    """The demand that was observed, for scaling to and from zero."""
    speed: Figure = UNKNOWN
    """For a start from zero: the prefill speed of an instance, from which the first number of instances was computed.
    """
    start: Figure = UNKNOWN
    """For a start from zero: the duration of an instance's start. Set only if further instances are needed for the
    requests that arrive during the start.
    """
    expected_prompt_tokens: int | None = None
    """Number of prompt tokens that will be held when an instance has started, if requests keep arriving at the rate
    since the first instances were requested.
    """

    @property
    def line(self) -> str:
        """A key that is equal for recommendations that need not be recorded twice. While a recommendation is held, the
        key contains only its direction, not its number.
        """
        said = f"{self.controller} {self.role} {self.verdict} {self.hold or '-'} {self.bounds.lower}..{self.bounds.upper} "
        if self.verdict is Verdict.HELD:
            return said + ("up" if self.recommended > self.current else "down")
        return said + f"{self.current}>{self.recommended}>{self.replicas}"


def stands(line: str) -> bool:
    """Return whether people see the recommendation with this `line` until another recommendation is recorded. This is
    the case if it is advised, or if a bound prevents it.
    """
    return line.split()[2:3] == [Verdict.ADVISED] or line.split()[3:4] == [Hold.AT_BOUND]


def receiver_of(line: str) -> Role:
    """Return the role of the recommendation with this `line`."""
    return Role(line.split()[1])


def is_held(line: str) -> bool:
    """Return whether the recommendation with this `line` was prevented by something other than a bound."""
    return line.split()[2:3] == [Verdict.HELD] and not stands(line)


def advised_number(line: str, current: int) -> int:
    """Return the number that the recommendation with this `line` advises instead of `current`; return `current` if it
    advises no other number.
    """
    if line.split()[2:3] != [Verdict.ADVISED]:
        return current
    before, recommended, _ = (int(number) for number in line.split()[-1].split(">"))
    return recommended if before == current else current
