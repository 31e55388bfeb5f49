"""Tenants in the queue of an instance: one queue of the pool's discipline for each tenant, with requests taken in turn.

The next request comes from the tenant with the least served work. Between tenants with equal served work, the
discipline decides as if there were one queue. So the served work of tenants that always have requests waiting never
differs by more than the largest request. The `deadline` discipline does not use this class: it plans the requests of
all tenants together and takes turns within its plan (`deadline.DeadlineQueue`).
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import count

from fairlead.routing.contracts.requests import Overtaken, RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.disciplines import InstanceQueue
from fairlead.routing.queues.queueing import NOBODY
from fairlead.routing.queues.turns import Turns


class TenantQueues:
    """The requests that wait for one instance, by tenant. Taking a request is linear in the number of waiting
    tenants.
    """

    def __init__(self, turns: Turns, build: Callable[[Iterator[int]], InstanceQueue]) -> None:
        self._turns = turns
        self._build = build
        self._places = count(1)
        self._queues: dict[str, InstanceQueue] = {}
        self._waiting: dict[str, TrackedRequest] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, tracked: TrackedRequest) -> None:
        """Put a request into the queue of its tenant."""
        tenant = tracked.request.tenant
        queue = self._queues.get(tenant)
        if queue is None:
            queue = self._queues[tenant] = self._build(self._places)
        queue.add(tracked)
        self._waiting[tracked.request.id] = tracked
        self._turns.waits(tracked)

    def remove(self, request_id: str) -> None:
        """Remove the request with this id, whichever tenant it has; unknown ids are ignored."""
        tracked = self._waiting.get(request_id)
        if tracked is not None:
            self._turns.leaves(tracked, late=False)
            self._take_out(tracked)

    def find_late(self, now: float) -> Sequence[TrackedRequest]:
        """Return an empty sequence, because these disciplines do not mark requests as late."""
        return ()

    def take(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request of the tenant with the least served work."""
        if not self._waiting:
            return None
        _, tracked = min((self._queues[tenant].first(now) for tenant in self._turns.least_served()), key=lambda first: first[0])
        self._turns.sent(tracked)
        self._take_out(tracked)
        return tracked

    def take_in_time(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, because these disciplines have no deadlines."""
        return self.take(now)

    def take_any(self, now: float) -> TrackedRequest | None:
        """Remove and return the next request, as `take` does, because `take` always returns a request under these
        disciplines.
        """
        return self.take(now)

    def in_order(self, now: float) -> list[TrackedRequest]:
        """Return the requests in the order in which they would be sent if all were sent now. Only the order of tenants
        with equal served work may differ.
        """
        orders = {tenant: iter(queue.in_order(now)) for tenant, queue in self._queues.items()}
        heads = [(self._turns.served(tenant), place, tenant, next(order)) for place, (tenant, order) in enumerate(orders.items())]
        heapify(heads)
        found: list[TrackedRequest] = []
        while heads:
            served, place, tenant, tracked = heads[0]
            found.append(tracked)
            following = next(orders[tenant], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (served + tracked.work_microseconds, place, tenant, following))
        return found

    def lower_than(self, request: RoutingRequest) -> Overtaken:
        """Return an empty result, because all requests in this queue have the same priority."""
        return NOBODY

    def overtaken_by(self, request: RoutingRequest) -> Overtaken:
        """Return the waiting work of other tenants that would be sent after the request by fair share. Requests of the
        same tenant are not counted, because they may be sent in any order.
        """
        return self._turns.overtaken_by(request.tenant)

    def _take_out(self, tracked: TrackedRequest) -> None:
        del self._waiting[tracked.request.id]
        queue = self._queues[tracked.request.tenant]
        queue.remove(tracked.request.id)
        if not queue:
            del self._queues[tracked.request.tenant]
