"""Chooses among the instances of a pool: finds the instances that serve a model name or adapter, and the least loaded
of them for requests that bypass the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fairlead.instances import Role
from fairlead.routing.contracts.schedulers import Dispatch, Scheduler
from fairlead.tables import RoutingTable
from fairlead.targets import instance_of
from fairlead_router.pools.served_names import ServedNames
from fairlead_router.pools.side_circuits import SideCircuits

OPINIONS_PER_SECOND = 10.0
OPINIONS_AT_ONCE = 50.0
"""Maximum number of second opinions in a burst in a pool. A second opinion sends a refused request to another instance.
Refusals because of a model's name do not count.
"""


class OpinionBudget:
    """A token bucket for second opinions. A second opinion sends a request that an instance refused to another
    instance; if this instance accepts the request, the second opinion is returned to the bucket.
    """

    __slots__ = ("_at", "left")

    def __init__(self) -> None:
        self.left = OPINIONS_AT_ONCE
        """Number of second opinions in the bucket now."""
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Take one second opinion, and return whether one was left. `now` is in seconds of any clock."""
        self.left = min(OPINIONS_AT_ONCE, self.left + OPINIONS_PER_SECOND * max(0.0, now - self._at))
        self._at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    def give_back(self) -> None:
        """Return a second opinion to the bucket, because the other instance accepted the request."""
        self.left = min(OPINIONS_AT_ONCE, self.left + 1.0)


class InstanceChoice:
    """Chooses among the instances of one pool. `direct`: by instance, the number of requests in flight that bypassed
    the scheduler.
    """

    __slots__ = (
        "_accepting", "_addresses", "_declared", "_direct", "_divides", "_scheduler", "_writing", "circuits", "handovers", "names",
        "opinions",
    )  # fmt: skip

    def __init__(self, scheduler: Scheduler, direct: Mapping[str, int]) -> None:
        self._scheduler = scheduler
        self._direct = direct
        self._addresses: dict[str, str] = {}
        self.names = ServedNames()
        self.handovers = scheduler.handovers
        self.opinions = OpinionBudget()
        self.circuits = SideCircuits()
        """The circuit breakers of instances for requests that bypass the scheduler."""

    def take(self, table: RoutingTable) -> None:
        """Use a newer table. If an instance has a new engine, forget everything about its old engine."""
        addresses = {entry.id: entry.address for entry in table.instances}
        same = [instance for instance, address in addresses.items() if self._addresses.get(instance) == address]
        self._addresses = addresses
        self._declared = (table.model, *table.adapters)
        self._accepting = frozenset(entry.id for entry in table.instances if entry.accepting)
        self._writing = frozenset(entry.id for entry in table.instances if entry.accepting and entry.role is not Role.PREFILL)
        self._divides = any(entry.role is Role.PREFILL for entry in table.instances)
        self.names.keep_only(same, self._declared, addresses.keys())
        self.circuits.keep_only(same)

    # ── names ──

    def listed(self, instance: str, models: Collection[str], asked_at: float, aliases: Collection[str] = ()) -> None:
        """Record the models that the instance listed in response to a request at `asked_at` (Unix seconds). `aliases`:
        further names under which engines serve the pool's model.
        """
        self.names.listed(instance, models, (*self._declared, *aliases), asked_at)

    def serving(self, name: str, among: tuple[str, ...] | None, now: float) -> tuple[str, ...] | None:
        """Return the instances, out of `among` (None = all), that may get a request for this model name.

        Return `among` itself if no instance is known to lack the name, or if all instances that accept requests lack
        it. Return it too if the pool divides prefill and decode, because its requests are checked when they are sent.
        """
        lacking = self.names.lacking(name, now) if self.names.missing else ()
        if not lacking or self._divides:
            return among
        able = tuple(one for one in (sorted(self._accepting) if among is None else among) if one not in lacking)
        return able if self._accepting.intersection(able) else among

    def lacks(self, dispatch: Dispatch, name: str, now: float) -> str | None:
        """Return the dispatch's target whose instance is known by now to lack the model name. None if no target lacks
        the name, or if all accepting instances lack it.
        """
        lacking = self.names.lacking(name, now)
        found = next((one for one in (dispatch.instance, dispatch.decode) if one is not None and instance_of(one) in lacking), None)
        return None if self._accepting.issubset(lacking) else found

    def prefills_in_vain(self, dispatch: Dispatch, now: float) -> str | None:
        """Return the dispatch's prefill target if its prefill would be useless, because its engine does not name its KV
        blocks to other instances. None if the prefill is useful, or if the dispatch has no separate prefill.
        """
        instance = instance_of(dispatch.instance)
        if dispatch.decode is None or self.handovers.rests(instance, now):
            return None if dispatch.decode is None else dispatch.instance
        self.handovers.asked(instance, now)
        return None

    def only_doubted(self, name: str, now: float) -> Collection[str]:
        """Return the accepting instances that are assumed to lack the name, although their lists have it or could not
        be read. A client gets a 404 only after these instances were asked.
        """
        return self._accepting.intersection(self.names.only_doubted(name, now))

    # ── loads ──

    def least_loaded(self, excluded: Collection[str], now: float, name: str = "") -> str | None:
        """Return the first instance of `by_load`; None if there is none."""
        return next(iter(self.by_load(excluded, now, name)), None)

    def by_load(self, excluded: Collection[str], now: float, name: str = "", among: Collection[str] | None = None) -> list[str]:
        """Return the accepting instances, out of `among` (None = all) and without `excluded`, for a request that
        bypasses the scheduler. Instances with fewer requests in flight come first; instances whose circuit is open come
        last.

        Instances that lack the model or adapter `name` would respond with 404. They are left out, unless all instances
        lack it. Prefill instances, which generate no responses, are left out too.
        """
        able = self._writing if among is None else self._writing.intersection(among)
        if self.names.missing and not able.issubset(lacking := self.names.lacking(name, now)):
            able = able.difference(lacking)
        broken = {*self._scheduler.broken(now), *self.circuits.broken(now)}
        rows = [
            (row.instance in broken, row.in_flight + row.waiting + self._direct.get(row.instance, 0), row.instance)
            for row in self._scheduler.in_flight()
            if row.instance in able and row.instance not in excluded
        ]
        return [row[-1] for row in sorted(rows)]
