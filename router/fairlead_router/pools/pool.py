"""One pool as this router serves it: its routing table, scheduler and model names, and observations of its engines.

`account` has the pool's requests, and is the only object that reports them to the scheduler.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from fairlead.instances import InstanceState, Role
from fairlead.priority_classes import PriorityClasses
from fairlead.reports.engines import EngineMemory, EngineTrouble
from fairlead.reports.shares import Apart
from fairlead.routing.contracts.schedulers import Scheduler
from fairlead.routing.knowledge.token_sizes import FORGET_SECONDS, TokenSizes
from fairlead.tables import EngineFacts, Outlook, RoutingTable
from fairlead.targets import Ranks, instance_of, target_of, targets_of
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.account import PoolAccount
from fairlead_router.pools.instance_choice import InstanceChoice
from fairlead_router.pools.known_engines import KnownEngines, RecalledEngines
from fairlead_router.pools.side_circuits import fault_of
from fairlead_router.pools.tickets import Ticket

ANSWERS = "its answers"
"""Name of an engine's responses, for messages that name an implausible report."""

_CONNECTOR = "give it a --kv-transfer-config with a connector that reports the KV blocks in its answers, such as NixlConnector"

logger = logging.getLogger(__name__)


class Pool:
    """A pool that this router serves."""

    __slots__ = (
        "__weakref__", "_engines", "_figures_off", "_forgets_at", "_ranks", "accepting", "account", "addresses", "apart", "binds_beginnings",
        "block_bytes", "choice", "classes", "counters", "divides", "engines", "header", "key", "metrics", "moves_caches", "pass_credentials",
        "passes_priority", "recalled", "scheduler", "session_header", "table", "token_sizes",
    )  # fmt: skip

    def __init__(
        self, table: RoutingTable, scheduler: Scheduler, metrics: RouterMetrics, now: float, *, recorded_share: float = 0.0
    ) -> None:
        self.key = table.pool
        self.scheduler = scheduler
        self.metrics = metrics
        self.counters = metrics.pool(str(table.pool))
        self.header = str(table.pool).encode()
        self.account = PoolAccount(table.pool, scheduler, metrics, now, self._recount, recorded_share=recorded_share)
        self.apart = Apart.NOT_FOUND
        """The reason why this router decides for the pool alone although other routers exist. It is valid only while
        this router does decide alone: no other router decides for it, and it decides for no other router.
        """
        self.engines = KnownEngines(table.pool)
        self.choice = InstanceChoice(scheduler, self.account.direct)
        self.token_sizes = TokenSizes(table.engine.bytes_per_token)
        self.recalled = RecalledEngines()
        self._forgets_at = now + FORGET_SECONDS
        self._figures_off: dict[str, float] = {}
        """By measured quantity: the time since which the value in use, or the declared value, has differed from the
        observed value by more than half.
        """
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
        self.passes_priority = table.engine.pass_priority
        self.moves_caches = table.engine.handing_on is not None
        self.divides = any(entry.role is Role.PREFILL for entry in table.instances)
        self.addresses = {entry.id: entry.address for entry in table.instances}
        self.accepting = frozenset(entry.id for entry in table.instances if entry.accepting)
        self.metrics.tables[str(table.pool)] = table.version
        self.engines.keep_only(self.addresses.keys(), table.model)
        for instance in self.addresses:
            self.judge_handovers(instance)
        self._ranks = self.engines.ranks(table.instances)
        self.choice.take(table)
        self.account.take(table, self.classes, self.token_sizes)
        for instance, basis in tuple(self.counters.beliefs):
            if instance not in self.addresses:
                del self.counters.beliefs[instance, basis]

    def update(self, table: RoutingTable, now: float) -> None:
        """Use a newer routing table for further requests. If the scheduler cannot use the table, raises FairleadError
        and changes nothing.
        """
        sizes = self.token_sizes
        if (table.model, table.engine.bytes_per_token) != (self.table.model, self.table.engine.bytes_per_token):
            sizes = TokenSizes(table.engine.bytes_per_token)
        results = self.scheduler.update_table(self._placed(table, sizes), now)
        self.token_sizes = sizes
        self._take(table)
        draining = (entry.id for entry in table.instances if entry.state is InstanceState.DRAINING)
        self.account.hold(draining if self.hands_caches_over else (), now)
        self._go_by_recalled(now)
        self.account.deliver(results, now)
        if table.outlook is not Outlook.COMING or self.choice.least_loaded((), now) is not None:
            self.account.stop_waiting()

    @property
    def hands_caches_over(self) -> bool:
        """Whether another instance can fetch the KV blocks of a session from its leaving instance before the session's
        next turn.
        """
        return self.moves_caches and self.table.routing.hand_over_budget > 0

    def _placed(self, table: RoutingTable, sizes: TokenSizes) -> RoutingTable:
        """Return the table by which the scheduler places requests.

        Its instances are targets: the ranks of an instance with several ranks, or the instance itself. Each rank gets
        its part of the declared capacity. A cache size that engines reported replaces the declared size.
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
        """Return the facts about the engine of an instance or rank. During a rollout that replaces engines, they may
        differ from the engine facts of the pool's table.
        """
        return self._engines.get(instance_of(instance), self.table.engine) if self._engines else self.table.engine

    def passes_credentials(self, instance: str) -> bool:
        """Return whether this instance gets clients' credentials. The attribute `pass_credentials` says whether any
        instance of the pool gets them.
        """
        return self.pass_credentials and self.engine_of(instance).pass_client_credentials

    def ranks(self, instance: str) -> Ranks:
        """Return the data-parallel ranks of an instance; empty unless the instance is known to have several."""
        return self._ranks.get(instance, ())

    def targets(self, instance: str) -> Sequence[str]:
        """Return the targets of an instance: its ranks if it has several, otherwise the instance itself."""
        return [target_of(instance, rank) for rank in self.ranks(instance)] or (instance,)

    def target(self, instance: str, rank: int | None) -> str:
        """Return the target for a request to this rank of an instance. For an unknown rank, or None, return the
        instance's first rank, or the instance itself if it has no ranks.
        """
        known = self.ranks(instance)
        return target_of(instance, rank if rank in known else next(iter(known), None))

    def see_ranks(self, instance: str, names: Collection[int], now: float) -> None:
        """Record the indexes of all data-parallel ranks that an engine reported."""
        if instance in self.addresses and self.engines.see_ranks(instance, self.addresses[instance], names, now):
            self._ranks = self.engines.ranks(self.table.instances)
            logger.info("data-parallel ranks", extra={"pool": str(self.key), "instance": instance, "ranks": self.ranks(instance)})
            self._recount(now)

    def learn_cache_size(self, instance: str, tokens: int, now: float) -> None:
        """Record the number of tokens that an engine's KV cache holds, or the smallest cache of its ranks."""
        if self.engines.learn_cache_size(instance, tokens, self.table.engine.kv_cache_tokens):
            logger.info("size of KV caches measured", extra={"pool": str(self.key), "tokens": self.engines.cache_tokens})
            self._recount(now)

    # ── what was observed before ──

    def recall_engines(self, memory: EngineMemory, now: float) -> None:
        """Use earlier measurements of the pool's engines, until this router has measured each value itself."""
        self.recalled.take(memory, self._counted(), now)
        self._go_by_recalled(now)

    def engine_memory(self, now: float) -> EngineMemory | None:
        """Return the measurements of the pool's engines, to keep them for a later process; None if there are none."""
        of_target, bytes_per_token = self.scheduler.engine_memory(now), self.token_sizes.measured(now)
        memory = self.recalled.measured(of_target, bytes_per_token, self._parts, self._counted(), now)
        self._go_by_recalled(now)
        return memory

    def _go_by_recalled(self, now: float) -> None:
        if self.token_sizes.recall(self.recalled.bytes_per_token(self._counted(), now), now):
            self._recount(now)
        self.scheduler.recall_engines(self.recalled.of_target(self._parts, self._counted(), now), now)

    def _counted(self) -> RoutingTable:
        return replace(self.table, engine=self.token_sizes.counted(self.table.engine))

    @property
    def _parts(self) -> int:
        return max(map(len, self._ranks.values()), default=1) or 1

    # ── what is learned ──

    def _recount(self, now: float) -> None:
        """Let the scheduler use the newly measured token sizes, cache sizes and ranks for further requests. Requests in
        flight keep their estimates.
        """
        self.account.deliver(self.scheduler.update_table(self._placed(self.table, self.token_sizes), now), now)
        self.scheduler.recall_engines(self.recalled.of_target(self._parts, self._counted(), now), now)

    def tick(self, now: float) -> None:
        """Let the scheduler's tick run, and from time to time drop old measurements. Called many times a second."""
        self.account.tick(now)
        if now >= self._forgets_at:
            self._forgets_at = now + FORGET_SECONDS
            if self.token_sizes.forget(now):
                self._recount(now)

    def decides_apart(self, why: Apart) -> None:
        """Record the reason why this router decides alone although other routers exist."""
        self.apart = why

    def off_seconds(self, quantity: str, now: float, *, is_off: bool) -> float:
        """Return the seconds since the value of a quantity began to differ from the observed value by more than half; 0
        if it does not differ so much now. `is_off`: whether it differs so much now. The time counts from the first call
        with `is_off`.
        """
        if not is_off:
            self._figures_off.pop(quantity, None)
            return 0.0
        return max(0.0, now - self._figures_off.setdefault(quantity, now))

    def most_tokens(self, body_bytes: int, answers: int = 1) -> int:
        """Return the maximum plausible number of tokens of a prompt with a body of `body_bytes`, and of all its
        `answers`.

        A token of text has at least one byte. Parts of the prompt that are not in the body (media, a stored
        conversation) must fit into a KV cache, and so must each answer.
        """
        return body_bytes + (self.engines.cache_tokens or self.table.engine.kv_cache_tokens) * answers

    # ── names ──

    def adapter(self, asked: str | None) -> str | None:
        """Return the LoRA adapter that a client requested by this name; None if the pool has no such adapter."""
        return asked if asked in self.table.adapters and asked != str(self.key) else None

    def engine_name(self, asked: str | None) -> str:
        """Return the name under which the engines know the model or adapter that a client requested."""
        model = self.table.model
        if asked is None or asked == model:
            return model
        return self.adapter(asked) or (asked if asked in self.engines.aliases else model)

    # ── engines ──

    def engine_failed(self, instance: str, kind: str, now: float, ticket: Ticket | None = None) -> None:
        """Count a failure of an engine; `kind` is the kind of failure. With a `ticket`, also record it as a failed
        attempt of the ticket's request. The scheduler counts the failure against the instance only if the instance may
        be at fault.
        """
        self.counters.upstream_errors[kind] += 1
        if ticket is not None:
            self.scheduler.attempt_failed(ticket.request.id, instance, kind, now)
        fault = fault_of(kind)
        if fault is not None:
            self.scheduler.instance_failed(instance, now, fault, None if ticket is None else ticket.request.id)

    def note_beyond_bounds(self, target: str, failure: UpstreamFailure, now: float) -> None:
        """Record a trouble of the engine at this target if the failure is a response that exceeded a limit."""
        if isinstance(failure, BeyondBounds):
            self.engines.implausible(instance_of(target), ANSWERS, failure.words, now)

    def handed_over(self, target: str, now: float, *, named_blocks: bool) -> None:
        """Record that a prefill for another instance has ended at this target. `named_blocks`: whether its response
        names the KV blocks to fetch.
        """
        self.counters.unfetched += not named_blocks
        self.scheduler.handovers.note(instance_of(target), now, named_blocks=named_blocks)
        self.judge_handovers(target)

    def judge_handovers(self, target: str) -> None:
        """Record a trouble of the engine at this target if its responses to prefills for other instances name no KV
        blocks; otherwise remove the trouble.
        """
        instance = instance_of(target)
        in_vain = self.scheduler.handovers.in_vain(instance)
        computed = ["sessions that leave it are computed again"] * self.moves_caches
        computed += ["decode instances compute its prompts"] * self.divides
        words = (
            f"named no KV blocks in its last {in_vain} answers to prefills for other instances, so {' and '.join(computed)}; {_CONNECTOR}"
        )
        self.engines.found(instance, EngineTrouble.KV_NOT_HANDED_ON, words if in_vain and computed else None)

    def engine_worked(self, instance: str, now: float) -> None:
        """Record that an engine's response was complete."""
        self.scheduler.instance_worked(instance, now)
