"""Held requests: accepted, and without an instance until one accepts requests. How many, how long, in which order."""

from collections import Counter
from collections.abc import Iterator

from fairlead.priority_classes import PriorityClasses
from fairlead.reports.loads import HeldDemand
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import Outlook, RoutingTable


class HeldRequests:
    """The held requests of one pool, the one that is held longest first."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._requests: dict[str, TrackedRequest] = {}
        self._by_class: Counter[str] = Counter()
        self._by_tenant: Counter[tuple[str, str]] = Counter()
        """Of each priority class and tenant, how many."""
        self._body_bytes = 0
        self._prompt_tokens = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[TrackedRequest]:
        return iter(tuple(self._requests.values()))

    def has_room(self, request: RoutingRequest, table: RoutingTable, classes: PriorityClasses) -> bool:
        """Whether one more may be held, beside those of its priority and higher ones; memory is for all together."""
        rank, share = classes.rank(request.priority_class), classes[request.priority_class].share
        most = share * (table.holding.held_requests if table.outlook is Outlook.COMING else self._settings.held_limit)
        before = sum(count for name, count in self._by_class.items() if classes.rank(name) <= rank)
        return before < most and self._body_bytes + request.body_bytes <= share * self._settings.held_bytes

    def gives_way(self, request: RoutingRequest) -> TrackedRequest | None:
        """Where tenants share fairly, who leaves for a request that there is no room for: of its class, the newest of
        the tenant that has the most held, if that is more than the request's tenant would have.
        """
        own = request.priority_class, request.tenant
        of_class = [(count, key) for key, count in self._by_tenant.items() if key[0] == request.priority_class]
        most, key = max(of_class, default=(0, own))
        if most <= self._by_tenant[own] + 1:
            return None
        held = reversed(self._requests.values())
        return next(tracked for tracked in held if (tracked.request.priority_class, tracked.request.tenant) == key)

    def by_priority(self, classes: PriorityClasses) -> list[TrackedRequest]:
        """The highest priority first, of each the one that is held longest first."""
        return sorted(self._requests.values(), key=lambda tracked: classes.rank(tracked.request.priority_class))

    def longest_seconds(self, table: RoutingTable) -> float:
        """For how long a request is held."""
        return table.holding.hold_for_seconds if table.outlook is Outlook.COMING else self._settings.no_instances_ttl_seconds

    def add(self, tracked: TrackedRequest, now: float) -> None:
        """Begin to hold a request; nothing changes for one that is held."""
        if tracked.request.id not in self._requests:
            tracked.waiting_since = now
            self._requests[tracked.request.id] = tracked
            self._by_class[tracked.request.priority_class] += 1
            self._by_tenant[tracked.request.priority_class, tracked.request.tenant] += 1
            self._body_bytes += tracked.request.body_bytes
            self._prompt_tokens += tracked.request.prompt_tokens

    def remove(self, tracked: TrackedRequest, now: float) -> None:
        """Hold a request no longer; nothing changes for one that is not held."""
        if self._requests.pop(tracked.request.id, None) is not None:
            tracked.held_seconds += max(0.0, now - tracked.waiting_since)
            self._by_class[tracked.request.priority_class] -= 1
            key = tracked.request.priority_class, tracked.request.tenant
            self._by_tenant[key] -= 1
            if not self._by_tenant[key]:
                del self._by_tenant[key]
            self._body_bytes -= tracked.request.body_bytes
            self._prompt_tokens -= tracked.request.prompt_tokens

    def overdue(self, table: RoutingTable, now: float) -> Iterator[TrackedRequest]:
        """Those held for longer than allowed."""
        longest = self.longest_seconds(table)
        for tracked in self:
            if now - tracked.waiting_since < longest:
                return
            yield tracked

    def demand(self) -> HeldDemand:
        """What is held, as demand on the pool."""
        return HeldDemand(requests=len(self._requests), prompt_tokens=self._prompt_tokens)
