"""The results of a run, and the recording of its loads and moves."""

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
    """The pending prefill tokens of every instance at one moment, as the routers count them."""

    at: float
    pending: dict[str, int]


def variation(values: Sequence[float]) -> float:
    """Return the population coefficient of variation of the values; 0 if their mean is 0 or there are none."""
    count = len(values)
    mean = fsum(values) / count if count else 0.0
    if mean == 0:
        return 0.0
    return sqrt(fsum((value - mean) ** 2 for value in values) / count) / mean


class LoadVariations:
    """The imbalance of load over time: for each sample at which prefill tokens were pending, the time and the
    coefficient of variation of the instances' pending tokens. The samples are in order of time. All samples of a run
    are kept, because the measured part of the run is known only at its end.
    """

    def __init__(self) -> None:
        self._at = array("d")
        self._variations = array("d")

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at: float, pending: Sequence[float]) -> None:
        """Add a moment: the pending tokens of every instance at the time `at`, which must be later than all earlier
        moments.
        """
        if any(pending):
            self._at.append(at)
            self._variations.append(variation(pending))

    def mean(self, begin: float, end: float) -> float:
        """Return the mean of the variations at times from `begin` to `end` (both included); 0 without such times."""
        busy = self._variations[bisect_left(self._at, begin) : bisect_right(self._at, end)]
        return fsum(busy) / len(busy) if busy else 0.0


@dataclass(slots=True)
class RunResult:
    """The results of a run. Its `jobs` have the results of each request."""

    jobs: Sequence[Job]
    ended_at: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    """Reason of refusal → number of requests that were refused for it."""
    migrations: list[MigrationRecord] = field(default_factory=list)
    reroutes: list[ReRouteRecord] = field(default_factory=list)
    variations: LoadVariations = field(default_factory=LoadVariations)
    loads: list[LoadPoint] = field(default_factory=list)
    """The load of every instance at each sample; empty unless `keep_loads` was set."""
    events: int = 0
    preemptions: int = 0
    transferred_tokens: int = 0
    records_dropped: int = 0
    rounds: list[TrainedRound] = field(default_factory=list)
    """The rounds of training after which a learning policy got the new model, in order of time."""
    learning: LearningReport | None = None
    """The state of a learning policy's training at the end; None if the policy does not learn."""
    event_gaps: int = 0
    """Number of times that a router noticed that a batch of KV events was missing."""

    def count_refusal(self, reason: str) -> None:
        """Count a request that was refused for this reason."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1


class RunRecorder:
    """Copies loads and moves from the routers' schedulers to the result of a run."""

    def __init__(self, routers: Routers, result: RunResult, *, keep_loads: bool) -> None:
        self._routers = routers
        self._result = result
        self._keep_loads = keep_loads
        self._taken_at = 0.0

    def sample_loads(self, now: float) -> None:
        """Record the pending prefill tokens of every instance that prefills, summed over the routers."""
        pending: dict[str, int] = {}
        for scheduler in self._routers:
            for load in scheduler.loads():
                if load.entry.role is not Role.DECODE:
                    pending[load.entry.id] = pending.get(load.entry.id, 0) + load.pending_prefill_tokens
        self._result.variations.add(now, list(pending.values()))
        if self._keep_loads:
            self._result.loads.append(LoadPoint(now, pending))

    def take_records(self, now: float, *, final: bool = False) -> None:
        """Move the schedulers' records of migrations and re-routes to the result. Records are moved every 300 s, and at
        the end of the run (`final`).
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
