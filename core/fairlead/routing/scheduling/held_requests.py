"""Held requests: accepted requests that wait until an instance accepts requests. This module decides how many are held,
for how long, and in which order they are placed.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil, floor

from fairlead.priority_classes import PriorityClasses
from fairlead.reports.loads import HeldDemand
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.giving_way import GivingWay, in_bytes, in_requests
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import Outlook, RoutingTable


class HeldRequests:
    """The held requests of one pool, in order of how long they have been held, longest first."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._requests: dict[str, TrackedRequest] = {}
        self._by_class: Counter[str] = Counter()
        self._by_tenant: Counter[tuple[str, str]] = Counter()
        """Number of held requests for each pair of priority class and tenant."""
        self._bytes_by_tenant: Counter[tuple[str, str]] = Counter()
        self._body_bytes = 0
        self._prompt_tokens = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[TrackedRequest]:
        return iter(tuple(self._requests.values()))

    def has_room(self, request: RoutingRequest, table: RoutingTable, classes: PriorityClasses) -> bool:
        """Return whether one more request may be held. The limit on the number of requests applies to the requests of
        the same or higher priority. The memory limit applies to all requests.
        """
        return not any(self._lacking(request, table, classes))

    def giving_way(self, request: RoutingRequest, table: RoutingTable, classes: PriorityClasses) -> list[TrackedRequest]:
        """Return the requests of the same class that must be refused to make room for this request, if tenants take
        turns. Empty if refusing them would not make enough room.
        """
        requests, body_bytes = self._lacking(request, table, classes)
        held, size = (self._bytes_by_tenant, request.body_bytes) if body_bytes else (self._by_tenant, 1)
        if not _is_unfair(held, request, size):  # what a flood brings is refused without looking at all that is held
            return []
        givers = GivingWay((one for one in self._requests.values() if one.request.priority_class == request.priority_class), request)
        for_memory = givers.freeing(body_bytes, in_bytes)
        if for_memory is None:
            return []
        others = givers.freeing(requests - len(for_memory), in_requests)
        return [] if others is None else for_memory + others

    def _lacking(self, request: RoutingRequest, table: RoutingTable, classes: PriorityClasses) -> tuple[int, int]:
        """Return the number of requests and the number of body bytes that must be removed so that this request can be
        held.
        """
        rank, share = classes.rank(request.priority_class), classes[request.priority_class].share
        most = share * (table.holding.held_requests if table.outlook is Outlook.COMING else self._settings.held_limit)
        before = sum(count for name, count in self._by_class.items() if classes.rank(name) <= rank)
        bytes_over = self._body_bytes + request.body_bytes - share * self._settings.held_bytes
        return max(0, floor(before - most) + 1), max(0, ceil(bytes_over))

    def by_priority(self, classes: PriorityClasses) -> list[TrackedRequest]:
        """Return the held requests, highest priority first and, within a priority, longest held first."""
        return sorted(self._requests.values(), key=lambda tracked: classes.rank(tracked.request.priority_class))

    def longest_seconds(self, table: RoutingTable) -> float:
        """Return the maximum seconds for which a request of the pool is held."""
        return table.holding.hold_for_seconds if table.outlook is Outlook.COMING else self._settings.no_instances_ttl_seconds

    def add(self, tracked: TrackedRequest, now: float) -> None:
        """Hold a request; for a request that is already held, nothing changes."""
        if tracked.request.id not in self._requests:
            tracked.waiting_since = now
            self._requests[tracked.request.id] = tracked
            self._by_class[tracked.request.priority_class] += 1
            key = tracked.request.priority_class, tracked.request.tenant
            self._by_tenant[key] += 1
            self._bytes_by_tenant[key] += tracked.request.body_bytes
            self._body_bytes += tracked.request.body_bytes
            self._prompt_tokens += tracked.request.prompt_tokens

    def remove(self, tracked: TrackedRequest, now: float) -> None:
        """Stop holding a request; a request that is not held is ignored."""
        if self._requests.pop(tracked.request.id, None) is not None:
            tracked.held_seconds += max(0.0, now - tracked.waiting_since)
            self._by_class[tracked.request.priority_class] -= 1
            key = tracked.request.priority_class, tracked.request.tenant
            self._by_tenant[key] -= 1
            self._bytes_by_tenant[key] -= tracked.request.body_bytes
            if not self._by_tenant[key]:
                del self._by_tenant[key], self._bytes_by_tenant[key]
            self._body_bytes -= tracked.request.body_bytes
            self._prompt_tokens -= tracked.request.prompt_tokens

    def overdue(self, table: RoutingTable, now: float) -> Iterator[TrackedRequest]:
        """Yield the requests held for longer than allowed."""
        longest = self.longest_seconds(table)
        for tracked in self:
            if now - tracked.waiting_since < longest:
                return
            yield tracked

    def demand(self) -> HeldDemand:
        """Return the demand that the held requests put on the pool: their number, prompt tokens and body bytes."""
        return HeldDemand(requests=len(self._requests), prompt_tokens=self._prompt_tokens, body_bytes=self._body_bytes)


def _is_unfair(held: Counter[tuple[str, str]], request: RoutingRequest, size: int) -> bool:
    """Return whether some tenant of the request's class holds more than the request's own tenant would hold with this
    request. `size` is the amount that the request adds, in the unit of `held`.
    """
    own = held[request.priority_class, request.tenant] + size
    return any(has > own for (name, _), has in held.items() if name == request.priority_class)
