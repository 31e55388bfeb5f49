"""The late requests of a queue with the `deadline` discipline, by tenant and by length."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from fairlead.routing.queues.accounting import TrackedRequest

SPARE_ENTRIES = 64


def shortness(tracked: TrackedRequest) -> tuple[bool, float, float]:
    """Return a sort key. Turns of tasks in progress come first, oldest first, so that they are sent before their time
    limit refuses them. All other requests follow, the shortest first; of equally short requests, the earliest arrival
    comes first.
    """
    if tracked.continues:
        return (False, tracked.request.arrived_at, 0.0)
    return (True, tracked.prefill_microseconds, tracked.request.arrived_at)


class LateByLength:
    """The late requests of a queue. Adding a request and finding a tenant's shortest request are O(log n); removing a
    request is O(1).
    """

    def __init__(self) -> None:
        self.requests: dict[str, TrackedRequest] = {}
        """The late requests, keyed by id. Read only."""
        self._heaps: dict[str, list[tuple[bool, float, float, str]]] = {}
        """Each tenant's heap of late requests; it may still contain requests that have left."""
        self._entries = 0

    def __len__(self) -> int:
        return len(self.requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.requests

    @property
    def has_had_any(self) -> bool:
        """Whether the heaps hold entries, possibly of requests that have left."""
        return bool(self._heaps)

    def add(self, tracked: TrackedRequest) -> None:
        """Add a late request."""
        if self._entries > 2 * len(self.requests) + SPARE_ENTRIES:
            self._forget_those_that_left()
        self.requests[tracked.request.id] = tracked
        heappush(self._heaps.setdefault(tracked.request.tenant, []), (*shortness(tracked), tracked.request.id))
        self._entries += 1

    def pop(self, request_id: str) -> TrackedRequest | None:
        """Remove and return the late request with this id; None if it is not among the late requests."""
        return self.requests.pop(request_id, None)

    def shortest(self, tenants: Iterable[str] | None = None) -> TrackedRequest | None:
        """Return the shortest late request of these tenants (None = of all tenants); None if these tenants have no late
        request.
        """
        if not self.requests:
            return None
        found = [late for tenant in tuple(self._heaps if tenants is None else tenants) if (late := self._shortest_of(tenant)) is not None]
        return found[0] if len(found) == 1 else min(found, key=shortness, default=None)

    def by_length(self) -> list[TrackedRequest]:
        """Return all late requests, the shortest first."""
        return sorted(self.requests.values(), key=shortness)

    def _shortest_of(self, tenant: str) -> TrackedRequest | None:
        heap = self._heaps.get(tenant)
        while heap:
            late = self.requests.get(heap[0][3])
            if late is not None:
                return late
            heappop(heap)
            self._entries -= 1
        self._heaps.pop(tenant, None)
        return None

    def _forget_those_that_left(self) -> None:
        for tenant, heap in tuple(self._heaps.items()):
            kept = [entry for entry in heap if entry[3] in self.requests]
            heapify(kept)
            if kept:
                self._heaps[tenant] = kept
            else:
                del self._heaps[tenant]
        self._entries = sum(map(len, self._heaps.values()))
