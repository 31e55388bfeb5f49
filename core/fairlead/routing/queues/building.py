"""Builds the queue of an instance according to its pool's discipline, and presents queues to policies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from fairlead.priority_classes import PriorityClasses
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.requests import QueuedRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.classes import ClassQueues
from fairlead.routing.queues.deadline import DeadlineQueue, DeadlineRules
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead.routing.queues.queueing import Queue
from fairlead.routing.queues.tenants import TenantQueues
from fairlead.routing.queues.turns import Tenants, Turns
from fairlead.tables import RoutingTable


class QueuesInOrder(Mapping[str, Sequence[QueuedRequest]]):
    """The queues of some instances for a policy: each in the order in which its requests would be sent if no further
    request arrived. A queue is sorted when it is first read.
    """

    def __init__(self, queues: Mapping[str, Queue], now: float) -> None:
        self._queues = queues
        self._now = now

    def __getitem__(self, instance: str) -> Sequence[QueuedRequest]:
        return self._queues[instance].in_order(self._now)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)


def build_queue(
    parameters: QueueParameters,
    table: RoutingTable,
    load: InstanceLoad,
    rules: DeadlineRules,
    classes: PriorityClasses,
    tenants: Tenants | None = None,
) -> Queue:
    """Return an empty queue for the instance of `load`. `rules` are for the discipline `deadline`. With `tenants`, the
    tenants of a priority class take turns.
    """
    if not classes.are_declared:
        return _of_discipline(parameters, table, load, rules, _turns(tenants, load, 0))

    def build(rank: int, lower_waits: Callable[[], bool], found_late: Callable[[TrackedRequest], None]) -> Queue:
        def count_late(tracked: TrackedRequest) -> None:
            found_late(tracked)
            rules.found_late(tracked)

        within = replace(rules, late_may_go=lambda: lower_waits() or rules.late_may_go(), found_late=count_late)
        return _of_discipline(parameters, table, load, within, _turns(tenants, load, rank))

    return ClassQueues(classes, build)


def _turns(tenants: Tenants | None, load: InstanceLoad, rank: int) -> Turns | None:
    return None if tenants is None else tenants.turns(load.entry.id, rank)


def _of_discipline(
    parameters: QueueParameters, table: RoutingTable, load: InstanceLoad, rules: DeadlineRules, turns: Turns | None
) -> Queue:
    target, discipline = table.slo.ttft_seconds, parameters.queue_discipline
    if discipline == "deadline":
        return DeadlineQueue(load, target, rules, turns)

    def build(places: Iterator[int] | None) -> InstanceQueue:
        return InstanceQueue(discipline, parameters.queue_age_bound_seconds, target, places)

    return build(None) if turns is None else TenantQueues(turns, build)
