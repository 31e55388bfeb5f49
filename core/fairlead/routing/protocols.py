"""The seams of routing: what a policy sees and answers, and the scheduler a router or the simulator drives.

A policy is chosen by name, built from a routing table, and asked to choose. It sees a `PoolView` (what the accounting knows this instant),
never the network. The `Scheduler` owns accounting, queues (late binding), admission, bindings and the records to report; its caller owns time,
transport and retries. One scheduler per pool and process; nothing in it is thread-safe or needs to be.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from fairlead.instances import Role
from fairlead.reports import (
    Binding,
    BindingChange,
    BindingReason,
    CandidateScore,
    DecisionRecord,
    InstanceInFlight,
    LoadSample,
    MigrationOutcome,
    MigrationRecord,
    RejectionReason,
    RejectionRecord,
    ReRouteRecord,
    Weighing,
)
from fairlead.routing.decode_history import DecodeHistory
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead.values import value

if TYPE_CHECKING:  # vectors are made of loads, which are defined here
    from fairlead.routing.vectors import FloatVector, IntVector, PoolVectors


class DecisionReason(StrEnum):
    """Why the chosen instance was chosen."""

    ONLY_INSTANCE = "only-instance"
    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX_AFFINITY = "prefix-affinity"
    PREFIX_EQUAL = "prefix-equal"
    PREFIX_OUTWEIGHED = "prefix-outweighed"
    SLO_OVERLOADED = "slo-overloaded"
    SESSION_BOUND = "session-bound"
    SESSION_COLD = "session-cold"
    SESSION_HOT_MIGRATED = "session-hot-migrated"
    SESSION_HOST_GONE = "session-host-gone"
    HOTSPOT_MIGRATED = "hotspot-migrated"
    RANDOM = "random"
    FEWEST_REQUESTS = "fewest-requests"
    LOAD_IMBALANCED = "load-imbalanced"
    SHORTEST_TTFT = "shortest-ttft"
    BEST_SCORE = "best-score"
    PREFIX_EXPLORED = "prefix-explored"
    PREFIX_REPLICATED = "prefix-replicated"
    FALLBACK = "fallback"


@value
class RoutingRequest:
    """One request as routing sees it. `blocks` are chained 64-bit hashes of the full routing blocks of the prompt; times are Unix seconds."""

    id: str
    arrived_at: float
    prompt_tokens: int
    blocks: tuple[int, ...]
    first_bytes_hash: int
    """Hash of the whole prompt when it is shorter than one block, else of the first block: a key for prompts without blocks."""
    session: str | None = None
    max_output_tokens: int = 0
    streamed: bool = True
    """False: the caller cannot see the first token, so the scheduler takes the prefill as finished once its predicted time has passed."""
    priority: int = 0
    """Class of the request: 0 is served first and refused last."""


@dataclass(slots=True, kw_only=True)
class InstanceLoad:
    """Live accounting of one instance. Tokens are uncached prompt tokens as estimated when counted."""

    entry: InstanceEntry
    pending_prefill_tokens: int = 0
    """Queued here + dispatched without a first token yet."""
    pending_prefill_microseconds: int = 0
    """The same as predicted prefill time, each request's as estimated when counted."""
    dispatched_prefill_tokens: int = 0
    late_prefill_microseconds: int = 0
    """Of the predicted time, what belongs to queued requests that can no longer meet their TTFT target."""
    prefill_pace: float = 1.0
    """How long prefills take here over their prediction, smoothed: more than 1 where decodes hold them up."""
    history: DecodeHistory = field(default_factory=DecodeHistory)
    """Kept only while early rejection learns how long decode steps take."""
    waiting: int = 0
    """Requests queued in this router for it."""
    prefilling: int = 0
    """Dispatched, no first token yet."""
    decoding: int = 0
    decode_tokens: int = 0
    """Context tokens held by running decodes."""
    incoming: int = 0
    """Requests queued or prefilling on other instances that will decode here."""
    incoming_tokens: int = 0
    transfers_out: int = 0
    """Prefills on other instances that fetch KV blocks from here."""
    sessions: int = 0
    kv_usage: float | None = None
    last_first_token_at: float | None = None
    prefilling_since: float | None = None
    """When its uncached work last went from none to some; None while it has none."""
    broken_until: float = 0.0
    """Circuit open until then (Unix seconds): not a candidate."""
    lacks_decode: bool = False
    """A prefill instance while no instance takes decodes: not a candidate. Kept by the view."""

    def is_candidate(self, now: float) -> bool:
        """Whether new requests may be placed here at `now`: accepting, circuit closed, and able to prefill what someone will decode."""
        return self.broken_until <= now and self.entry.accepting and self.entry.role is not Role.DECODE and not self.lacks_decode

    def takes_decodes(self, now: float) -> bool:
        """Whether requests prefilled elsewhere may decode here at `now`: accepting, circuit closed, and not a prefill instance."""
        return self.broken_until <= now and self.entry.accepting and self.entry.role is not Role.PREFILL


