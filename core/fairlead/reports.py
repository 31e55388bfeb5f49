"""The reports by which routers tell the control API what they did.

One batch covers everything since the last one and is idempotent by its id: it is stored at most once however often it
is sent, so a router may resend it until it is acknowledged. These dataclasses are the wire format (JSON). All times
are Unix seconds as floats; all durations are in seconds; all amounts are in tokens.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from fairlead.tables import PoolKey
from fairlead.values import value

Pool = TypeVar("Pool")
"""The type by which a record names its pool: PoolKey in a report, `namespace/name` in the public API.

For the public API see `fairlead_client.resources`.
"""

Time = TypeVar("Time")
"""The type of a record's times: Unix seconds in a report, datetime in the public API."""


class BindingReason(StrEnum):
    """Why a session's KV home is where it is.

    `cold` first placement · `hot-migration` the instance that held it was hot · `slo` the other candidate of its
    pair could serve it sooner · `hotspot` moved with a queued request · `drain` its instance is leaving ·
    `instance-lost` its instance is gone or failing · `ring-change` its place on the ring changed because instances
    came or went · `prefix-key` its place changed because its prefix's key grew or shrank with the prefix's heat ·
    `operator` a person moved it.
    """

    COLD = "cold"
    HOT_MIGRATION = "hot-migration"
    SLO = "slo"
    HOTSPOT = "hotspot"
    DRAIN = "drain"
    INSTANCE_LOST = "instance-lost"
    RING_CHANGE = "ring-change"
    PREFIX_KEY = "prefix-key"
    OPERATOR = "operator"


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


class RejectionReason(StrEnum):
    """Why a request was refused; used as metric label, header and audit word."""

    PREDICTED_TTFT = "rejected-predicted-ttft"
    DECODE_OVERLOADED = "rejected-decode-overloaded"
    QUEUE_FULL = "rejected-queue-full"
    QUEUE_TIMEOUT = "rejected-ttl-expired"
    NO_INSTANCES = "rejected-no-endpoints"
    UPSTREAM_FAILED = "rejected-upstream-failed"
    SHUTTING_DOWN = "rejected-shutting-down"


@value
class BindingChange:
    """A session's home set or moved.

    The change says exactly which binding it replaces, and loses the race when the session no longer has that binding.
    `based_on` is the newest version the API has told this router (0 = none). `after` is the id of a later change by
    this router that the API has not answered yet, None when there is none. `id` is unique for ever; the
    MigrationRecord of the same move has the same id. A change with `previous` equal to `instance` is only a sign of
    life of a session that stays.
    """

    id: str = ""
    pool: PoolKey
    session: str
    instance: str
    previous: str | None = None
    reason: BindingReason
    at: float
    based_on: int = 0
    after: str | None = None
    context_tokens: int = 0


class MoveOutcome(StrEnum):
    """The fate of the request that carried a move; `underway` until it got its first token or ended without one."""

    UNDERWAY = "underway"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Generic[Pool, Time]):
    """The fields that a session migration and a re-route share, in routers' reports and in the public API.

    TTFTs are predictions, made at decision time, for the request that carried the move. `benefit_seconds` is their
    difference, negative when leaving was predicted to cost time. All are None where nothing could be predicted,
    because the source is gone or no request carried the move. `actual_ttft_seconds` is that request's real TTFT,
    None until it has one. Subclasses declare `pool` and `at` again with their types, since the OpenAPI document
    cannot express type variables.
    """

    id: str
    pool: Pool
    session: str | None
    request: str | None
    source: str
    target: str
    trigger: BindingReason
    at: Time
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float | None
    benefit_seconds: float | None
    """Predicted TTFT for staying minus that for moving: negative when the move was predicted to cost time."""
    actual_ttft_seconds: float | None = None
    tokens_moved: int = 0
    tokens_recomputed: int = 0
    outcome: MoveOutcome = MoveOutcome.UNDERWAY


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRecord(Move[PoolKey, float]):
    """A session migration: the home of a bound session moved, at one of its requests or together with a queued one.

    It has the id of its BindingChange and travels in the same report; the API stores it exactly when that change binds.
    """

    pool: PoolKey
    at: float
    session: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRouteRecord(Move[PoolKey, float]):
    """A re-route: a request that was queued or already sent to one instance went to another.

    No session's home moved; `session` is only the session that the request named.
    """

    pool: PoolKey
    at: float
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOutcome:
    """The result of an earlier MigrationRecord or ReRouteRecord: the real TTFT of its request, or why it had none."""

    id: str
    pool: PoolKey
    actual_ttft_seconds: float | None
    outcome: MoveOutcome


