"""The interface of schedulers: the calls of a router or simulator, and their results.

The `Scheduler` owns accounting, queues (late binding), admission, bindings and the records to report; its caller owns
time, transport and retries. There is one scheduler per pool and process; it is not thread-safe and need not be.
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
    """An order to send this request to this instance now, or to this data-parallel rank of the instance. `fallbacks`
    are for retries before the first byte. All of these are targets (`fairlead.targets`).
    """

    request: RoutingRequest
    instance: str
    address: str
    fallbacks: tuple[str, ...]
    decision_id: str
    reason: DecisionReason
    hit_tokens: int
    """Prompt tokens that are not computed, because the instance holds or fetches them."""
    miss_tokens: int
    decode: str | None = None
    """The instance that decodes, when `instance` only prefills."""
    decode_address: str | None = None
    transfer_from: str | None = None
    """The instance from which to fetch KV blocks of the prompt before the rest is computed."""
    transfer_tokens: int = 0
    transfer_seconds: float | None = None
    """Predicted seconds until these blocks have arrived; None if engines fetch without being asked."""
    longest_transfer_seconds: float = 0.0
    """Seconds after which the instance should compute these blocks instead of waiting for them."""
    by_events: bool = False
    """Whether `hit_tokens` comes from the instance's own KV events rather than the router's memory."""
    by_guess: bool = False
    """Whether some of these hits are only expected: no KV event has reported them yet."""
    kept: bool = False
    """Whether the decision is certain to be kept because the client, or a person who watches the session, asked for
    that.
    """
    traced: bool = False
    """Whether the request belongs to a trace that is certain to show it: the decision is kept, however the request
    ends.
    """
    compared: tuple[CandidateScore, ...] = ()
    """The chosen candidate and the next best candidates, if the request asked for them and this router placed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An order not to serve this request. `status` is 429 (contended) or 503 (no instance serves);
    `retry_after_seconds` > 0.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRecords:
    """Records since the last `take_records`, to be put into a report."""

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
    """Records lost since the last take because they were not taken in time."""
    traced: tuple[TracedRequest, ...] = ()
    """The requests of `decisions` that belong to a trace; they are not part of a report."""
    unkept_decisions: int = 0
    """Number of decisions of late, refused, moved, failed or retried requests that were not kept since the last take,
    because there were more than are kept in a minute. The weights of the kept rows account for these decisions.
    """


@value
class PrefixMemory:
    """The blocks that an instance is believed to hold: chained hashes of 8 bytes, little-endian, least recently used
    first.

    `uid` is the pool's, `address` the engine's. Hashes with another `block_bytes` cannot be compared. `kept_at` is in
    Unix seconds.
    """

    pool: PoolKey
    uid: str
    instance: str
    address: str
    block_bytes: int
    kept_at: float
    blocks: bytes


