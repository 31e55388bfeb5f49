"""Which queue an instance gets, the discipline its pool's policy asks for, and how policies see queues."""

from collections.abc import Iterator, Mapping, Sequence

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.requests import QueuedRequest
from fairlead.routing.queues.deadline import DeadlineQueue, LateRules
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead.tables import RoutingTable

Queue = InstanceQueue | DeadlineQueue


class QueuesInOrder(Mapping[str, Sequence[QueuedRequest]]):
    """Queues of some instances as a policy sees them: as they would be sent if none came, put in order when looked at."""

    def __init__(self, queues: Mapping[str, Queue], now: float) -> None:
        self._queues = queues
        self._now = now

    def __getitem__(self, instance: str) -> Sequence[QueuedRequest]:
        return self._queues[instance].in_order(self._now)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)


def build_queue(parameters: QueueParameters, table: RoutingTable, load: InstanceLoad, late: LateRules) -> Queue:
    """An empty queue for the instance of `load`; the rules for late requests are for the `deadline` discipline."""
    target = table.slo.ttft_seconds
    if parameters.queue_discipline == "deadline":
        return DeadlineQueue(load, target, table.engine.prefill_tokens_per_second, late)
    return InstanceQueue(parameters.queue_discipline, parameters.queue_age_bound_seconds, target)