@value
class CandidateScore:
    """One candidate of a decision.

    `total` is the value the policy compared, None when it compares nothing.
    `fairlead.routing.explanations.grounds` gives its unit and direction, and the possible `terms`.
    `predicted_ttft_seconds` is the policy's prediction, if it makes one.
    """

    instance: str
    hit_tokens: int
    miss_tokens: int
    pending_tokens: int
    predicted_ttft_seconds: float
    total: float | None
    terms: dict[str, float] = field(default_factory=dict)


@value
class Weighing:
    """How a policy came to its choice.

    It holds the rule that decided, the chosen candidate and the next best, the number of instances considered, the
    instance that another rule would have given (`passed_over`), and the thresholds and weights in force (`limits`).
    """

    rule: str
    candidates: tuple[CandidateScore, ...]
    considered: int
    passed_over: str | None = None
    limits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDecision(Generic[Pool, Time]):
    """A routing decision as a router reports it and as the public API shows it.

    `sample_rate` is the share of decisions recorded (0-1]; moves and refusals are always recorded. `ttft_seconds` is
    the TTFT the request finally had, at `served_by`: an instance other than `chosen` when the request was re-routed or
    moved meanwhile. Subclasses declare `pool` and `at` again with their types, as those of `Move` do.
    """

    id: str
    pool: Pool
    request: str
    session: str | None
    at: Time
    policy: str
    table_version: int
    chosen: str
    runner_up: str | None
    reason: DecisionReason
    prompt_tokens: int
    queued_seconds: float | None = None
    ttft_seconds: float | None = None
    sample_rate: float = 1.0
    served_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord(SampledDecision[PoolKey, float]):
    """A sampled decision with the values that were weighed for it."""

    pool: PoolKey
    at: float
    weighing: Weighing


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRecord:
    """Refusals of one cause in one second, with one sample request."""

    pool: PoolKey
    second: int
    reason: RejectionReason
    count: int
    status: int
    sample_request: str
    sample_prompt_tokens: int
    retry_after_seconds: float
    predicted_ttft_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """One instance in one second as this router saw it.

    Counts cover that second; gauges hold its last value. `ttft_seconds` and `tpot_seconds` hold every first token and
    every finished request of the second, at most 64 each by uniform sampling, so that percentiles can be computed over
    several routers and longer buckets. `kv_usage` (0-1) comes from the engine's metrics, None if unknown.
    """

    pool: PoolKey
    instance: str
    second: int
    running: int
    waiting: int
    pending_prefill_tokens: int
    in_flight: int
    kv_usage: float | None = None
    requests: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    ttft_seconds: tuple[float, ...] = ()
    tpot_seconds: tuple[float, ...] = ()
    ttft_within_slo: int = 0
    ttft_total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInFlight:
    """Requests this router has queued for or dispatched to an instance right now."""

    pool: PoolKey
    instance: str
    in_flight: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The table version of a pool this router is routing by."""

    pool: PoolKey
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterState:
    """A router's present state, true at `sent_at`: the tables it routes by and the work it has under way.

    It does not accumulate since the last report, as a batch does.
    """

    sent_at: float
    acknowledged: tuple[Acknowledgement, ...] = ()
    in_flight: tuple[InstanceInFlight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """The records of one router since its last batch, as they wait on the router's disk. `id` is unique for ever."""

    id: str
    router: str
    bindings: tuple[BindingChange, ...] = ()
    migrations: tuple[MigrationRecord, ...] = ()
    migration_outcomes: tuple[MigrationOutcome, ...] = ()
    reroutes: tuple[ReRouteRecord, ...] = ()
    reroute_outcomes: tuple[MigrationOutcome, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    rejections: tuple[RejectionRecord, ...] = ()
    loads: tuple[LoadSample, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ReportBatch):
    """A batch as it is sent, with the fields of RouterState added.

    When one post carries several neighbouring batches, the first has the whole state and the others only `sent_at`.
    """

    sent_at: float
    acknowledged: tuple[Acknowledgement, ...] = ()
    in_flight: tuple[InstanceInFlight, ...] = ()


@value
class Binding:
    """A session's current home as the API knows it, streamed to all routers.

    `version` grows by one with every move; `instance` None = unbound (expired). `change` is the id of the
    BindingChange that made the binding; by it a router recognises its own change.
    """

    pool: PoolKey
    session: str
    instance: str | None
    version: int
    reason: BindingReason
    bound_at: float
    migrated_at: float | None
    context_tokens: int = 0
    change: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReceipt:
    """The API's answer.

    `lost` are the ids of this report's changes that did not bind, `conflicts` the present bindings of their sessions.
    """

    id: str
    duplicate: bool
    conflicts: tuple[Binding, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router's last message: forget its in-flight counts and do not wait for its acknowledgements."""

    router: str
    at: float
