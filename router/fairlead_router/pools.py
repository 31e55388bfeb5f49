"""Pools as this router knows them: a routing table, its scheduler, and the requests submitted to it; and which pool serves which model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from fairlead.errors import FairleadError
from fairlead.reports import Acknowledgement, Binding, BindingChange
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal, Scheduler
from fairlead.tables import PoolKey, RoutingTable
from fairlead_router.accounting import Ticket
from fairlead_router.metrics import RouterMetrics
from fairlead_router.refusals import BadRequest

SchedulerFactory = Callable[[RoutingTable], Scheduler]

logger = logging.getLogger("fairlead.router.pools")


class Pool:
    """One pool being served. Everything the scheduler answers comes through `deliver`."""

    __slots__ = (
        "addresses", "block_bytes", "bytes_per_token", "counters", "direct", "header", "key", "kv_usage", "metrics",
        "pass_credentials", "scheduler",
        "session_header", "table", "ticked_at", "tickets", "waiting",
    )  # fmt: skip

    def __init__(self, table: RoutingTable, scheduler: Scheduler, metrics: RouterMetrics) -> None:
        self.key = table.pool
        self.scheduler = scheduler
        self.metrics = metrics
        self.counters = metrics.pool(str(table.pool))
        self.header = str(table.pool).encode()
        self.tickets: dict[str, Ticket] = {}
        self.direct: Counter[str] = Counter()
        """Requests under way to each instance past the scheduler."""
        self.waiting = 0
        self.ticked_at = 0.0
        self.kv_usage: dict[str, float] = {}
        self._take(table)

    def _take(self, table: RoutingTable) -> None:
        self.table = table
        self.session_header = table.session.header.lower().encode("latin-1")
        self.pass_credentials = table.engine.pass_client_credentials
        self.bytes_per_token = table.engine.bytes_per_token
        self.block_bytes = table.engine.block_tokens * table.engine.bytes_per_token
        self.addresses = {entry.id: entry.address for entry in table.instances}
        self.metrics.tables[str(table.pool)] = table.version
        for gone in self.kv_usage.keys() - self.addresses.keys():
            del self.kv_usage[gone]

    def update(self, table: RoutingTable, now: float) -> None:
        """Take a newer table live. Raises FairleadError and changes nothing when the scheduler cannot use it."""
        results = self.scheduler.update_table(table, now)
        self._take(table)
        self.deliver(results, now)

    def submit(self, request: RoutingRequest, now: float) -> Ticket:
        """Hand a request to the scheduler. The ticket may already have its verdict."""
        ticket = Ticket(self, request)
        self.tickets[request.id] = ticket
        self.waiting += 1
        self.counters.submitted += 1
        self.counters.prompt_tokens += request.prompt_tokens
        try:
            results = self.scheduler.submit(request, now)
        except BaseException:
            self.counters.submitted -= 1
            self.close(ticket)  # the scheduler refused to know it, so nothing may be kept of it here
            raise
        self.deliver(results, now)
        return ticket

    def deliver(self, results: Sequence[Dispatch | Refusal], now: float) -> None:
        """Pass verdicts to the tickets they are for."""
        for result in results:
            ticket = self.tickets.get(result.request.id)
            if ticket is None or ticket.verdict is not None:
                self.metrics.accounting_errors += 1
                logger.error("verdict for a request not waiting", extra={"pool": str(self.key), "request": result.request.id})
                if ticket is None and isinstance(result, Dispatch):
                    self.deliver(self.scheduler.cancel(result.request.id, now), now)
                continue
            self.waiting -= 1
            if isinstance(result, Dispatch):
                self.counters.hit_tokens += result.hit_tokens
                self.counters.queued.observe(now - ticket.request.arrived_at)
            ticket.resolve(result, now)

    def close(self, ticket: Ticket) -> None:
        """The ticket ended; forget it."""
        if self.tickets.pop(ticket.request.id, None) is not None and ticket.verdict is None:
            self.waiting -= 1

    def least_loaded(self, excluded: Collection[str]) -> str | None:
        """The accepting instance with the least under way, for a request that needs no particular one; None when there is none left."""
        accepting = {entry.id for entry in self.table.instances if entry.accepting and entry.id not in excluded}
        rows = [(row.in_flight + row.waiting + self.direct[row.instance], row.instance) for row in self.scheduler.in_flight()]
        free = [row for row in rows if row[1] in accepting]
        return min(free)[1] if free else None

    def tick(self, now: float) -> None:
        """Called often: lets the scheduler dispatch, expire, rebalance and see the end of prefills whose first token nobody sees."""
        if self.tickets or now - self.ticked_at >= 1.0:
            self.ticked_at = now
            self.deliver(self.scheduler.tick(now), now)


class Pools:
    """All pools of this router, found by `namespace/name` or by model. Tables come in through `apply`, leave through `delete`."""

    def __init__(self, factory: SchedulerFactory, metrics: RouterMetrics, clock: Callable[[], float]) -> None:
        self._factory = factory
        self._metrics = metrics
        self._clock = clock
        self._by_key: dict[str, Pool] = {}
        self._by_model: dict[str, list[Pool]] = {}
        self._retiring: list[Pool] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def all(self) -> tuple[Pool, ...]:
        """Pools in force, by key."""
        return tuple(self._by_key[key] for key in sorted(self._by_key))

    def living(self) -> Iterable[Pool]:
        """Pools in force and deleted ones that still have requests."""
        return (*self._by_key.values(), *self._retiring)

    def get(self, key: PoolKey) -> Pool | None:
        """The pool in force under this key."""
        return self._by_key.get(str(key))

    def apply(self, table: RoutingTable) -> bool:
        """Take a table. False when it is not newer than the one in force or cannot be used (then the one before stays)."""
        name = str(table.pool)
        known = self._by_key.get(name)
        try:
            if known is not None and known.table.uid == table.uid:
                if table.version <= known.table.version:
                    return False
                known.update(table, self._clock())
            else:
                scheduler = self._factory(table)
                if known is not None:
                    self._retire(known)
                self._by_key[name] = Pool(table, scheduler, self._metrics)
        except FairleadError as error:
            self._metrics.tables_refused += 1
            logger.warning("routing table refused", extra={"pool": name, "version": table.version, "problem": str(error)})
            return False
        self._index()
        logger.info("routing table in force", extra={"pool": name, "version": table.version, "instances": len(table.instances)})
        return True

    def delete(self, key: PoolKey) -> bool:
        """Stop serving a pool. Requests already dispatched finish; queued ones are refused by its scheduler."""
        pool = self._by_key.pop(str(key), None)
        if pool is None:
            return False
        self._metrics.tables.pop(str(key), None)
        self._retire(pool)
        self._index()
        logger.info("pool deleted", extra={"pool": str(key)})
        return True

    def _retire(self, pool: Pool) -> None:
        pool.update(replace(pool.table, version=pool.table.version + 1, instances=()), self._clock())
        self._metrics.tables.pop(str(pool.key), None)
        if pool.tickets:
            self._retiring.append(pool)

    def _index(self) -> None:
        self._by_model = {}
        for pool in self.all():
            self._by_model.setdefault(pool.table.model, []).append(pool)

    def recall_changes(self, changes: Sequence[BindingChange]) -> None:
        """Tell schedulers what an earlier process of this router did and the API may not have answered."""
        for name, pool in self._by_key.items():
            pool.scheduler.recall_changes([change for change in changes if str(change.pool) == name], self._clock())

    def shut_down(self) -> None:
        """Refuse everything that waits in a queue; what was dispatched goes on."""
        now = self._clock()
        for pool in self.living():
            pool.deliver(pool.scheduler.shut_down(now), now)

    def apply_bindings(self, bindings: Sequence[Binding], lost: Collection[str] = ()) -> None:
        """Tell schedulers what the API knows of sessions, and which own changes `lost` against it; bindings of unknown pools are ignored."""
        by_pool: dict[str, list[Binding]] = {}
        for binding in bindings:
            by_pool.setdefault(str(binding.pool), []).append(binding)
        now = self._clock()
        for name, group in by_pool.items():
            pool = self._by_key.get(name)
            if pool is not None:
                pool.counters.lost_moves += pool.scheduler.apply_bindings(group, now, lost)

    def resolve(self, model: str, wanted: str | None) -> Pool:
        """The pool for a request: `model` as `namespace/name` wins, then the header's choice among pools of that model, else the first by name.

        Raises BadRequest 404 naming what there is.
        """
        pool = self._by_key.get(model)
        if pool is not None:
            return pool
        pools = self._by_model.get(model)
        if not pools:
            known = ", ".join(self.models()) or "none yet"
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

    def models(self) -> tuple[str, ...]:
        """Models served, sorted."""
        return tuple(sorted(self._by_model))

    def tick(self) -> None:
        """Called every few tens of milliseconds."""
        now = self._clock()
        for pool in self.living():
            pool.tick(now)
        if self._retiring:
            self._retiring = [pool for pool in self._retiring if pool.tickets]

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        """The table version each pool is routed by."""
        return tuple(Acknowledgement(pool=pool.key, version=pool.table.version) for pool in self._by_key.values())

    def in_flight_total(self) -> int:
        """Requests not ended yet, in all pools."""
        return sum(len(pool.tickets) for pool in self.living())
