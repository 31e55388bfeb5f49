"""Giving way: selects held requests that are refused to make room for a new request, if tenants take turns."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from heapq import heapify, heapreplace

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest

Size = Callable[[RoutingRequest], int]
"""A function that returns how much of a limit a request uses: `in_requests` or `in_bytes`."""


def in_requests(_: RoutingRequest) -> int:
    """Return 1: the size of every request is the same."""
    return 1


def in_bytes(request: RoutingRequest) -> int:
    """Return the memory in bytes that the request's body takes up."""
    return request.body_bytes


class GivingWay:
    """Selects the requests of `held` (oldest first) that may be refused to make room for `request`.

    Each step selects the newest request of the tenant with the largest holding. Only tenants are considered whose
    holding is larger than the holding that the tenant of `request` would have if `request` were held too.
    """

    def __init__(self, held: Iterable[TrackedRequest], request: RoutingRequest) -> None:
        self._request = request
        self._by_tenant: defaultdict[str, list[TrackedRequest]] = defaultdict(list)
        for tracked in held:
            self._by_tenant[tracked.request.tenant].append(tracked)

    def freeing(self, lacking: int, size: Size) -> list[TrackedRequest] | None:
        """Return the requests that must be refused to free `lacking`, an amount measured by `size`. None if refusing
        all allowed requests would not free enough. The returned requests are removed, so a later call does not return
        them.
        """
        most = [(-sum(size(one.request) for one in held), tenant) for tenant, held in self._by_tenant.items()]
        own = size(self._request) - sum(has for has, tenant in most if tenant == self._request.tenant)
        heapify(most)
        leaving: list[TrackedRequest] = []
        while lacking > 0:
            if not most or -most[0][0] <= own:
                return None
            has, tenant = most[0]
            leaving.append(self._pop_newest(tenant, size))
            freed = size(leaving[-1].request)
            lacking -= freed
            heapreplace(most, (has + freed, tenant))
        return leaving

    def _pop_newest(self, tenant: str, size: Size) -> TrackedRequest:
        """Remove and return the tenant's newest request whose `size` is above 0."""
        held = self._by_tenant[tenant]
        return held.pop(next(place for place in range(len(held) - 1, -1, -1) if size(held[place].request)))
