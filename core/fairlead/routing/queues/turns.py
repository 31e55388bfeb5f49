"""Turns: how much of an instance each tenant has had, and so whose turn it is.

Fair queueing by served work, as start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996, §3) and, for engines, the
virtual token counter (Sheng et al., OSDI 2024, §3.2) do it. Work is the predicted time of prefills and the time that
answers are expected to take of an engine's steps, in microseconds: cached tokens cost next to nothing. A tenant's
*served* work grows by what is sent of it. The *virtual time* of an instance is the served work of the tenant that has
had the least of those that wait. Who waits for nothing saves up to a `credit`: when it waits again, it stands where it
stood, or that much before the virtual time, if that is more. So a tenant that sends little is behind those that send
much also when its requests come one by one, and one that was away for hours is not behind for long.

The danger is memory of tenants that left: those that are ahead of the virtual time are remembered, up to `MOST_AWAY`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fairlead.routing.contracts.requests import Overtaken
from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.queues.queueing import NOBODY

CREDIT_TARGETS = 4.0
"""What a tenant saves up, in TTFT targets of work; see docs/priorities.md for what it was measured by."""
MOST_AWAY = 1024
"""Tenants without a waiting request that are remembered at an instance; beyond, the one that left first is not."""


class Tenants:
    """The tenants of a pool: how many requests of each wait anywhere, and their turns at each instance, which outlive
    its queue.
    """

    def __init__(self, credit_seconds: float = 0.0) -> None:
        self._credit = int(1e6 * credit_seconds)
        self._requests: dict[str, int] = {}
        self._turns: dict[str, dict[int, Turns]] = {}
        """Instance → rank of a priority → turns."""

    def turns(self, instance: str, rank: int = 0) -> "Turns":
        """The turns of those that wait for an instance with a priority of this rank."""
        return self._turns.setdefault(instance, {}).setdefault(rank, Turns(self, self._credit))

    def forget(self, instance: str) -> None:
        """The instance is gone, and nothing waits for it."""
        self._turns.pop(instance, None)

    def count(self, tenant: str, change: int) -> None:
        """So many more of this tenant wait."""
        left = self._requests.get(tenant, 0) + change
        if left:
            self._requests[tenant] = left
        else:
            del self._requests[tenant]

    def are_others(self, tenant: str) -> bool:
        """Whether something of another tenant waits."""
        return len(self._requests) > (tenant in self._requests)


@dataclass(slots=True)
class Waiting:
    """Some requests of a tenant: how many, the predicted time of their prefills, and the work that they are."""

    requests: int = 0
    microseconds: int = 0
    work: int = 0

    def count(self, tracked: TrackedRequest, times: int) -> None:
        """One more, or with -1 one less."""
        self.requests += times
        self.microseconds += times * tracked.prefill_microseconds
        self.work += times * tracked.work_microseconds


class Tenant:
    """What a queue knows of a tenant: its served work, and what of it waits. `late` are those that the discipline found
    unable to meet their target.
    """

    __slots__ = ("able", "late", "served")

    def __init__(self, served: int) -> None:
        self.served = served
        self.able = Waiting()
        self.late = Waiting()

    @property
    def waits(self) -> bool:
        """Whether something does."""
        return self.able.requests + self.late.requests > 0


class Turns:
    """The tenants of one queue after the other of an instance. Everything is O(1) but what compares tenants, which is
    linear in those that wait.
    """

    def __init__(self, everywhere: Tenants, credit: int = 0) -> None:
        self._everywhere = everywhere
        self._credit = credit
        self._waiting: dict[str, Tenant] = {}
        self._away: dict[str, int] = {}
        """Served work of those that wait for nothing and are ahead; the one that left first comes first."""
        self._virtual_time: int | None = None
        """None before anybody came: the first has no credit, as there is nobody to be behind."""
        self._behind: _Behind | None = None

    @property
    def are_shared(self) -> bool:
        """Whether several tenants wait."""
        return len(self._waiting) > 1

    def waits(self, tracked: TrackedRequest) -> None:
        """One more request waits."""
        name = tracked.request.tenant
        tenant = self._waiting.get(name)
        if tenant is None:
            tenant = self._waiting[name] = Tenant(self._standing(name))
            self._away.pop(name, None)
            self._virtual_time = self._now
        tenant.able.count(tracked, 1)
        self._everywhere.count(name, 1)
        self._behind = None

    def found_late(self, tracked: TrackedRequest) -> None:
        """A waiting request can no longer be in time."""
        tenant = self._waiting[tracked.request.tenant]
        tenant.able.count(tracked, -1)
        tenant.late.count(tracked, 1)
        self._behind = None

    def leaves(self, tracked: TrackedRequest, *, late: bool) -> None:
        """A request waits no more, and was not sent."""
        name = tracked.request.tenant
        tenant = self._waiting[name]
        (tenant.late if late else tenant.able).count(tracked, -1)
        self._everywhere.count(name, -1)
        self._behind = None
        if not tenant.waits:
            del self._waiting[name]
            if tenant.served > self._least_standing():
                self._away[name] = tenant.served
                if len(self._away) > MOST_AWAY:
                    del self._away[next(iter(self._away))]

    def sent(self, tracked: TrackedRequest, *, late: bool = False) -> None:
        """A request is sent: its tenant has had that much more."""
        tenant = self._waiting[tracked.request.tenant]
        able = [other.served for other in self._waiting.values() if other.able.requests] if self.are_shared else None
        self._virtual_time = max(self._now, min(able) if able else tenant.served)
        tenant.served += tracked.work_microseconds
        self.leaves(tracked, late=late)

    def least_served(self) -> list[str]:
        """Of the waiting tenants, those that have had the least."""
        return _least(self._waiting.items())

    def least_served_of_late(self) -> list[str]:
        """The same of those that have late requests."""
        return _least((name, tenant) for name, tenant in self._waiting.items() if tenant.late.requests)

    def is_behind(self, tracked: TrackedRequest) -> bool:
        """Whether its tenant will have had no more than the least served of late, also with this request."""
        return self._waiting[tracked.request.tenant].served + tracked.work_microseconds <= self._now

    def is_owed(self, tracked: TrackedRequest) -> bool:
        """Whether all that wait and can be in time have had as much as its tenant would have had with this request, and
        its credit.
        """
        tenant = self._waiting[tracked.request.tenant]
        others = [other.served for other in self._waiting.values() if other is not tenant and other.able.requests]
        return bool(others) and tenant.served + tracked.work_microseconds + self._credit <= min(others)

    def budgets(self, part: float) -> dict[str, float]:
        """The work that each tenant may have sent when there is room for this part of all that can be in time: as far
        as brings all equally far, and none of it lies idle (water filling). It can be more than what a tenant has.
        """
        tenants = sorted((tenant.served, tenant.able.work, name) for name, tenant in self._waiting.items() if tenant.able.requests)
        level = _level([(served, work) for served, work, _ in tenants], part * sum(work for _, work, _ in tenants))
        return {name: max(0.0, level - served) for served, _, name in tenants}

    def served(self, tenant: str) -> int:
        """Served work of a waiting tenant, microseconds."""
        return self._waiting[tenant].served

    def overtaken_by(self, name: str) -> Overtaken:
        """What waits of others and would be sent after a request of this tenant if that came now: as far as they would
        then have had more than it.
        """
        own = self._waiting.get(name)
        if not self._waiting or (own is not None and len(self._waiting) == 1):
            return NOBODY
        if self._behind is None:
            self._behind = _Behind(self._waiting.values())
        at = self._standing(name) if own is None else own.served
        return self._behind.beyond(at, own)

    @property
    def _now(self) -> int:
        return 0 if self._virtual_time is None else self._virtual_time

    def _least_standing(self) -> int:
        return self._now - self._credit

    def _standing(self, name: str) -> int:
        """The served work with which a tenant begins to wait."""
        if self._virtual_time is None:
            return 0
        least = self._least_standing()
        return max(least, self._away.get(name, least))


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


def _level(tenants: Sequence[tuple[int, int]], work: float) -> float:
    """Up to where all are served when so much work is given to the least served first; `tenants` in order of served
    work, each with what it has.
    """
    steps = sorted([(served, 1) for served, _ in tenants] + [(served + has, -1) for served, has in tenants])
    at, rate = float(steps[0][0]), 0
    for position, change in steps:
        needed = (position - at) * rate
        if rate and needed >= work:
            return at + work / rate
        work -= needed
        at, rate = float(position), rate + change
    return at


class _Behind:
    """Work that waits, by how much its tenant will have had when it is sent: how much of it lies beyond a point.

    A tenant's work is taken as spread evenly from what it has had to what it will have had with all of it.
    """

    __slots__ = ("_able", "_all", "_requests")

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        known = list(tenants)
        able = [(one.served, one.able.work, one.able.microseconds) for one in known]
        both = [(one.served, one.able.work + one.late.work, one) for one in known]
        self._able = _Spread(able)
        self._all = _Spread((served, work, one.able.microseconds + one.late.microseconds) for served, work, one in both)
        self._requests = _Spread((served, work, one.able.requests + one.late.requests) for served, work, one in both)

    def beyond(self, at: int, own: Tenant | None) -> Overtaken:
        """What others have beyond where a request would stand whose tenant has had `at` and waits with `own`, behind
        all of that.
        """
        ahead = 0 if own is None else own.able.work
        behind = ahead if own is None else ahead + own.late.work
        everything = int(self._all.beyond(at + behind))
        able = min(everything, int(self._able.beyond(at + ahead)))
        return Overtaken(int(self._requests.beyond(at + behind)), everything, everything - able)


class _Spread:
    """Weights spread evenly over stretches (from, length): how much of them lies beyond a point. O(log n) to ask."""

    __slots__ = ("_at", "_beyond", "_slopes")

    def __init__(self, stretches: Iterable[tuple[int, int, int]]) -> None:
        changes: list[tuple[int, float]] = []
        for begin, length, weight in stretches:
            if length:
                changes.append((begin, weight / length))
                changes.append((begin + length, -weight / length))
        changes.sort()
        self._at = [at for at, _ in changes]
        self._slopes = list(accumulate(slope for _, slope in changes))
        self._beyond = [0.0] * len(changes)
        for index in range(len(changes) - 2, -1, -1):
            self._beyond[index] = self._beyond[index + 1] + self._slopes[index] * (self._at[index + 1] - self._at[index])

    def beyond(self, at: int) -> float:
        """The weight that lies beyond `at`."""
        index = bisect_right(self._at, at) - 1
        if index < 0:
            return self._beyond[0] if self._beyond else 0.0
        return self._beyond[index] - self._slopes[index] * (at - self._at[index])
