"""The expected effect of a plan, computed by simulating the pool's recorded traffic with and without the change."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ExpectationState(StrEnum):
    """The progress of a plan's simulation; `unknown` means that the plan has no simulation with a usable result."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    UNKNOWN = "unknown"


class Quantity(StrEnum):
    """Quantities with an expected value: shares of requests in time (within both targets) and refused, the share of
    prompt tokens that is not computed, and the number of sessions that move.
    """

    ATTAINMENT = "attainment"
    REFUSED_SHARE = "refused-share"
    HIT_RATE = "hit-rate"
    SESSIONS_MOVED = "sessions-moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFigure:
    """A quantity without the change (`before`) and with the change (`after`): means over the seeds.

    `unknown` is the reason why the figures are not reliable, None if they are reliable. They are reliable if they
    differ by at most a quarter between both seeds, from the figures at other rates and from the pool's records, and in
    nine of ten cases from the figures of other samples of such requests.
    """

    quantity: Quantity
    before: float
    after: float
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExpectation:
    """The expected effect of a plan.

    `reason` says in words why the effect is not known. The first half of the `requests`, recorded from `start` to
    `end`, warms the simulated pool up. Then the change is made, and `figures` are over the other half, which took
    `measured_seconds` when it was recorded. `done` of `total` requests are simulated, over all runs: with each seed
    without and with the change, and with the change at the recorded request rate times each of `rates`. `notes`
    describe omissions and assumptions.
    """

    plan: str
    state: ExpectationState
    reason: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    requests: int | None = None
    measured_seconds: float | None = None
    seeds: list[int] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    done: int = 0
    total: int = 0
    figures: list[ExpectedFigure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
