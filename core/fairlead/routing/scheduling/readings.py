"""What may be read of a pool's scheduler at any time, without changing anything."""

from fairlead.reports import Binding, InstanceInFlight
from fairlead.routing.admission.loads import PoolLoads, pool_loads
from fairlead.routing.contracts.decisions import Decision
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.estimators import EstimateReport
from fairlead.routing.queues.accounting import discrepancies
from fairlead.routing.scheduling.placing import Placing
from fairlead.tables import RoutingTable


class SchedulerReadings:
    """The reading half of `PoolScheduler`."""

    def __init__(self, placing: Placing) -> None:
        self._placing = placing

    @property
    def table(self) -> RoutingTable:
        """The table version in force."""
        return self._placing.table

    def load(self, instance: str) -> InstanceLoad | None:
        """The live counters of an instance; read only."""
        return self._placing.accounting.loads.get(instance)

    def loads(self) -> tuple[InstanceLoad, ...]:
        """Live counters of every instance of the table, and of those gone that still have requests; read only."""
        return tuple(self._placing.accounting.loads.values())

    def binding(self, session: str) -> Binding | None:
        """The session's home as this router knows it."""
        return self._placing.bindings.get(session)

    def waiting(self) -> int:
        """Requests queued or held in this router."""
        return len(self._placing.waiting)

    def choose(self, request: RoutingRequest, now: float) -> Decision | None:
        """What the policy would answer now, without taking the request; None when nobody accepts. The policy remembers having been asked."""
        self._placing.view.now = now
        return self._placing.policy.policy.choose(request, self._placing.view, now) if self._placing.view.candidates() else None

    def estimates(self) -> EstimateReport:
        """How well the pool's prefill times are predicted, when a policy asks for a fit."""
        return self._placing.prefill_times.report()

    def pool_loads(self, now: float) -> PoolLoads:
        """Prefill and decode loads of the pool, over their SLOs."""
        self._placing.view.now = now
        return pool_loads(self._placing.view)

    def discrepancies(self) -> tuple[str, ...]:
        """Instances whose counters differ from a fresh count of the requests in flight, in words; always empty unless accounting has a bug."""
        return discrepancies(self._placing.accounting)

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        """Queued and dispatched requests per instance, by id; instances gone are listed while they still have some."""
        return tuple(
            InstanceInFlight(
                pool=self._placing.table.pool,
                instance=instance,
                in_flight=self._placing.accounting.in_flight(instance),
                waiting=load.waiting,
            )
            for instance, load in sorted(self._placing.accounting.loads.items())
        )
