"""One pool as this router serves it: its routing table, its scheduler, and an account of every request submitted to it.

Only the pool tells the scheduler about a request, and each request ends exactly once, in a way of
`fairlead_router.metrics.endings`: what its scheduler hears, what is counted and what its key is charged are the same
figures.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from fairlead.instances import Role
from fairlead.priority_classes import PriorityClasses
from fairlead.reports.engines import EngineMemory
from fairlead.reports.loads import HeldDemand, InstanceInFlight, PoolUse
from fairlead.reports.shares import Apart
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal, Scheduler
from fairlead.routing.knowledge.token_sizes import FORGET_SECONDS, TokenSizes
from fairlead.tables import EngineFacts, Outlook, RoutingTable
from fairlead.targets import Ranks, instance_of, target_of, targets_of
from fairlead_router.metrics.endings import Ending
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.instance_choice import InstanceChoice
from fairlead_router.pools.kept_rows import KeptRows
from fairlead_router.pools.known_engines import KnownEngines
from fairlead_router.pools.recalled_engines import RecalledEngines
from fairlead_router.pools.request_accounts import RequestAccounts, ending_of_failure, ending_of_leaving
from fairlead_router.pools.side_circuits import fault_of
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import TrafficRecording
from fairlead_router.pools.waiting_room import WaitingRoom
from fairlead_router.protocols.answers import Usage

DECLINED = "declined"
"""How an instance failed a request that it refused (4xx) and another one was asked for."""

logger = logging.getLogger(__name__)


class Pool:
    """One pool being served.

    After a ticket has ended the scheduler hears no more of its request, so ending it twice is harmless.
    """

    __slots__ = (
        "__weakref__", "_engines", "_ranks", "accepting", "accounts", "addresses", "apart", "binds_beginnings", "block_bytes", "choice", "classes", "counters",
        "direct", "divides", "engines", "figures_off", "forgets_at", "guests", "header", "is_front", "kept_rows", "key", "metrics", "pass_credentials",
        "recalled", "scheduler",
        "session_header", "table", "ticked_at", "tickets", "token_sizes", "told_at", "traffic", "used_at", "waiting", "waiting_room",
    )  # fmt: skip

    def __init__(
        self, table: RoutingTable, scheduler: Scheduler, metrics: RouterMetrics, now: float, *, recorded_share: float = 0.0
    ) -> None:
        self.key = table.pool
        self.scheduler = scheduler
        self.metrics = metrics
        self.counters = metrics.pool(str(table.pool))
        self.header = str(table.pool).encode()
        self.tickets: dict[str, Ticket] = {}
        self.traffic = TrafficRecording(recorded_share)
        """What came here, as simulations need it."""
        self.accounts = RequestAccounts(self.counters, self.traffic)
        self.direct: Counter[str] = Counter()
        """Requests in flight to each instance that did not go through the scheduler."""
        self.waiting = 0
        """Number of tickets without a decision."""
        self.guests = 0
        """Routers that ask this one for their requests."""
        self.apart = Apart.NOT_FOUND
        """Why this router decides by itself, if it does beside others."""
        self.is_front = False
        """Whether another router decides; then its reports have the pool's requests."""
        self.kept_rows = KeptRows()
        """Requests in flight when another router began to report them, or some of them."""
        self.waiting_room = WaitingRoom()
        """Requests for the least loaded instance, while there is none."""
        self.used_at = now
        """When the pool last had a request, at least; what was before this process is not known to be idle."""
        self.ticked_at = 0.0
        self.told_at = 0.0
        """When the scheduler was last told of the tokens of all streams."""
        self.engines = KnownEngines(table.pool)
        self.choice = InstanceChoice(scheduler, self.direct)
        self.token_sizes = TokenSizes(table.engine.bytes_per_token)
        self.recalled = RecalledEngines()
        self.forgets_at = now + FORGET_SECONDS
        self.figures_off: dict[str, float] = {}
        """Learned quantities that are off by more than half, and since when; `reporting.learnt_figures` keeps it."""
        self._take(table)

    # ── the table ──

    def _take(self, table: RoutingTable) -> None:
        self.table = table
        self.binds_beginnings = self.scheduler.binds_beginnings
        self.session_header = table.session.header.lower().encode("latin-1")
        self._engines = {entry.id: table.engine.at(entry.engine) for entry in table.instances if entry.engine is not None}
        self.pass_credentials = any(engine.pass_client_credentials for engine in (table.engine, *self._engines.values()))
        self.block_bytes = table.engine.block_bytes
        self.classes = PriorityClasses(table.priority_classes)
        self.divides = any(entry.role is Role.PREFILL for entry in table.instances)
        self.addresses = {entry.id: entry.address for entry in table.instances}
        self.accepting = frozenset(entry.id for entry in table.instances if entry.accepting)
        self.metrics.tables[str(table.pool)] = table.version
        self.engines.keep_only(self.addresses.keys(), table.model)
        self._ranks = self.engines.ranks(table.instances)
        self.choice.take(table)
        for instance, basis in tuple(self.counters.beliefs):
            if instance not in self.addresses:
                del self.counters.beliefs[instance, basis]

    def update(self, table: RoutingTable, now: float) -> None:
        """Take a newer table live. Raises FairleadError and changes nothing when the scheduler cannot use it."""
        sizes = self.token_sizes
        if (table.model, table.engine.bytes_per_token) != (self.table.model, self.table.engine.bytes_per_token):
            sizes = TokenSizes(table.engine.bytes_per_token)
        results = self.scheduler.update_table(self._placed(table, sizes), now)
        self.token_sizes = sizes
        self._take(table)
        self._go_by_recalled(now)
        self.deliver(results, now)
        if table.outlook is not Outlook.COMING or self.choice.least_loaded((), now) is not None:
            self.waiting_room.open()

    def _placed(self, table: RoutingTable, sizes: TokenSizes) -> RoutingTable:
        """The table as the scheduler places requests by it: its instances are targets, and what engines told stands in
        the place of what was declared. Of what was declared of an instance, each of its ranks has a part.
        """
        ranks = self.engines.ranks(table.instances)
        parts = max(map(len, ranks.values()), default=1)
        engine = sizes.counted(table.engine)
        if parts > 1:
            cache, speed = max(1, engine.kv_cache_tokens // parts), engine.prefill_tokens_per_second / parts
            engine = replace(engine, prefill_tokens_per_second=speed, kv_cache_tokens=cache)
        if self.engines.cache_tokens is not None:
            engine = replace(engine, kv_cache_tokens=self.engines.cache_tokens)
        return replace(table, engine=engine, instances=targets_of(table.instances, ranks))

    def engine_of(self, instance: str) -> EngineFacts:
        """The facts of the engine of an instance, or of one of its ranks: others than the table's while a rollout
        replaces it.
        """
        return self._engines.get(instance_of(instance), self.table.engine) if self._engines else self.table.engine

    def passes_credentials(self, instance: str) -> bool:
        """Whether this instance gets a client's credentials; `pass_credentials` tells whether any does."""
        return self.pass_credentials and self.engine_of(instance).pass_client_credentials

    def ranks(self, instance: str) -> Ranks:
        """The data-parallel ranks of an instance, if it is known to have several."""
        return self._ranks.get(instance, ())

    def targets(self, instance: str) -> Sequence[str]:
        """The targets that the instance is: its ranks where it is known to have several, else the instance itself."""
        return [target_of(instance, rank) for rank in self.ranks(instance)] or (instance,)

    def target(self, instance: str, rank: int | None) -> str:
        """The target of an instance that a request goes to with this rank, or with none."""
        known = self.ranks(instance)
        return target_of(instance, rank if rank in known else next(iter(known), None))

    def see_ranks(self, instance: str, names: Collection[int], now: float) -> None:
        """An engine told something of all its data-parallel ranks, which it calls so."""
        if instance in self.addresses and self.engines.see_ranks(instance, self.addresses[instance], names, now):
            self._ranks = self.engines.ranks(self.table.instances)
            logger.info("data-parallel ranks", extra={"pool": str(self.key), "instance": instance, "ranks": self.ranks(instance)})
            self._count_anew(now)

    def learn_cache_size(self, instance: str, tokens: int, now: float) -> None:
        """An engine told how many tokens its KV cache holds, or those of its ranks, each."""
        if self.engines.learn_cache_size(instance, tokens, self.table.engine.kv_cache_tokens):
            logger.info("size of KV caches learnt", extra={"pool": str(self.key), "tokens": self.engines.cache_tokens})
            self._count_anew(now)

    # ── what was observed before ──

    def recall_engines(self, memory: EngineMemory, now: float) -> None:
        """Go by what was observed of the pool's instances before, each figure until it is measured here."""
        self.recalled.take(memory, self._counted(), now)
        self._go_by_recalled(now)

    def engine_memory(self, now: float) -> EngineMemory | None:
        """What is known of one of its instances, to be kept for a router that begins; None where nothing is."""
        of_target, bytes_per_token = self.scheduler.engine_memory(now), self.token_sizes.measured(now)
        memory = self.recalled.measured(of_target, bytes_per_token, self._parts, self._counted(), now)
        self._go_by_recalled(now)
        return memory

    def _go_by_recalled(self, now: float) -> None:
        if self.token_sizes.recall(self.recalled.bytes_per_token(self._counted(), now), now):
            self._count_anew(now)
        self.scheduler.recall_engines(self.recalled.of_target(self._parts, self._counted(), now), now)

    def _counted(self) -> RoutingTable:
        return replace(self.table, engine=self.token_sizes.counted(self.table.engine))

    @property
    def _parts(self) -> int:
        return max(map(len, self._ranks.values()), default=1) or 1

    # ── use ──

    def held(self) -> HeldDemand:
        """Requests that wait for the pool to have an instance."""
        routed = self.scheduler.held()
        return HeldDemand(requests=routed.requests + len(self.waiting_room), prompt_tokens=routed.prompt_tokens)

    def use(self, now: float) -> PoolUse:
        """How the pool is used by this router."""
        held = self.held()
        idle_seconds = 0.0 if self._is_used() else max(0.0, now - self.used_at)
        return PoolUse(pool=self.key, held_requests=held.requests, held_prompt_tokens=held.prompt_tokens, idle_seconds=idle_seconds)

    def in_flight(self) -> tuple[InstanceInFlight, ...]:
        """Requests to report: queued for or sent to each instance, whichever way they went. Where another router
        decides, those that went past the scheduler.
        """
        rows = {} if self.is_front else {row.instance: row for row in self.scheduler.in_flight()}
        self.kept_rows.add_to(rows)
        for instance, count in self.direct.items():
            row = rows.get(instance) or InstanceInFlight(pool=self.key, instance=instance, in_flight=0, waiting=0)
            rows[instance] = replace(row, in_flight=row.in_flight + count)
        return tuple(rows.values())

    def keep_reporting(self, now: float) -> None:
        """Another router begins to report what is in flight here: go on telling of it until that does."""
        self.kept_rows.keep(self.scheduler.in_flight(), now)

    async def wait_for_instance(self, body_bytes: int) -> None:
        """Wait for an instance to take direct requests, if one is to come and there is room to wait."""
        holding = self.table.holding
        if self.table.outlook is Outlook.COMING and self.waiting_room.has_room(body_bytes, self.scheduler.held(), holding):
            await self.waiting_room.wait(body_bytes, holding.hold_for_seconds)

    def _is_used(self) -> bool:
        return bool(self.tickets or self.direct or self.waiting_room.waiters)

    # ── a request's way through ──

    def submit(self, request: RoutingRequest, now: float, charge: Charge | None = None) -> Ticket:
        """Hand a request to the scheduler. The returned ticket may already be decided. Its `charge` is settled when it
        ends.
        """
        ticket = Ticket(request, charge)
        self.tickets[request.id] = ticket
        self.waiting += 1
        self.used_at = now
        self.counters.submitted += 1
        if self.classes.are_declared:
            self.counters.classes[request.priority_class].submitted += 1
        try:
            results = self.scheduler.submit(request, now)
        except BaseException:
            self._end(ticket, Ending.LOST, now)  # the scheduler refused to know it, so nothing may be kept of it here
            raise
        self.deliver(results, now)
        if self.waiting_room.waiters:
            self._bound_held()
        return ticket

    def _bound_held(self) -> None:
        self.waiting_room.make_room(self.scheduler.held(), self.table.holding)

    def prefilled(self, ticket: Ticket, now: float) -> Refusal | None:
        """The prompt is computed on the prefill instance; the answer is still to come from the decode instance, unless
        the request is refused now, which ends the ticket.
        """
        if ticket.ended:
            return None
        refusal: Refusal | None = None
        others: list[Dispatch | Refusal] = []
        for result in self.scheduler.prefilled(ticket.request.id, now):
            if isinstance(result, Refusal) and result.request.id == ticket.request.id:
                ticket.verdict = refusal = result
                self._refuse(ticket, result, Ending.REFUSED_AFTER_PREFILL, now)
            else:
                others.append(result)
        self.deliver(others, now)
        return refusal

    def first_token(self, ticket: Ticket, now: float) -> None:
        """The engine began to stream; only the first call counts."""
        if ticket.ending is None and not ticket.saw_first_token:
            ticket.saw_first_token = True
            ticket.first_token_at = now
            self.counters.ttft.observe(now - ticket.request.arrived_at)
            if self.classes.are_declared:
                self.counters.classes[ticket.request.priority_class].ttft.observe(now - ticket.request.arrived_at)
            self.deliver(self.scheduler.first_token(ticket.request.id, now), now)

    def retry(self, ticket: Ticket, failed_instance: str, now: float, *, reached: bool, to: str | None = None) -> Dispatch | Refusal:
        """The instance failed before its answer had content: ask the scheduler for another one, or tell it that a proxy
        has sent the request on `to` another one.

        Returns a further dispatch, or a refusal that ends the ticket. The scheduler counts the attempts.
        """
        assert not ticket.ended
        verdict = self.scheduler.retry(ticket.request.id, now, failed_instance, reached=reached, to=to)
        ticket.verdict = verdict
        if isinstance(verdict, Refusal):
            self._refuse(ticket, verdict, Ending.EXHAUSTED, now)
        else:
            self.counters.count_decode_only(verdict)
            self.counters.retries += 1
            ticket.dispatched_at = now
            ticket.saw_first_token = False
            ticket.stream = None
        return verdict

    def second_opinion(self, ticket: Ticket, instance: str, now: float, *, counts: bool, beyond: Collection[str] = ()) -> Dispatch | None:
        """The instance refused the request, which another one may not: where to try it, also `beyond` those that it was
        for; None where nobody else is left. If that one serves it and the refusal `counts`, it was the instance's
        failure.
        """
        verdict = self.scheduler.second_opinion(ticket.request.id, now, instance, counts=counts, beyond=beyond)
        if verdict is not None:
            self.scheduler.attempt_failed(ticket.request.id, instance, DECLINED, now)
            self.counters.retries += 1
            ticket.verdict = verdict
            ticket.dispatched_at = now
        return verdict

    def pass_over(self, ticket: Ticket, instance: str, now: float) -> Dispatch | None:
        """The instance is not to be sent the request after all: where to send it, None where nobody else is left."""
        verdict = self.scheduler.second_opinion(ticket.request.id, now, instance, counts=False, reached=False)
        if verdict is not None:
            ticket.verdict = verdict
            ticket.dispatched_at = now
        return verdict

    def _tell_generated(self, ticket: Ticket, now: float) -> None:
        if ticket.stream is not None:
            tokens = ticket.stream.generated_tokens
            self.scheduler.generated(ticket.request.id, now, tokens)
            if ticket.charge is not None:
                ticket.charge.generated(min(tokens, ticket.charge.most_tokens), now)

    def complete(self, ticket: Ticket, now: float, usage: Usage) -> None:
        """The engine answered in full. Impossible counts are treated as missing."""
        if ticket.ending is not None:
            return
        usage = self.accounts.plausible(usage)
        if usage.cached_tokens is not None and isinstance(ticket.verdict, Dispatch):
            self.counters.compare(ticket.verdict, usage.cached_tokens)
        self._end(ticket, Ending.SERVED, now, usage)
        self.deliver(self.scheduler.complete(ticket.request.id, now, usage.output_tokens, usage.cached_tokens), now)
        request = ticket.request
        if usage.prompt_tokens and self.token_sizes.observe(
            request.prompt_bytes, usage.prompt_tokens, now, request.prompt_kind, text=request.is_plain_text
        ):
            size = round(self.token_sizes.bytes_per_token, 3)
            logger.info("bytes per token learned", extra={"pool": str(self.key), "bytes_per_token": size})
            self._count_anew(now)

    def _count_anew(self, now: float) -> None:
        """Go by what was learnt. Requests in flight keep the counts they came with."""
        self.deliver(self.scheduler.update_table(self._placed(self.table, self.token_sizes), now), now)
        self.scheduler.recall_engines(self.recalled.of_target(self._parts, self._counted(), now), now)

    def fail(self, ticket: Ticket, now: float, *, out_of_time: bool = False) -> None:
        """The request was lost after the first byte, or given up; `out_of_time`: its total time is over."""
        self._break_off(ticket, ending_of_failure(ticket, out_of_time=out_of_time), now, self.scheduler.fail)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """The client went away."""
        self._break_off(ticket, ending_of_leaving(ticket), now, self.scheduler.cancel)

    def _break_off(self, ticket: Ticket, ending: Ending, now: float, tell: Callable[[str, float], Sequence[Dispatch | Refusal]]) -> None:
        if ticket.ended:
            return
        if ending is Ending.SERVED and ticket.stream is not None:
            self.complete(ticket, now, ticket.stream.usage())
            return
        self._tell_generated(ticket, now)
        self._end(ticket, ending, now, self.accounts.part(ticket))
        self.deliver(tell(ticket.request.id, now), now)

    def decline(self, ticket: Ticket, now: float) -> None:
        """The engine refused the request itself: the fault is the client's, not the engine's."""
        if not ticket.ended:
            self._end(ticket, Ending.DECLINED, now)
            self.deliver(self.scheduler.decline(ticket.request.id, now), now)

    def give_up(self, ticket: Ticket, now: float) -> None:
        """The request has waited for all the time that it may take: it is refused, if it still waits."""
        if not ticket.ended:
            self.deliver(self.scheduler.give_up(ticket.request.id, now), now)

    def _refuse(self, ticket: Ticket, refusal: Refusal, ending: Ending, now: float) -> None:
        if not ticket.ended:
            self._end(ticket, ending, now)
            self.counters.refused[refusal.reason.value] += 1
            if self.classes.are_declared:
                self.counters.classes[ticket.request.priority_class].refused += 1

    def _end(self, ticket: Ticket, ending: Ending, now: float, usage: Usage | None = None) -> None:
        """Settle the account of a ticket that has not ended, and forget it."""
        self.accounts.end(ticket, ending, now, usage)
        if self.tickets.pop(ticket.request.id, None) is not None and ticket.verdict is None:
            self.waiting -= 1

    def most_tokens(self, body_bytes: int) -> int:
        """The most tokens that a prompt with a body of so many bytes, or its answer, can truly have: a token of text
        has a byte, and what bytes do not show (media, a conversation that its engine keeps) must fit into a KV cache.
        """
        return body_bytes + (self.engines.cache_tokens or self.table.engine.kv_cache_tokens)

    def deliver(self, results: Sequence[Dispatch | Refusal], now: float) -> None:
        """Give each decision to its ticket. An event about one request may decide others."""
        for result in results:
            ticket = self.tickets.get(result.request.id)
            if ticket is None or ticket.verdict is not None:
                self.metrics.accounting_errors += 1
                logger.error("verdict for a request not waiting", extra={"pool": str(self.key), "request": result.request.id})
                if ticket is None and isinstance(result, Dispatch):
                    self.deliver(self.scheduler.cancel(result.request.id, now), now)
                continue
            self.waiting -= 1
            ticket.decide(result)
            if isinstance(result, Refusal):
                self._refuse(ticket, result, Ending.REFUSED, now)
            else:
                ticket.dispatched_at = now
                ticket.queued_seconds = now - ticket.request.arrived_at
                self.counters.count_decode_only(result)
                self.counters.prompt_tokens += ticket.request.prompt_tokens
                self.counters.hit_tokens += result.hit_tokens
                self.counters.queued.observe(ticket.queued_seconds)
            if ticket.when_decided is not None:
                ticket.when_decided()

    def tick(self, now: float) -> None:
        """Called often: lets the scheduler dispatch, expire and rebalance.

        It also lets the scheduler end prefills whose first token the router cannot see, and tells it once a second how
        many tokens have come.
        """
        if self.tickets and now - self.told_at >= 1.0:
            self.told_at = now
            for ticket in self.tickets.values():
                self._tell_generated(ticket, now)
        if self._is_used():
            self.used_at = now
        if now >= self.kept_rows.until:
            self.kept_rows = KeptRows()
        if self.tickets or self.guests or now - self.ticked_at >= 1.0:
            self.ticked_at = now
            self.deliver(self.scheduler.tick(now), now)
            if self.waiting_room.waiters:
                self._bound_held()
        if now >= self.forgets_at:
            self.forgets_at = now + FORGET_SECONDS
            if self.token_sizes.forget(now):
                self._count_anew(now)

    def shut_down(self, now: float) -> None:
        """Refuse everything that waits in a queue; what was dispatched goes on."""
        self.waiting_room.open()
        self.deliver(self.scheduler.shut_down(now), now)

    # ── names ──

    def adapter(self, asked: str | None) -> str | None:
        """The LoRA adapter that a client asked for by this name, None if it asked for anything else."""
        return asked if asked in self.table.adapters and asked != str(self.key) else None

    def engine_name(self, asked: str | None) -> str:
        """The name by which engines know what a client asked for."""
        model = self.table.model
        if asked is None or asked == model:
            return model
        return self.adapter(asked) or (asked if asked in self.engines.aliases else model)

    # ── engines ──

    def engine_failed(self, instance: str, kind: str, now: float, ticket: Ticket | None = None) -> None:
        """Count an engine's failure, at a request if its ticket is given. Tell the scheduler only if the failure may
        say something about the instance.
        """
        self.counters.upstream_errors[kind] += 1
        if ticket is not None:
            self.scheduler.attempt_failed(ticket.request.id, instance, kind, now)
        fault = fault_of(kind)
        if fault is not None:
            self.scheduler.instance_failed(instance, now, fault, None if ticket is None else ticket.request.id)

    def engine_worked(self, instance: str, now: float) -> None:
        """An engine answered in full."""
        self.scheduler.instance_worked(instance, now)