class PoolView(Protocol):
    """What a policy may look at."""

    @property
    def table(self) -> RoutingTable: ...

    def candidates(self) -> Sequence[InstanceLoad]:
        """Accepting instances that prefill and whose circuit is closed, in stable order of id.

        Prefill instances are among them only while some instance takes decodes.
        """

    def decode_candidates(self) -> Sequence[InstanceLoad]:
        """Accepting instances of role decode whose circuit is closed (of role both when there is none), in stable order of id."""

    def load(self, instance: str) -> InstanceLoad | None: ...

    def hit_tokens(self, request: RoutingRequest, instance: str) -> int:
        """Leading prompt tokens the instance is believed to hold (< prompt_tokens: at least one token is always computed)."""

    def hit_tokens_everywhere(self, request: RoutingRequest) -> Mapping[str, int]:
        """Instances with a hit > 0 only."""

    def predicted_ttft_seconds(self, request: RoutingRequest, instance: str) -> float:
        """Time for what is pending there and this request's uncached tokens: by the table's speed, or as fitted when the policy asks for it."""

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Predicted time of one decode step over so many tokens and requests (TPOT); 0 while nothing is known of decode times."""

    def vectors(self) -> "PoolVectors":
        """Counters of `candidates()`, entry by entry."""

    def hit_vector(self, request: RoutingRequest) -> "IntVector":
        """`hit_tokens` on each of `candidates()`."""

    def ttft_vector(self, request: RoutingRequest, hits: "IntVector") -> "FloatVector":
        """Predicted TTFT in seconds on each of `candidates()`, if it held `hits` tokens of the prompt."""

    def prefill_vector(self, request: RoutingRequest, hits: "IntVector") -> "FloatVector":
        """Predicted seconds of the prefill alone on each of `candidates()`, if it held `hits` tokens of the prompt."""

    def binding(self, session: str) -> Binding | None: ...


@value
class Decision:
    """A policy's answer. `fallbacks` in order of preference; `alternate` the other member of a dual-hash pair, the only place the
    request may later be moved to while queued."""

    instance: str
    reason: DecisionReason
    fallbacks: tuple[str, ...] = ()
    alternate: str | None = None
    weigh: Callable[[], Weighing] = field(compare=False, repr=False)
    """What was compared, as long as nothing has changed since: called at once, and only for decisions that are recorded."""
    bind: BindingReason | None = None
    """Not None: the session's home becomes `instance`, for this reason."""
    session: str | None = None
    """The session `bind` is about, when the policy keeps bindings for requests that name none; None = the request's own."""
    overloaded: tuple[str, ...] = ()
    """Instances whose queues the policy asks to be rebalanced because of what it saw."""
    decode: str | None = None
    """Where the request should decode, when `instance` only prefills; None = the scheduler selects."""
    transfer_from: str | None = None
    """Whose KV blocks of the prompt's prefix `instance` should fetch instead of computing them."""
    ttft_seconds: float | None = None
    """The policy's own prediction for `instance`, when it differs from the view's (a transfer, say)."""

    @property
    def candidates(self) -> tuple[CandidateScore, ...]:
        """The chosen instance and the next best, as weighed."""
        return self.weigh().candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMove:
    """A queued request to be moved between queues, with the TTFTs predicted for it at both ends."""

    request: str
    source: str
    target: str
    source_ttft_seconds: float
    target_ttft_seconds: float


class QueuedRequest(Protocol):
    """A request waiting in an instance's queue, as a policy's rebalancing sees it: the scheduler's own record of it, valid while it is asked."""

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def instance(self) -> str: ...

    @property
    def alternate(self) -> str | None:
        """The only other instance it may be moved to."""

    @property
    def miss_tokens(self) -> int:
        """What it counts for on `instance`."""


class Policy(Protocol):
    """A routing policy. Deterministic given its seed, its history and the view."""

    @property
    def name(self) -> str: ...

    @property
    def binds(self) -> bool:
        """Whether this policy keeps session bindings."""

    @property
    def rebalances(self) -> bool:
        """Whether `rebalance` can ever return a move (the scheduler does not ask otherwise)."""

    def placements(self, request: RoutingRequest) -> tuple[str, ...]:
        """Where the request may wait under the current ring; empty = anywhere. Changes nothing."""

    def choose(self, request: RoutingRequest, view: PoolView, now: float) -> Decision:
        """Pick an instance. Called only when `view.candidates()` is not empty; must pick one of them."""

    def rebalance(
        self, overloaded: Sequence[str], queues: Mapping[str, Sequence[QueuedRequest]], view: PoolView, now: float
    ) -> Sequence[QueuedMove]:
        """Moves of queued requests to make now; most policies return none. A queue is put in order when it is first looked at."""

    def table_changed(self, table: RoutingTable) -> None:
        """The instances or parameters changed (rings are rebuilt here)."""


