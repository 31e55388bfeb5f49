"""What a plan is expected to do: found by simulating the pool's recorded traffic with the change and without it."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ExpectationState(StrEnum):
    """The progress of a plan's simulation; `unknown` means that there is none, or none with a usable result."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    UNKNOWN = "unknown"


class Quantity(StrEnum):
    """What is expected: shares of requests in time (within both targets) and refused, the share of prompt tokens that
    is not computed, and the sessions that change their home.
    """

    ATTAINMENT = "attainment"
    REFUSED_SHARE = "refused-share"
    HIT_RATE = "hit-rate"
    SESSIONS_MOVED = "sessions-moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFigure:
    """A quantity without the change (`before`) and with it (`after`): means over the seeds. `unknown` says why the
    figures cannot be relied on; None = both seeds, the other rates, other requests like these and what was recorded of
    the pool agree with them within a quarter, in nine of ten cases as far as chance goes.
    """

    quantity: Quantity
    before: float
    after: float
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExpectation:
    """What is expected of a plan. `reason` says why nothing is known, in words.

    The first half of the `requests`, recorded from `start` to `end`, warms the simulated pool up; then the change
    is made, and `figures` are of the other half, which took `measured_seconds` when it was recorded. `done` of `total`
    requests are simulated, over all runs: with each seed as it is and as planned, and as planned with the recorded
    rate of requests times each of `rates`. `notes` say what was left out or assumed.
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