class Scheduler(Protocol):
    """The scheduler of one pool: everything between a parsed request and the wire. Pure: the caller passes `now` (Unix
    seconds, never going back).

    A submitted request ends in exactly one of: refused, completed, failed, cancelled, declined. Until then the counters
    include it, and after that they do not. The instances of the table are targets (`fairlead.targets`); failures and
    successes may be reported for a target or for the whole instance.
    """

    @property
    def learns_online(self) -> LearnsOnline | None:
        """The current policy, if it learns from finished requests."""

    @property
    def binds_beginnings(self) -> bool:
        """Whether the current policy binds requests without a session by how they begin."""

    @property
    def assumed_routers(self) -> int:
        """The number of routers, including this one, that are assumed to have as much in flight as this one: the live
        routers that do not report their work.
        """

    @property
    def caches(self) -> EngineCaches:
        """The blocks that engines report to hold; the caller adds the engines' events, if the engines send any."""

    @property
    def handovers(self) -> Handovers:
        """The engines that hand no KV blocks on. The caller records divided prompts in it; `transferred` records
        fetches.
        """

    def submit(self, request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Admit, choose, queue. The result may dispatch or refuse this request, and may also dispatch other requests
        that moved; an accepted request that is not in the result waits in a queue.
        """

    def tick(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Dispatch what may go, refuse what waited too long, rebalance.

        Call after every event and at least every 50 ms while something waits.
        """

    def prefilled(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the prompt is computed on `Dispatch.instance`. The request continues at `Dispatch.decode`, which
        has no token yet. For callers that can see this moment; until the first token, `retry` is possible. Under early
        rejection mode AfterPrefill the result may refuse the request.
        """

    def first_token(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the first token has arrived, so the prompt is computed too, if that was not reported before.
        Under early rejection mode AfterPrefill the result may refuse the request.
        """

    def transferred(self, request_id: str, now: float, transfer: CacheTransfer | None = None) -> None:
        """Record that the KV blocks that the request fetches (`Dispatch.transfer_from`) have arrived, or never will, as
        `transfer` says.

        Optional: the first token implies that they have arrived.
        """

    def copy_due(self, turns: Iterable[KeptTurn], now: float) -> PrefixCopy | None:
        """Return the copy of a shared prefix that the caller should make now; None if no copy gains enough. `turns` are
        the candidates, newest first. Call `copied` once for each copy returned.
        """

    def copied(self, copy: PrefixCopy, transfer: CacheTransfer, now: float) -> None:
        """Record how the copy ended, as `transfer` says."""

    def generated(self, request_id: str, now: float, output_tokens: int) -> None:
        """Report how many tokens of the answer have arrived so far.

        Optional, because `complete` reports the total; with it, the load of long answers is known earlier.
        """

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Dispatch | Refusal, ...]:
        """Record that the request was answered completely.

        `cached_tokens` is the engine's own count of cached prompt tokens, if reported (usage.prompt_tokens_details).
        """

    def retry(
        self, request_id: str, now: float, failed_instance: str, *, reached: bool = True, to: str | None = None
    ) -> Dispatch | Refusal:
        """Retry the request, whose instance failed before the first byte: return the next fallback that still accepts,
        or a refusal (upstream-failed). If the decode instance failed, the prefill stays where it is, and another
        instance decodes. With `to`, the caller's own proxy has already retried, and the instance `to` of the table
        answered; for a divided request `to` is another decode instance.

        An instance that was not `reached`, because it refused the connection, is not tried again. It is not an attempt:
        it cost nothing, and when many instances are lost at once, the next ones may be dead too.
        """

    def carry_on(
        self, request_id: str, now: float, left: str, *, carried_tokens: int, why: str, unlike: str | None = None
    ) -> Dispatch | None:
        """Continue an answer that has begun and that instance `left` will not end. Return the instance to ask for the
        rest, which first computes the prompt and `carried_tokens` of the answer; None, with nothing changed, if no
        other instance remains.

        `why` is how `left` failed, or `HANDED_OVER`; `unlike` is recorded and says why the rest may differ from what
        `left` would have generated. A later `first_token` reports that the answer continues.
        """

    def can_carry_on(self, request_id: str, now: float, left: str) -> bool:
        """Return whether `carry_on` would now find an instance for the answer other than `left`, and one that did not
        fail last.
        """

    def second_opinion(
        self, request_id: str, now: float, instance: str, *, counts: bool, reached: bool = True, beyond: Collection[str] = ()
    ) -> Dispatch | None:
        """Return another instance to try, after `instance` refused the request as invalid (4xx); others may accept it.
        None if there is no other, and the request stays where it was. If the other instance serves it and the refusal
        `counts`, the refusal was a failure of the first instance.

        If the instance was not `reached`, it was sent nothing, so this is not an attempt. From now on the request may
        also go to the instances `beyond` those to which it was restricted (`RoutingRequest.within`).
        """

    def attempt_failed(self, request_id: str, instance: str, failure: str, now: float) -> None:
        """Record that an instance failed the request, without any other effect; call it before `retry`,
        `second_opinion` or `fail`. `failure` is the caller's word for the fault.
        """

    def fail(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the request was lost after its first byte, or that its client gave up."""

    def cancel(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the client disconnected."""

    def decline(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Record that the engine refused the client's request as invalid (4xx); this does not count as a failure."""

    def instance_failed(self, instance: str, now: float, fault: Fault = Fault.UNREACHED, request_id: str | None = None) -> None:
        """Report a failure to the circuit breaker, before `retry` or `fail` ends the attempt. A later run of the
        request on another instance shows whether the instance or the request was at fault.
        """

    def instance_heard(self, instance: str, now: float) -> None:
        """Record that the engine's HTTP server answers health and metrics requests."""

    def instance_worked(self, instance: str, now: float) -> None: ...

    def instance_stalled(self, target: str, now: float, *, stalled: bool) -> None:
        """Record that the engine, or this rank of it, has work but makes no progress (`stalled`), or progresses again.

        A stalled target gets no request that another target can take, and requests waiting for it are placed elsewhere;
        the next `tick` returns the resulting dispatches.
        """

    def take_given(self, target: str) -> GivenWork:
        """Return the work in progress at this instance's engine, and the longest prefill that has ended there since the
        last call.
        """

    def broken(self, now: float) -> Collection[str]:
        """Instances that get no requests: their circuit is open, or their engine is stalled at all of its ranks."""

    def observe_engine(self, target: str, kv_usage: float | None, now: float, waiting: int | None = None) -> None:
        """Record a reading of the engine's own metrics, for the instance or for this rank of it: the used share of its
        KV cache (0-1), and the number of requests that it has not begun to compute; None for a value that could not be
        read.
        """

    def prefill_estimate(self, instance: str | None = None) -> EstimateReport:
        """Prefill times of one instance or of all, and how well they are predicted."""

    def decode_estimate(self, instance: str | None = None) -> EstimateReport:
        """Decode times per token of one instance or of all, and how well they are predicted."""

    def prefill_figure(self, now: float, instance: str | None = None) -> Figure:
        """Uncached prompt tokens per second of an instance or of all: measured, else recalled, else declared."""

    def decode_figure(self, now: float, instance: str | None = None) -> Figure:
        """Seconds per output token after the first, as one request sees it on that instance; unknown before any
        observation.
        """

    def update_table(self, table: RoutingTable, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Put a newer table in force: rings are rebuilt, queued requests of instances that stopped accepting are
        re-routed, and dispatched requests stay.
        """

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        """Take over bindings from the API (other routers' sessions, drains, lost races), and return how many moves of
        sessions were lost. A version not newer than the known one is ignored, unless it comes with the ids of own
        changes that `lost` against it.
        """

    def prefix_memories(self, now: float) -> tuple[PrefixMemory, ...]:
        """Return the prompt prefixes that each instance is believed to hold, to be kept for the next start of
        a router.
        """

    def recall_prefixes(self, memories: Iterable[PrefixMemory], now: float) -> int:
        """Restore the prefixes that an earlier process knew, once the table is in use; outdated parts are ignored.
        Returns the number of instances for which something was restored.
        """

    def engine_memory(self, now: float) -> EngineMemory:
        """Return the speed and decode steps that this router measured on one target, to be kept for a router that
        starts. Unmeasured figures are unknown.
        """

    def recall_engines(self, memory: EngineMemory | None, now: float) -> None:
        """Use earlier observations of one target, valid for the current table. Each figure is used until it is measured
        here. None: there are no observations.
        """

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None:
        """Restore changes that this router made before a restart and that the API may not have answered, oldest first.
        Call this after applying the last known bindings.
        """

    def report_missing(self, sessions: Collection[str], now: float) -> int:
        """Report again the homes of sessions that the API has confirmed and that are not among `sessions`, which are
        all that the API knows now: its database may have been restored from an older state. Returns how many sessions
        the API lacks.
        """

    def keep_sessions(self, sessions: Mapping[str, float]) -> None:
        """Keep all decisions of exactly these sessions of the pool, each until its time (Unix seconds)."""

    def know_routers(self, count: int) -> None:
        """Set the number of live routers, this one included, that send to the pool's instances; 1 until it is set. It
        scales figures that a router sees for its own requests only.
        """

    def share(self, why: str, now: float) -> PoolShare | None:
        """This router's load report for the other routers, to be sent about once a second. None while one router
        decides for all. `why` says why this router decides alone.
        """

    def know_others(self, share: OthersShare, now: float) -> None:
        """Take over the work of the other routers that decide alone. It replaces the previous share and is dropped once
        it is too old. A router that asks a decider ignores it.
        """

    def give_up(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Refuse a request that still waits here, because its time is over; a dispatched request continues."""

    def shut_down(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Refuse all requests that still wait here, because the router stops; dispatched requests continue."""

    def held(self) -> HeldDemand:
        """Return the demand of requests that wait because no instance accepts any."""

    def in_flight(self) -> tuple[InstanceInFlight, ...]: ...

    def carried(self) -> tuple[InstanceInFlight, ...]:
        """Like `in_flight`, but only requests that clients sent to this router, without those of the routers for which
        it decides.
        """

    def take_records(self, now: float, *, samples: bool = True, final: bool = False) -> SchedulerRecords:
        """Hand over all records since the last call; without `samples` only history. The current second is kept for the
        next call unless this is the `final` one.
        """