@value
class Dispatch:
    """Send this request to this instance now. `fallbacks` are for retries before the first byte."""

    request: RoutingRequest
    instance: str
    address: str
    fallbacks: tuple[str, ...]
    decision_id: str
    reason: DecisionReason
    hit_tokens: int
    """Prompt tokens not computed: held by the instance, or fetched."""
    miss_tokens: int
    decode: str | None = None
    """The instance that decodes, when `instance` only prefills."""
    decode_address: str | None = None
    transfer_from: str | None = None
    """The instance to fetch KV blocks of the prompt from before computing the rest."""
    transfer_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Do not serve this request. `status` is 429 (contended) or 503 (nobody serves); `retry_after_seconds` > 0."""

    request: RoutingRequest
    reason: RejectionReason
    status: int
    retry_after_seconds: float
    message: str
    predicted_ttft_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRecords:
    """What happened since the last `take_records`, to be put into a Report."""

    bindings: tuple[BindingChange, ...]
    migrations: tuple[MigrationRecord, ...]
    migration_outcomes: tuple[MigrationOutcome, ...]
    decisions: tuple[DecisionRecord, ...]
    rejections: tuple[RejectionRecord, ...]
    loads: tuple[LoadSample, ...]
    reroutes: tuple[ReRouteRecord, ...] = ()
    reroute_outcomes: tuple[MigrationOutcome, ...] = ()
    dropped: int = 0
    """Records lost since the last take because nobody took them in time."""


class Scheduler(Protocol):
    """Everything between a parsed request and the wire, for one pool. Pure: the caller passes `now` (Unix seconds, never going back).

    A submitted request ends in exactly one of: refused, completed, failed, cancelled, declined. Until then it is counted somewhere, and after that nowhere.
    """

    def submit(self, request: RoutingRequest, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Admit, choose, queue. The answer may dispatch this request, refuse it, or be about others (dispatches that moved requests caused);
        an accepted request that is not in the answer waits in a queue."""

    def tick(self, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Dispatch what may go, expire what waited too long, rebalance. Call after every event and at least every 50 ms while something waits."""

    def first_token(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """The prompt is computed. With prefill and decode instances the request goes on at `Dispatch.decode`; under early rejection mode
        AfterPrefill the answer may refuse it."""

    def transferred(self, request_id: str, now: float) -> None:
        """KV blocks the request was told to fetch (`Dispatch.transfer_from`) have arrived. Optional: its first token says it too."""

    def complete(self, request_id: str, now: float, output_tokens: int, cached_tokens: int | None) -> tuple[Dispatch | Refusal, ...]:
        """Finished well. `cached_tokens` is the engine's own count of cached prompt tokens if it told (usage.prompt_tokens_details)."""

    def retry(self, request_id: str, now: float, failed_instance: str) -> Dispatch | Refusal:
        """The instance failed before the first byte: the next fallback that still accepts, or a refusal (upstream-failed)."""

    def fail(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Lost after the first byte, or given up."""

    def cancel(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """The client went away."""

    def decline(self, request_id: str, now: float) -> tuple[Dispatch | Refusal, ...]:
        """The engine refused the request as its client made it (4xx): nobody's failure."""

    def instance_failed(self, instance: str, now: float) -> None:
        """Feed the circuit breaker: a connection error or 5xx."""

    def instance_worked(self, instance: str, now: float) -> None: ...

    def observe_engine(self, instance: str, kv_usage: float | None, now: float) -> None:
        """A fresh reading of the engine's own metrics."""

    def update_table(self, table: RoutingTable, now: float) -> tuple[Dispatch | Refusal, ...]:
        """Take a newer table live: rings rebuilt, queued requests of instances that stopped accepting are re-routed, dispatched ones stay."""

    def apply_bindings(self, bindings: Sequence[Binding], now: float, lost: Collection[str] = ()) -> int:
        """Bindings told by the API (other routers' sessions, drains, lost races). A version not newer than the known one is ignored, unless it comes
        with the ids of own changes that `lost` against it. Returns how many moves of sessions were lost."""

    def recall_changes(self, changes: Sequence[BindingChange], now: float) -> None:
        """What this router did before a restart and the API may not have answered, oldest first; after the last known bindings were applied."""

    def shut_down(self, now: float) -> tuple[Refusal, ...]:
        """Refuse everything that still waits here; dispatched requests go on. For a router that stops."""

    def in_flight(self) -> tuple[InstanceInFlight, ...]: ...

    def take_records(self, now: float, *, final: bool = False) -> SchedulerRecords:
        """Hand over what happened. Seconds still running are kept for the next take unless this is the `final` one."""
