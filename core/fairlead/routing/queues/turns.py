"""Turns of tenants: records the share of an instance's time that each tenant has used, and decides from it which tenant
is served next.

The rule is fair queueing by served work, as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996, §3) and,
for engines, the virtual token counter (Sheng et al., OSDI 2024, §3.2). Work is the predicted time of prefills plus the
expected share of answers in the engine's decode steps, in microseconds; cached tokens cost almost nothing. A tenant's
*served* work grows with each of its requests that is sent. The *virtual time* of an instance is the least served work
among the tenants that wait. While a tenant has no waiting requests, the virtual time moves ahead of the tenant's served
work. This lead is its credit. When the tenant waits again, it keeps its old served work, but its credit is limited to a
maximum. So a tenant with few requests is served before tenants with many, even if its requests arrive one by one, and a
tenant that was absent for hours is not preferred for long.

The danger is the memory for tenants that no longer wait. Only tenants whose credit is below the maximum are remembered,
at most `MOST_AWAY` of them.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.routing.contracts.requests import Overtaken
from fairlead.routing.contracts.vectors import FloatVector, IntVector
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.backlogs import Backlogs, Tenant
from fairlead.routing.queues.plans import water_level

CREDIT_TARGETS = 4.0
"""Maximum credit of a tenant without waiting requests, as a multiple of the TTFT target: the credit is an amount of
work, measured in time. docs/priorities.md says how the value was chosen.
"""
MOST_AWAY = 1024
"""Maximum number of tenants without a waiting request that are remembered per instance. Beyond it, the tenant that
stopped waiting first is forgotten.
"""


class Tenants:
    """The tenants of a pool. For each tenant, the class counts the requests that wait at any instance. It also keeps
    the turns of the tenants at each instance, even after the instance's queue is dropped.
    """

    def __init__(self, credit_seconds: float = 0.0) -> None:
        self._credit = int(1e6 * credit_seconds)
        self._requests: dict[str, int] = {}
        self._ranks: dict[int, RankTurns] = {}

    def turns(self, instance: str, rank: int = 0) -> "Turns":
        """Return the turns of the tenants at this instance, among the requests with the priority of this rank."""
        return self.of_rank(rank).turns(instance)

    def of_rank(self, rank: int) -> "RankTurns":
        """Return the turns of the tenants at all instances, among the requests with the priority of this rank."""
        found = self._ranks.get(rank)
        if found is None:
            found = self._ranks[rank] = RankTurns(self, self._credit)
        return found

    def forget(self, instance: str) -> None:
        """Forget the turns at an instance that no longer exists and for which no request waits."""
        for found in self._ranks.values():
            found.forget(instance)

    def count(self, tenant: str, change: int) -> None:
        """Add `change` to the number of waiting requests of this tenant."""
        left = self._requests.get(tenant, 0) + change
        if left:
            self._requests[tenant] = left
        else:
            del self._requests[tenant]

    def are_others(self, tenant: str) -> bool:
        """Return whether requests of other tenants wait."""
        return len(self._requests) > (tenant in self._requests)


class RankTurns:
    """The tenants' turns among the requests of one priority, at all instances."""

    def __init__(self, everywhere: Tenants, credit: int) -> None:
        self._everywhere = everywhere
        self._credit = credit
        self._backlogs = Backlogs()
        self._by_instance: dict[str, Turns] = {}
        self._by_row: list[Turns] = []
        """The turns of each row of the backlogs. In unused rows no tenant waits."""
        self._asked: Sequence[str] = ()
        """The instances of the last query. Their rows are cached."""
        self._asked_rows: IntVector = np.zeros(0, dtype=np.int64)

    def turns(self, instance: str) -> "Turns":
        """Return the turns of the tenants that wait for the instance."""
        found = self._by_instance.get(instance)
        if found is None:
            found = self._by_instance[instance] = Turns(self._everywhere, self._backlogs, self._credit)
            self._by_row[found.row : found.row + 1] = [found]
            self._asked = ()
        return found

    def forget(self, instance: str) -> None:
        """Forget the turns at an instance that no longer exists and for which no request waits."""
        found = self._by_instance.pop(instance, None)
        if found is not None:
            self._backlogs.give_back(found.row)
            self._asked = ()

    def able_beyond(self, tenant: str, instances: Sequence[str]) -> FloatVector:
        """Return, for each instance, the microseconds of the waiting work that can be in time and that would be sent
        after a new request of this tenant. The rows of `instances` are cached as long as the same object is passed.
        """
        able, everything = self._points(tenant)
        found = self._backlogs.able_beyond(np.array(able))
        if able != everything:  # where nothing of its own is late, all cannot be less
            np.minimum(found, self._backlogs.all_beyond(np.array(everything)), out=found)
        return found[self._rows(instances)]

    def all_beyond(self, tenant: str, instances: Sequence[str]) -> FloatVector:
        """Return, for each instance, the microseconds of all waiting work, late or not, that would be sent after a new
        request of this tenant.
        """
        _, everything = self._points(tenant)
        return self._backlogs.all_beyond(np.array(everything))[self._rows(instances)]

    def _rows(self, instances: Sequence[str]) -> IntVector:
        if instances is not self._asked:
            nowhere, known = len(self._by_row), self._by_instance
            rows = [known[instance].row if instance in known else nowhere for instance in instances]
            self._asked, self._asked_rows = instances, np.array(rows, dtype=np.int64)
        return self._asked_rows

    def _points(self, tenant: str) -> tuple[list[float], list[float]]:
        """Return the tenant's `Turns.points` for each row. The last entry is for a spare row in which no tenant ever
        waits.
        """
        able: list[float] = []
        everything: list[float] = []
        for turns in self._by_row:  # written out, as each request comes through here for each instance
            own = turns.waiting.get(tenant)
            if own is not None:
                able.append(own.able_end)
                everything.append(own.end)
            else:
                at = turns.away.get(tenant)
                if at is None or at < turns.least_standing:
                    at = turns.least_standing
                able.append(at)
                everything.append(at)
        able.append(0.0)
        everything.append(0.0)
        return able, everything


