"""The interface of schedulers: the calls that a router or simulator makes, and their results.

The `Scheduler` owns accounting, queues (late binding), admission, bindings and the records for reports. Its caller owns
time, transport and retries. There is one scheduler per pool and process. It is not thread-safe.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.capabilities import Figure
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.reports.canaries import CanarySample
from fairlead.reports.decisions import CandidateScore, DecisionRecord
from fairlead.reports.engines import EngineMemory
from fairlead.reports.loads import HeldDemand, InstanceInFlight, LoadSample
from fairlead.reports.moves import CacheTransfer, MigrationOutcome, MigrationRecord, ReRouteRecord
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.reports.shares import OthersShare, PoolShare
from fairlead.routing.contracts.copies import KeptTurn, PrefixCopy
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.estimates import EstimateReport
from fairlead.routing.contracts.faults import Fault
from fairlead.routing.contracts.handovers import Handovers
from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.contracts.policies import LearnsOnline
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.traces import TracedRequest
from fairlead.tables import PoolKey, RoutingTable
from fairlead.values import value


@value
class Dispatch:
    """An order to send this request now to `instance`, which is an instance or one of its data-parallel ranks.
    `fallbacks` are the instances for retries before the first byte of the response. `instance` and `fallbacks` are
    targets (`fairlead.targets`).
    """

    request: RoutingRequest
    instance: str
    address: str
    fallbacks: tuple[str, ...]
    decision_id: str
    reason: DecisionReason
    hit_tokens: int
    """Prompt tokens that need not be computed, because the instance holds their KV blocks or fetches them."""
    miss_tokens: int
    decode: str | None = None
    """The instance that decodes, if `instance` only prefills; None otherwise."""
    decode_address: str | None = None
    transfer_from: str | None = None
    """The instance from which to fetch KV blocks of the prompt before the other blocks are computed; None = fetch
    nothing.
    """
    transfer_tokens: int = 0
    transfer_seconds: float | None = None
    """Predicted seconds until the blocks from `transfer_from` have arrived; None if the engines fetch blocks without a
    request to do so.
    """
    longest_transfer_seconds: float = 0.0
    """Seconds after which the instance should compute the blocks from `transfer_from` itself instead of waiting for
    them.
    """
    by_events: bool = False
    """Whether `hit_tokens` comes from the instance's own KV events rather than the router's memory."""
    by_guess: bool = False
    """Whether some tokens of `hit_tokens` are only assumed to be cached, because no KV event has reported them yet."""
    kept: bool = False
    """Whether the decision is certain to be kept, because the client or a person who watches the session requested it.
    """
    traced: bool = False
    """Whether the decision is certain to be kept because the request belongs to a trace. The trace shows the decision.
    """
    compared: tuple[CandidateScore, ...] = ()
    """The chosen candidate and the next best candidates, if the request asked for them (`scored`) and this router made
    the decision.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An order not to serve this request. `status` is the HTTP status, such as 429 (the pool has no room now) or 503
    (no instance serves); `retry_after_seconds` > 0.
    """

    request: RoutingRequest
    reason: RejectionReason
    status: int
    retry_after_seconds: float
    message: str
    predicted_ttft_seconds: float | None = None
    decision_id: str = ""
    """The id of the recorded decision; "" while no decision is recorded."""
    kept: bool = False
    """Whether the decision is certain to be kept, as in `Dispatch`."""
    is_final: bool = False
    """Whether the request is expected to fail again if it is retried. This is so if it failed in the same way on two
    instances, and neither instance has failed another request since it last served a request.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRecords:
    """The records made after the last call of `take_records`. They are the content of a report."""

    bindings: tuple[BindingChange, ...]
    migrations: tuple[MigrationRecord, ...]
    migration_outcomes: tuple[MigrationOutcome, ...]
    decisions: tuple[DecisionRecord, ...]
    rejections: tuple[RejectionRecord, ...]
    loads: tuple[LoadSample, ...]
    arrivals: tuple[ArrivalSample, ...] = ()
    slo_samples: tuple[SloSample, ...] = ()
    canary_samples: tuple[CanarySample, ...] = ()
    reroutes: tuple[ReRouteRecord, ...] = ()
    reroute_outcomes: tuple[MigrationOutcome, ...] = ()
    dropped: int = 0
    """Number of records dropped after the last call of `take_records`, because too many records waited to be taken."""
    traced: tuple[TracedRequest, ...] = ()
    """The requests of `decisions` that belong to a trace. They are not part of a report."""
    unkept_decisions: int = 0
    """Number of decisions that were not kept because of the limit per minute, although their requests were late,
    refused, moved, failed or retried; counted since the last call of `take_records`. The weights of the kept decisions
    account for them.
    """


