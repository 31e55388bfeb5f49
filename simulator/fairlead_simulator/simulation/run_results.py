"""The results of a run apart from its jobs, and how they are recorded."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt

from fairlead.instances import Role
from fairlead.predictors.reports import LearningReport
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.routers import Routers
from fairlead_simulator.simulation.training import TrainedRound

_TAKE_RECORDS_SECONDS = 300.0


@dataclass(slots=True)
class LoadPoint:
    """The pending prefill tokens of every instance at one moment, as counted by the router."""

    at: float
    pending: dict[str, int]


def variation(values: Sequence[float]) -> float:
    """Return the population coefficient of variation; 0 when the mean is 0."""
    count = len(values)
    mean = fsum(values) / count if count else 0.0
    if mean == 0:
        return 0.0
    return sqrt(fsum((value - mean) ** 2 for value in values) / count) / mean


class LoadVariations:
    """The variation of pending prefill tokens over instances, at each moment at which tokens were pending, in order of
    time. Only two numbers are stored for each moment, however many instances there are. They are kept for the whole
    run, because it is known only afterwards which part of the run is measured.
    """

    def __init__(self) -> None:
        self._at = array("d")
        self._variations = array("d")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at: float, pending: Sequence[float]) -> None:
        """Add the pending tokens of every instance at the time `at`, which must be later than all before."""
        if any(pending):
            self._at.append(at)
            self._variations.append(variation(pending))

    def mean(self, begin: float, end: float) -> float:
        """Return the mean of the recorded variations at the times from `begin` to `end`, both included; 0 without a
        record.
        """
        busy = self._variations[bisect_left(self._at, begin) : bisect_right(self._at, end)]
        return fsum(busy) / len(busy) if busy else 0.0


@dataclass(slots=True)
class RunResult:
    """The results of a run, apart from its jobs."""

    jobs: Sequence[Job]
    ended_at: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    """Number of refused requests by reason."""
    migrations: list[MigrationRecord] = field(default_factory=list)
    reroutes: list[ReRouteRecord] = field(default_factory=list)
    variations: LoadVariations = field(default_factory=LoadVariations)
    loads: list[LoadPoint] = field(default_factory=list)
    """The loads of each instance over time; empty unless `keep_loads` was requested."""
    events: int = 0
    preemptions: int = 0
    transferred_tokens: int = 0
    records_dropped: int = 0
    rounds: list[TrainedRound] = field(default_factory=list)
    """The rounds of training whose models a learning policy received."""
    learning: LearningReport | None = None
    """The state of a learning policy's training at the end; None if the policy does not learn."""
    event_gaps: int = 0
    """Number of times that a router noticed a missing batch of KV events."""

    def count_refusal(self, reason: str) -> None:
        """Count a refused request."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1


class RunRecorder:
    """Adds the figures of the schedulers to the result of a run."""

    def __init__(self, routers: Routers, result: RunResult, *, keep_loads: bool) -> None:
        self._routers = routers
        self._result = result
        self._keep_loads = keep_loads
        self._taken_at = 0.0

    def sample_loads(self, now: float) -> None:
        """Record the load of every instance that prefills."""
        pending: dict[str, int] = {}
        for scheduler in self._routers:
            for load in scheduler.loads():
                if load.entry.role is not Role.DECODE:
                    pending[load.entry.id] = pending.get(load.entry.id, 0) + load.pending_prefill_tokens
        self._result.variations.add(now, list(pending.values()))
        if self._keep_loads:
            self._result.loads.append(LoadPoint(now, pending))

    def take_records(self, now: float, *, final: bool = False) -> None:
        """Copy the records of migrations and re-routes to the result; before the end of the run (`final`) only from
        time to time.
        """
        if not final:
            if now - self._taken_at < _TAKE_RECORDS_SECONDS:
                return
            self._taken_at = now
        for scheduler in self._routers:
            records = scheduler.take_records(now, final=final)
            self._result.migrations += records.migrations
            self._result.reroutes += records.reroutes
            self._result.records_dropped += records.dropped