class Turns:
    """The turns of the tenants at one instance. They are kept when a queue of the instance is dropped and another one
    is made. Every operation is O(1) except comparisons of tenants, which are linear in the number of waiting tenants.
    """

    def __init__(self, everywhere: Tenants, backlogs: Backlogs, credit: int = 0) -> None:
        self._everywhere = everywhere
        self._backlogs = backlogs
        self.row = backlogs.take_row()
        """The queue's row in the backlogs."""
        self._credit = credit
        self.waiting: dict[str, Tenant] = {}
        """The waiting tenants. Read only."""
        self.away: dict[str, int] = {}
        """Served work of the tenants that have no waiting requests and whose served work exceeds `least_standing`,
        ordered by the time at which they stopped waiting. Read only.
        """
        self.least_standing = 0
        """The least served work with which a tenant may begin to wait: the virtual time minus the maximum credit."""
        self._virtual_time: int | None = None
        """The virtual time in microseconds; None before the first request. The first tenant gets no credit, because no
        other tenant has been served before it.
        """

    @property
    def are_shared(self) -> bool:
        """Whether several tenants wait."""
        return len(self.waiting) > 1

    def waits(self, tracked: TrackedRequest) -> None:
        """Count a request that begins to wait."""
        name = tracked.request.tenant
        tenant = self.waiting.get(name)
        if tenant is None:
            tenant = self.waiting[name] = Tenant(self._standing(name))
            self.away.pop(name, None)
            self._pass_to(self._now)
            self._backlogs.add(self.row, tenant)
        tenant.able.count(tracked, 1)
        self._everywhere.count(name, 1)
        self._backlogs.change(self.row, tenant)

    def found_late(self, tracked: TrackedRequest) -> None:
        """Record that a waiting request is late."""
        tenant = self.waiting[tracked.request.tenant]
        tenant.able.count(tracked, -1)
        tenant.late.count(tracked, 1)
        self._backlogs.change(self.row, tenant)

    def leaves(self, tracked: TrackedRequest, *, late: bool) -> None:
        """Record that a request has left the queue without being sent."""
        name = tracked.request.tenant
        tenant = self.waiting[name]
        (tenant.late if late else tenant.able).count(tracked, -1)
        self._everywhere.count(name, -1)
        if tenant.waits:
            self._backlogs.change(self.row, tenant)
        else:
            del self.waiting[name]
            self._backlogs.remove(self.row, tenant)
            if tenant.served > self.least_standing:
                self.away[name] = tenant.served
                if len(self.away) > MOST_AWAY:
                    del self.away[next(iter(self.away))]

    def sent(self, tracked: TrackedRequest, *, late: bool = False) -> None:
        """Record that a request is sent: its tenant's served work grows by the request's work."""
        tenant = self.waiting[tracked.request.tenant]
        able = [other.served for other in self.waiting.values() if other.able.requests] if self.are_shared else None
        self._pass_to(max(self._now, min(able) if able else tenant.served))
        tenant.served += tracked.work_microseconds
        self.leaves(tracked, late=late)

    def least_served(self) -> list[str]:
        """Return the waiting tenants with the least served work."""
        return _least(self.waiting.items())

    def least_served_of_late(self) -> list[str]:
        """Return the tenants with the least served work among the tenants that have late requests."""
        return _least((name, tenant) for name, tenant in self.waiting.items() if tenant.late.requests)

    def is_behind(self, tracked: TrackedRequest) -> bool:
        """Return whether the served work of the request's tenant would not exceed the virtual time even with this
        request.
        """
        return self.waiting[tracked.request.tenant].served + tracked.work_microseconds <= self._now

    def is_owed(self, tracked: TrackedRequest) -> bool:
        """Return whether this late request is to be sent next. Let x be the served work of its tenant, plus the work of
        the request, plus the credit. The request is sent if every other tenant with requests that can be in time has a
        served work of at least x. False if there is no such tenant.
        """
        tenant = self.waiting[tracked.request.tenant]
        others = [other.served for other in self.waiting.values() if other is not tenant and other.able.requests]
        return bool(others) and tenant.served + tracked.work_microseconds + self._credit <= min(others)

    def budgets(self, part: float) -> dict[str, float]:
        """Return the work in microseconds that each tenant may send if there is room for the share `part` of all work
        that can be in time. The room is given to the least served tenants first, until it is used up (water filling). A
        tenant's budget can exceed its waiting work.
        """
        tenants = sorted((tenant.served, tenant.able.work, name) for name, tenant in self.waiting.items() if tenant.able.requests)
        level = water_level([(served, work) for served, work, _ in tenants], part * sum(work for _, work, _ in tenants))
        return {name: max(0.0, level - served) for served, _, name in tenants}

    def served(self, tenant: str) -> int:
        """Return the served work of a waiting tenant, in microseconds."""
        return self.waiting[tenant].served

    def overtaken_by(self, name: str) -> Overtaken:
        """Return the waiting work of other tenants that would be sent after a new request of this tenant. It is the
        work that another tenant still has when its served work has reached the served work of this tenant at that time.
        """
        able_point, point = self.points(name)
        everything = int(self._backlogs.all_beyond(np.array([point]), self.row)[0])
        able = min(everything, int(self._backlogs.able_beyond(np.array([able_point]), self.row)[0]))
        return Overtaken(self._backlogs.requests_beyond(point, self.row), everything, everything - able)

    def points(self, name: str) -> tuple[float, float]:
        """Return the served work that the tenant will have when a new request of this tenant is sent. The first value
        applies if only the tenant's requests that can be in time are sent before the new request. The second value
        applies if all of the tenant's waiting requests are sent before it.
        """
        own = self.waiting.get(name)
        if own is None:
            at = self._standing(name)
            return at, at
        return own.able_end, own.end

    @property
    def _now(self) -> int:
        return 0 if self._virtual_time is None else self._virtual_time

    def _pass_to(self, virtual_time: int) -> None:
        self._virtual_time = virtual_time
        self.least_standing = virtual_time - self._credit

    def _standing(self, name: str) -> int:
        """Return the served work with which a tenant begins to wait."""
        return max(self.least_standing, self.away.get(name, self.least_standing))


def _least(tenants: Iterable[tuple[str, Tenant]]) -> list[str]:
    least: int | None = None
    names: list[str] = []
    for name, tenant in tenants:
        if least is None or tenant.served < least:
            least = tenant.served
            names = [name]
        elif tenant.served == least:
            names.append(name)
    return names
