"""Which queue an instance gets, the discipline its pool's policy asks for, and how policies see queues."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.parameters import QueueParameters
from fairlead.routing.contracts.requests import QueuedRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.deadline import DeadlineQueue, DeadlineRules
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead.tables import RoutingTable


class Queue(Protocol):
    """The requests that wait for one instance, in the order of a discipline."""

    def __len__(self) -> int: ...

    def add(self, tracked: TrackedRequest) -> None:
        """Let a request wait."""

    def remove(self, request_id: str) -> None:
        """Take a request out wherever it stands; unknown ids are ignored."""

    def find_late(self, now: float) -> None:
        """Sort out what can no longer meet the TTFT target, if the discipline tells that apart."""

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the request to send next; None when there is none that should go now."""

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """As `take`, without those found late."""

    def in_order(self, now: float) -> list[TrackedRequest]:
        """The requests in about the order they would be sent if none came."""


class QueuesInOrder(Mapping[str, Sequence[QueuedRequest]]):
    """Queues of some instances as a policy sees them: as they would be sent if none came, put in order when
    looked at.
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


def build_queue(parameters: QueueParameters, table: RoutingTable, load: InstanceLoad, rules: DeadlineRules) -> Queue:
    """An empty queue for the instance of `load`; the rules are for the `deadline` discipline."""
    target = table.slo.ttft_seconds
    if parameters.queue_discipline == "deadline":
        return DeadlineQueue(load, target, table.engine.prefill_tokens_per_second, rules)
    return InstanceQueue(parameters.queue_discipline, parameters.queue_age_bound_seconds, target)
