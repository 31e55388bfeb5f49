"""What a run leaves behind besides its jobs, and the taking of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.instances import Role
from fairlead.predictors.reports import LearningReport
from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead_simulator.simulation.jobs import Job
from fairlead_simulator.simulation.routers import Routers
from fairlead_simulator.simulation.training import TrainedRound

_TAKE_RECORDS_SECONDS = 300.0


@dataclass(slots=True)
class LoadPoint:
    """Pending prefill tokens of every instance at one instant, as the router counts them."""

    at: float
    pending: dict[str, int]


@dataclass(slots=True)
class RunResult:
    """What a run left behind, besides the jobs themselves."""

    jobs: Sequence[Job]
    ended_at: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)
    """Refused requests by reason."""
    migrations: list[MigrationRecord] = field(default_factory=list)
    reroutes: list[ReRouteRecord] = field(default_factory=list)
    loads: list[LoadPoint] = field(default_factory=list)
    events: int = 0
    preemptions: int = 0
    transferred_tokens: int = 0
    records_dropped: int = 0
    rounds: list[TrainedRound] = field(default_factory=list)
    """Models that a learning policy was given."""
    learning: LearningReport | None = None
    """What such a policy had learnt by the end."""
    event_gaps: int = 0
    """Times that a router missed a batch of KV events."""

    def count_refusal(self, reason: str) -> None:
        """One more request was refused."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1


class RunRecorder:
    """Writes what the schedulers say of themselves into a result."""

    def __init__(self, routers: Routers, result: RunResult) -> None:
        self._routers = routers
        self._result = result
        self._taken_at = 0.0

    def sample_loads(self, now: float) -> None:
        """The load of every instance that prefills."""
        pending: dict[str, int] = {}
        for scheduler in self._routers:
            for load in scheduler.loads():
                if load.entry.role is not Role.DECODE:
                    pending[load.entry.id] = pending.get(load.entry.id, 0) + load.pending_prefill_tokens
        self._result.loads.append(LoadPoint(now, pending))

    def take_records(self, now: float, *, final: bool = False) -> None:
        """Migrations and re-routes so far; before the end only now and then."""
        if not final:
            if now - self._taken_at < _TAKE_RECORDS_SECONDS:
                return
            self._taken_at = now
        for scheduler in self._routers:
            records = scheduler.take_records(now, final=final)
            self._result.migrations += records.migrations
            self._result.reroutes += records.reroutes
            self._result.records_dropped += records.dropped
