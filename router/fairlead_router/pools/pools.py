"""All pools of this router: finds the pool for a request, and applies routing tables and bindings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from fairlead.errors import FairleadError
from fairlead.reports.batches import Acknowledgement
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.engines import EngineMemory
from fairlead.reports.loads import InstanceInFlight
from fairlead.reports.shares import OthersShare, PoolShare
from fairlead.routing.contracts.schedulers import PrefixMemory, Scheduler
from fairlead.tables import Outlook, PoolKey, RoutingTable
from fairlead_client.lines import KeptSession
from fairlead_process.clock import OtherClock
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.protocols.refusals import BadRequest


class Opens(Protocol):
    """A function that returns whether a client may use a pool or, with a name, this model or adapter of the pool."""

    def __call__(self, pool: Pool, name: str | None = None, /) -> bool: ...


def every(_: Pool, __: str | None = None, /) -> bool:
    """Return True, because the client may use every pool."""
    return True


SchedulerFactory = Callable[[RoutingTable], Scheduler]


def _dated(binding: Binding, ahead_seconds: float) -> Binding:
    """Return the control API's binding with its times converted to this router's clock. `ahead_seconds`: how far the
    API's clock is ahead of this router's clock.
    """
    migrated_at = None if binding.migrated_at is None else binding.migrated_at - ahead_seconds
    return replace(binding, bound_at=binding.bound_at - ahead_seconds, migrated_at=migrated_at)


TELL_SECONDS = 10.0
"""Minimum number of seconds between two log entries about failures of a pool's scheduler. Without the minimum there
could be fifty entries a second, one for each tick.
"""

logger = logging.getLogger(__name__)


class Pools:
    """All pools of this router, found by `namespace/name` or by model.

    `apply` adds a pool or replaces its routing table, `delete` removes a pool. `recorded_share`: the share (0-1) of
    each pool's sessions that are recorded for simulations.
    """

    def __init__(
        self, factory: SchedulerFactory, metrics: RouterMetrics, clock: Callable[[], float], *, recorded_share: float = 0.0
    ) -> None:
        self._recorded_share = recorded_share
        self._factory = factory
        self._metrics = metrics
        self._clock = clock
        self._by_key: dict[str, Pool] = {}
        self._by_model: dict[str, list[Pool]] = {}
        self._retiring: list[Pool] = []
        self._tells_at: dict[str, float] = {}
        """By pool: the time from which a failure of its scheduler may be logged again."""
        self.api_clock = OtherClock()
        """The control API's clock, estimated from its messages to this router."""
        self._routers = 1
        self.routers_told_at: float | None = None
        """The time at which the control API last reported the number of live routers. None while that number is
        assumed.
        """
        self._kept_sessions: dict[str, dict[str, float]] = {}
        """By pool: the sessions whose routing decisions are all kept, each with the time until which they are kept."""

    def __len__(self) -> int:
        return len(self._by_key)

    def now(self) -> float:
        """Return the time of the clock that all pools use, in Unix seconds."""
        return self._clock()

    def api_now(self) -> float:
        """Return the router's estimate of the current time of the control API's clock, in Unix seconds."""
        return self._clock() + self.api_clock.ahead_seconds

    def all(self) -> tuple[Pool, ...]:
        """Return all current pools, sorted by key."""
        return tuple(self._by_key[key] for key in sorted(self._by_key))

    def living(self) -> Iterable[Pool]:
        """Return the current pools, and the deleted pools that still have requests or records that were not taken."""
        return (*self._by_key.values(), *self._retiring)

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        """Return the requests in flight for the report, with one row for each pool and instance. If a pool was deleted
        and created again with the same name, its rows include the requests of the old pool.
        """
        rows: dict[tuple[PoolKey, str], InstanceInFlight] = {}
        for pool in self.living():
            for row in pool.account.in_flight():
                known = rows.get((row.pool, row.instance))
                if known is not None:
                    row = replace(row, in_flight=row.in_flight + known.in_flight, waiting=row.waiting + known.waiting)
                rows[row.pool, row.instance] = row
        return tuple(rows.values())

    def get(self, key: PoolKey) -> Pool | None:
        """Return the current pool with this key; None if there is none."""
        return self._by_key.get(str(key))

    def apply(self, table: RoutingTable) -> bool:
        """Use a routing table for further requests. If the table is not newer than the current table or cannot be used,
        keep the current table and return False.
        """
        name = str(table.pool)
        known = self._by_key.get(name)
        if table.opens_at is not None and self.api_clock.ahead_seconds:
            table = replace(table, opens_at=table.opens_at - self.api_clock.ahead_seconds)
        try:
            if known is not None and known.table.uid == table.uid:
                if table.version <= known.table.version:
                    return False
                known.update(table, self._clock())
            else:
                scheduler = self._factory(table)
                scheduler.know_routers(self._routers)
                scheduler.keep_sessions(self._kept_sessions.get(name, {}))
                if known is not None:
                    self._retire(known)
                self._by_key[name] = Pool(table, scheduler, self._metrics, self._clock(), recorded_share=self._recorded_share)
        except Exception as error:  # a policy may be a user's own, and its errors must not stop the other pools' tables
            self._metrics.tables_refused += 1
            expected = isinstance(error, FairleadError)
            extra = {"pool": name, "version": table.version, "error": str(error)}
            logger.warning("routing table refused", exc_info=None if expected else error, extra=extra)
            return False
        self._index()
        logger.info("routing table in force", extra={"pool": name, "version": table.version, "instances": len(table.instances)})
        return True

    def delete(self, key: PoolKey) -> bool:
        """Stop serving a pool. Its scheduler refuses queued requests, and dispatched requests finish. Return whether
        there was such a pool.
        """
        pool = self._by_key.pop(str(key), None)
        if pool is None:
            return False
        self._metrics.tables.pop(str(key), None)
        self._retire(pool)
        self._index()
        logger.info("pool deleted", extra={"pool": str(key)})
        return True

    def _retire(self, pool: Pool) -> None:
        try:
            pool.update(replace(pool.table, version=pool.table.version + 1, instances=(), outlook=Outlook.UNKNOWN), self._clock())
        except Exception:  # its policy failed: it goes all the same, once what waits in it has been served
            logger.exception("a deleted pool's scheduler failed", extra={"pool": str(pool.key)})
        self._metrics.tables.pop(str(pool.key), None)
        self._retiring.append(pool)

    def _index(self) -> None:
        self._by_model = {}
        for pool in self.all():
            for name in dict.fromkeys((pool.table.model, *pool.table.adapters)):
                self._by_model.setdefault(name, []).append(pool)

    def know_routers(self, count: int) -> None:
        """Set the number of live routers that the control API reported. The number is kept while the API cannot be
        reached.
        """
        self.routers_told_at = self._clock()
        self.assume_routers(count)

    @property
    def routers(self) -> int:
        """Number of live routers that the schedulers assume, including this router."""
        return self._routers

    def assume_routers(self, count: int) -> None:
        """Set the number of live routers. After a restart it is the number from before, until the control API reports
        one.
        """
        self._routers = self._metrics.live_routers = max(1, count)
        for pool in self.living():
            pool.scheduler.know_routers(self._routers)

    def know_others(self, share: OthersShare) -> None:
        """Pass the load that other routers reported for a pool to the pool's scheduler. Ignores an unknown pool."""
        pool = self.get(share.pool)
        if pool is not None:
            pool.scheduler.know_others(share, self._clock())

    def shares(self) -> tuple[PoolShare, ...]:
        """Return this router's load, to report it to other routers, for each pool in which the routers decide
        separately.
        """
        now = self._clock()
        found = (pool.scheduler.share(pool.apart.value, now) for pool in self._by_key.values())
        return tuple(share for share in found if share is not None)

    def keep_sessions(self, sessions: Iterable[KeptSession]) -> None:
        """Keep all routing decisions of these sessions, each session until its time. No other sessions are kept
        completely.
        """
        self._kept_sessions = {}
        for one in sessions:
            self._kept_sessions.setdefault(str(one.pool), {})[one.session] = one.until - self.api_clock.ahead_seconds
        for name, pool in self._by_key.items():
            pool.scheduler.keep_sessions(self._kept_sessions.get(name, {}))

    def recall_changes(self, changes: Sequence[BindingChange]) -> None:
        """Give the schedulers the binding changes of an earlier process of this router that the control API may not
        have received.
        """
        for name, pool in self._by_key.items():
            pool.scheduler.recall_changes([change for change in changes if str(change.pool) == name], self._clock())

    def report_missing(self, sessions: Collection[tuple[PoolKey, str]]) -> int:
        """Report each confirmed binding again whose session is missing in `sessions`, the complete list of sessions
        that the control API knows. Return the number of bindings that are reported again.
        """
        now, by_pool = self._clock(), {pool.key: set[str]() for pool in self.all()}
        for key, session in sessions:
            if key in by_pool:
                by_pool[key].add(session)
        return sum(pool.scheduler.report_missing(by_pool[pool.key], now) for pool in self.all())

    def shut_down(self) -> None:
        """Refuse all queued requests. Dispatched requests continue."""
        now = self._clock()
        for pool in self.living():
            pool.account.shut_down(now)

    def apply_bindings(self, bindings: Sequence[Binding], lost: Collection[str] = ()) -> None:
        """Pass the control API's bindings to the schedulers. `lost`: the ids of this router's changes that the control
        API did not accept because these bindings were earlier. Bindings of unknown pools are ignored.
        """
        by_pool: dict[str, list[Binding]] = {}
        ahead = self.api_clock.ahead_seconds
        for binding in bindings:
            by_pool.setdefault(str(binding.pool), []).append(_dated(binding, ahead) if ahead else binding)
        now = self._clock()
        for name, group in by_pool.items():
            pool = self._by_key.get(name)
            if pool is not None:
                pool.counters.lost_moves += pool.scheduler.apply_bindings(group, now, lost)

    def prefix_memories(self) -> list[PrefixMemory]:
        """Return the prefixes that the instances of all pools are assumed to have cached."""
        now = self._clock()
        return [memory for pool in self.all() for memory in pool.scheduler.prefix_memories(now)]

    def recall_prefixes(self, memories: Sequence[PrefixMemory]) -> int:
        """Give the schedulers the assumed cached prefixes from an earlier process. Return the number of instances to
        which they still apply.
        """
        now = self._clock()
        return sum(
            pool.scheduler.recall_prefixes([memory for memory in memories if memory.pool == pool.table.pool], now) for pool in self.all()
        )

    def engine_memories(self) -> list[EngineMemory]:
        """Return the measurements of engines, for each pool that has any."""
        now = self._clock()
        return [memory for pool in self.all() if (memory := pool.engine_memory(now)) is not None]

    def recall_engines(self, memories: Iterable[EngineMemory]) -> None:
        """Give the pools earlier measurements of their engines, by an earlier process or by other routers."""
        for memory in memories:
            pool = self.get(memory.pool)
            if pool is not None:
                pool.recall_engines(memory, self._clock())

    def resolve(self, model: str | None, wanted: str | None, opens: Opens = every) -> Pool:
        """Return the pool for a request.

        A `model` of the form `namespace/name` names the pool itself. Otherwise the pool is one that serves the model or
        adapter: the pool `wanted` by the header or, without the header, the first one by name. Without a model, the
        pool is `wanted`, or the first pool if all pools serve the same model.

        A pool that the client may not use counts as absent. Raises BadRequest 404 that names the models or pools which
        the client may use, or 400 if the model is missing.
        """
        if model is None:
            return self._of_no_model(wanted, opens)
        pool = self._by_key.get(model)
        if pool is not None and opens(pool, pool.table.model):
            return pool
        of_model = self._by_model.get(model, ())
        pools = (of_model if opens is every else [pool for pool in of_model if opens(pool, model)]) or self.serving(model, opens)
        if not pools:
            known = ", ".join(self.models(opens)) or "none yet"
            raise BadRequest(404, "model_not_found", f"model: {model[:200]!r} is not served here; known: {known}", "model")
        if wanted is None:
            return pools[0]
        for pool in pools:
            if str(pool.key) == wanted:
                return pool
        choice = ", ".join(str(pool.key) for pool in pools)
        raise BadRequest(
            404, "pool_not_found", f"x-fairlead-pool: {wanted[:200]!r} does not serve {model!r}; use one of {choice}", "x-fairlead-pool"
        )

    def _of_no_model(self, wanted: str | None, opens: Opens) -> Pool:
        pools = [pool for pool in self.all() if opens(pool, pool.table.model) and wanted in (None, str(pool.key))]
        if len({pool.table.model for pool in pools}) == 1:
            return pools[0]
        known = ", ".join(self.models(opens)) or "none yet"
        raise BadRequest(400, "missing_field", f"model: is missing; name one of: {known}", "model")

    def serves(self, model: str | None) -> bool:
        """Return whether this is the name of a pool, a model or an adapter. It does not matter whether a client may use
        it.
        """
        return model in self._by_key or (model is not None and bool(self.serving(model)))

    def serving(self, name: str, opens: Opens = every) -> list[Pool]:
        """Return the pools that serve a model or adapter and that the client may use, sorted by key. A name that no
        pool declares may be an alias that engines report; the client may use it if it may use the pool's model.
        """
        if name in self._by_model:
            return [pool for pool in self._by_model[name] if opens(pool, name)]
        return [pool for pool in self.all() if name in pool.engines.aliases and opens(pool, pool.table.model)]

    def models(self, opens: Opens = every) -> tuple[str, ...]:
        """Return the models, aliases and adapters that the client may use, sorted."""
        names = self._by_model.keys() | {name for pool in self._by_key.values() for name in pool.engines.aliases}
        return tuple(sorted(name for name in names if self.serving(name, opens)))

    def base_of(self, adapter: str) -> str | None:
        """Return the model to which an adapter belongs; None if the name is not an adapter."""
        return next((pool.table.model for pool in self._by_model.get(adapter, ()) if pool.adapter(adapter) is not None), None)

    def tick(self) -> None:
        """Let the ticks of all schedulers run. Called every few tens of milliseconds."""
        now = self._clock()
        for pool in self.living():
            try:
                pool.tick(now)
            except Exception:  # it must not stop the other pools' clocks
                if now >= self._tells_at.get(str(pool.key), 0.0):
                    self._tells_at[str(pool.key)] = now + TELL_SECONDS
                    logger.exception("a pool's scheduler failed", extra={"pool": str(pool.key)})

    def has_ended(self, pool: Pool) -> bool:
        """Return whether the pool was deleted and has no requests any longer. Its last records must be taken before
        `forget`.
        """
        return pool in self._retiring and not pool.account.tickets and not pool.account.direct

    def forget(self, pool: Pool) -> None:
        """Drop all data about a deleted pool whose requests have ended."""
        self._retiring.remove(pool)
        name = str(pool.key)
        if all(str(other.key) != name for other in self.living()):  # else it was created again and goes on counting
            self._tells_at.pop(name, None)
            self._metrics.forget_pool(name)

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        """Return the version of the routing table in use, for each pool."""
        return tuple(Acknowledgement(pool=pool.key, version=pool.table.version) for pool in self._by_key.values())