@value
class PrefixMemory:
    """The blocks that an instance is believed to hold: chained hashes of 8 bytes each, little-endian, the least
    recently used first.

    `uid` identifies the pool, `address` the engine. Hashes of blocks with another `block_bytes` cannot be compared with
    these hashes. `kept_at` is in Unix seconds.
    """

    pool: PoolKey
    uid: str
    instance: str
    address: str
    block_bytes: int
    kept_at: float
    blocks: bytes


class Scheduler(Protocol):
    """The scheduler of one pool. It makes all decisions about a request between the parsing and the sending of the
    request. It does no I/O and reads no clock: the caller passes `now` (Unix seconds, never decreasing).

    A submitted request ends in exactly one way: refused, completed, failed, cancelled or declined. Until its end, the
    counters include the request. The instances of the table are targets (`fairlead.targets`). Failures and successes
    may be reported for a target or for a whole instance.
    """

    @property
    def learns_online(self) -> LearnsOnline | None:
        """The current policy, if it learns from finished requests; None otherwise."""

    @property
    def binds_beginnings(self) -> bool:
        """Whether the current policy binds requests without a session, using the beginnings of their prompts."""

    @property
    def assumed_routers(self) -> int:
        """Number of routers that are assumed to have as many requests in flight as this router: this router, and the
        live routers that do not report their work.
        """

    @property
    def caches(self) -> EngineCaches:
        """The blocks that the engines report to hold. The caller adds the engines' KV events, if the engines send KV
        events.
        """

    @property
    def handovers(self) -> Handovers:
        """The record of which engines transfer KV blocks. The caller records each request that prefilled and decoded on
        different instances; `transferred` records each fetch.
        """

    def submit(self, request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Admit the request, choose an instance and queue the request. The result may contain a dispatch or refusal of
        this request, and dispatches of other requests. If this request is not in the result, it was accepted and waits
        in a queue.
        """

    def tick(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Return dispatches of queued requests that may be sent now, and refusals of requests that have waited too
        long. The call also rebalances the queues.

        Call this after every event, and at least every 50 ms while a request waits.
        """

    def prefilled(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the prompt has been computed on `Dispatch.instance`. The request continues at `Dispatch.decode`,
        where no token has been generated yet. The call is only for callers that can observe this moment. `retry` is
        possible until the first token. In the early rejection mode AfterPrefill, the result may refuse the request.
        """

    def first_token(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the first token has arrived. If `prefilled` was not called, this also records that the prompt has
        been computed. In the early rejection mode AfterPrefill, the result may refuse the request.
        """

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None:
        """Record that the transfer of the KV blocks that the request fetches (`Dispatch.transfer_from`) has ended.
        `transfer` says whether the blocks have arrived.

        The call is optional: the first token implies that the blocks have arrived.
        """

    def copy_due(self, turns: Iterable[KeptTurn], now: float) -> PrefixCopy | None:
        """Return the copy of a shared prefix that the caller should make now; None if no copy would save enough.
        `turns` are the candidate prompts, newest first. Call `copied` once for each copy that is returned.
        """

    def copied(self, copy: PrefixCopy, transfer: CacheTransfer, now: float) -> None:
        """Record the end of the copy; `transfer` has the result."""

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        """Record the number of tokens of the answer that have arrived so far.

        The call is optional, because `complete` gets the total number. With the call, the scheduler knows the load of
        long answers earlier.
        """

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Dispatch | Refusal, ...]:
        """Record that the response to the request is complete.

        `cached_tokens` is the engine's own count of cached prompt tokens (usage.prompt_tokens_details); None if the
        engine reports none.
        """

    def retry(
        self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None
    ) -> Dispatch | Refusal:
        """Retry the request, whose instance failed before the first byte of the response. Return a dispatch to the next
        fallback that still accepts requests, or a refusal (upstream-failed). If the decode instance failed, only the
        decode moves to another instance.

        `to` is given if the caller's own proxy has already retried the request: it is the instance that responded. For
        a request with separate prefill and decode instances, `to` is the new decode instance.

        `reached` is False if the instance refused the connection. The instance is then not tried again, and the try
        does not count as an attempt. Such a try costs nothing, and when many instances are lost at once, the next tries
        may fail in the same way.
        """

    def carry_on(
        self, request_id: str, now: float, left: str, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        """Continue a response that has begun and that instance `left` will not finish. Return a dispatch for the rest
        of the answer. The instance of the dispatch first computes the prompt and `carried_tokens` tokens of the answer.
        If no other instance remains, return None and change nothing.

        `why` is the failure of `left`, or `HANDED_OVER`. `unlike` is the reason why the rest of the answer may differ
        from the answer that `left` would have generated; it is only recorded. A later `first_token` reports that the
        answer continues.
        """

    def can_carry_on(self, request_id: str, now: float, left: str) -> bool:
        """Return whether `carry_on` would now find an instance for the rest of the answer. `left` and the last instance
        that failed are excluded.
        """

    def second_opinion(
        self, request_id: str, now: float, instance: str, *, counts: bool, reached: bool = True, beyond: Collection[str] = ()
    ) -> Dispatch | None:
        """Return a dispatch to another instance, after `instance` refused the request as invalid (4xx), because another
        instance may accept the request. If there is no other instance, return None and change nothing. If `counts` is
        True and the other instance serves the request, the refusal is counted as a failure of `instance`.

        `reached` is False if nothing was sent to `instance`; the try then does not count as an attempt. If the request
        was restricted to certain instances (`RoutingRequest.within`), it may from now on also go to the instances in
        `beyond`.
        """

    def attempt_failed(self, request_id: str, instance: str, failure: str, now: float) -> None:
        """Record that an instance failed the request, without any other effect. Call it before `retry`,
        `second_opinion` or `fail`. `failure` is the caller's name for the kind of failure.
        """

    def fail(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the request failed after the first byte of its response, or that its client gave up."""

    def cancel(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the client disconnected."""

    def decline(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the engine refused the client's request as invalid (4xx). This does not count as a failure of the
        instance.
        """

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        """Record a failure for the circuit breaker. Call this before `retry` or `fail`. If the request runs on another
        instance later, the result shows whether the instance or the request was at fault.
        """

    def instance_heard(self, instance: str, now: float) -> None:
        """Record that the engine's HTTP server responds to health checks or metrics requests."""

    def instance_worked(self, instance: str, now: float) -> None: ...

    def instance_stalled(self, target: str, now: float, *, stalled: bool) -> None:
        """Record whether the engine, or this rank of the engine, is stalled: it has work but makes no progress.

        A stalled target gets no request that another target can take, and the requests queued for it are placed on
        other targets. The next `tick` returns the resulting dispatches.
        """

    def take_given(self, target: str) -> GivenWork:
        """Return the work in progress at the engine of this target, and the longest prefill that has ended there since
        the last call.
        """

    def broken(self, now: float) -> Collection[str]:
        """Instances that get no requests, because their circuit is open or because all ranks of their engine are
        stalled.
        """

    def observe_engine(self, target: str, kv_usage: float | None, now: float, waiting: int | None = None) -> None:
        """Record values from the engine's own metrics, for the instance or for this rank of it: the used share of its
        KV cache (0-1), and the number of requests whose computation has not begun. None stands for a value that could
        not be read.
        """

    def prefill_estimate(self, instance: str | None = None) -> EstimateReport:
        """Return the measured prefill times of one instance, with the errors of their predictions. Without an instance
        (None), the result is for all instances together.
        """

    def decode_estimate(self, instance: str | None = None) -> EstimateReport:
        """Return the measured decode times per token of one instance, with the errors of their predictions. Without an
        instance (None), the result is for all instances together.
        """

    def prefill_figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the prefill speed of an instance (None = of all instances together) in uncached prompt tokens per
        second. The speed is the measured speed, else the speed recalled from before a restart, else the declared speed.
        """

    def decode_figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the seconds per output token after the first that requests observe on the instance (None = on all
        instances together). Unknown before any observation.
        """

    def update_table(self, table: RoutingTable, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Use a newer routing table. The call rebuilds rings, and queues requests again whose instance stopped
        accepting requests. Dispatched requests stay where they are.
        """

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        """Apply bindings from the API: sessions of other routers, drains, and changes of this router that the API
        refused. Return the number of this router's session moves that the bindings undo.

        A binding whose version is not newer than the known version is ignored, unless the API refused changes of this
        router in favour of this version. `lost` has the ids of the refused changes.
        """

    def prefix_memories(self, now: float) -> tuple[PrefixMemory, ...]:
        """Return the prompt prefixes that each instance is believed to hold. The caller keeps them for the next start
        of a router.
        """

    def recall_prefixes(self, memories: Iterable[PrefixMemory], now: float) -> int:
        """Restore the prefixes that an earlier process recorded. Call this after the table is in use. Outdated parts
        are ignored. Return the number of instances for which something was restored.
        """

    def engine_memory(self, now: float) -> EngineMemory:
        """Return the prefill speed and the decode step times that this router measured on one target. The caller keeps
        them for the next start of a router. Figures that were not measured are unknown.
        """

    def recall_engines(self, memory: EngineMemory | None, now: float) -> None:
        """Use earlier observations of one target, which must be valid for the current table; None = there are no
        observations. Each figure is used until this scheduler has measured the figure itself.
        """

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None:
        """Restore changes, oldest first, that this router made before a restart and that the API may not have confirmed
        or refused. Call this after the last known bindings were applied.
        """

    def report_missing(self, sessions: Collection[str], now: float) -> int:
        """Queue a report for each session whose binding the API has confirmed but no longer knows. `sessions` are the
        sessions that the API knows now; its database may have been restored from an older state. Return the number of
        missing sessions.
        """

    def keep_sessions(self, sessions: Mapping[str, float]) -> None:
        """Keep all decisions of these sessions of the pool, each until the given time (Unix seconds). The sessions of
        an earlier call are replaced.
        """

    def know_routers(self, count: int) -> None:
        """Set the number of live routers, this one included, that send to the pool's instances; 1 until it is set.
        Figures that a router can observe only for its own requests are multiplied by this number.
        """

    def share(self, why: str, now: float) -> PoolShare | None:
        """Return this router's load report for the other routers, to be sent about once a second. None while one router
        decides for all. `why` is the reason why this router decides alone.
        """

    def know_others(self, share: OthersShare, now: float) -> None:
        """Record the work of the other routers that decide alone. The new record replaces the previous one, and is
        dropped once it is too old. If another router decides for this router, the call does nothing.
        """

    def give_up(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Refuse a request that still waits in this scheduler, because the caller no longer lets it wait. A dispatched
        request continues.
        """

    def shut_down(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Refuse all requests that still wait in this scheduler, because the router stops. Dispatched requests
        continue.
        """

    def held(self) -> HeldDemand:
        """Return the demand of the requests that wait because no instance accepts requests."""

    def in_flight(self) -> tuple[InstanceInFlight, ...]: ...

    def carried(self) -> tuple[InstanceInFlight, ...]:
        """Return the result of `in_flight` for the requests that clients sent to this router. Requests of other routers
        for which this router decides are left out.
        """

    def take_records(self, now: float, *, samples: bool = True, final: bool = False) -> SchedulerRecords:
        """Return all records made after the last call. If `samples` is False, only bindings, moves, refusals and counts
        of dropped records are returned. Counts for the current second are returned only if `final` is True; otherwise
        the next call returns them.
        """
