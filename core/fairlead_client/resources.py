"""The public API's resources: what `/v1` answers, and what the web UI, the command line and scripts decode.

One definition for both sides: the API serves these dataclasses, the client decodes them. Times are RFC 3339 in UTC (datetime), durations
seconds, amounts tokens, shares 0-1. `pool` is always `namespace/name`.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from fairlead.routing.contracts.weighing import Rule, Term
from fairlead.routing.explanations.policy_terms import LimitValue

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a list. `next_cursor` None = the last page; a page before it may hold fewer items than asked for, or none, when filters
    are combined that take long to look for. `total` is exact up to 1,000; beyond, or when not all was looked at, it is None and
    `total_at_least` says how many there are at least."""

    items: list[Item]
    next_cursor: str | None = None
    total: int | None = None
    total_at_least: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    type: str
    status: str
    reason: str
    message: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSummary:
    """`key_share` is the share of the hash ring owned (0 unless accepting); load figures are of the newest complete second."""

    id: str
    pool: str
    state: str
    role: str
    address: str | None
    node: str | None
    reason: str
    weight: float
    key_share: float
    restarts: int
    created_at: datetime
    state_since: datetime
    in_flight: int
    running: int
    waiting: int
    pending_prefill_tokens: int
    kv_usage: float | None
    bound_sessions: int
    hit_rate: float | None
    ttft_p95_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTransition:
    at: datetime
    before: str | None
    after: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDetail:
    instance: InstanceSummary
    transitions: list[InstanceTransition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """`attainment`, `hit_rate`, `requests_per_second`, `rejections_per_second`, `migrations_per_hour`, `reroutes_per_hour`, `lost_moves_per_hour` are
    over the last 5 minutes (None: no traffic). A lost move is one a router made of a session that another writer had moved first: the request was served
    where it went, the session's home and history are the first writer's.
    `attainment` is meant at `slo_percentile` (0-100); `ttft_at_percentile_seconds` is the TTFT there, to be held against `ttft_slo_seconds`.
    `state_digest` changes with the generation, the routing table, the conditions and the instances' states, and with nothing else.
    `owner` names the GitOps tool that owns the object, if any: then it is read-only here."""

    namespace: str
    name: str
    model: str
    engine: str
    policy: str
    ready: bool
    ready_reason: str
    ready_message: str
    desired: int
    serving: int
    draining: int
    attainment: float | None
    slo_percentile: float
    ttft_slo_seconds: float
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    ttft_at_percentile_seconds: float | None
    hit_rate: float | None
    requests_per_second: float
    rejections_per_second: float
    migrations_per_hour: float
    reroutes_per_hour: float
    table_version: int
    state_digest: str
    owner: str | None
    created_at: datetime
    lost_moves_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDetail:
    pool: PoolSummary
    spec: dict[str, Any]
    generation: int
    conditions: list[Condition]
    instances: list[InstanceSummary]
    live_routers: int
    table_acknowledged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRevision:
    number: int
    generation: int
    at: datetime
    actor: str
    reason: str | None
    spec: dict[str, Any]
    diff: list[dict[str, Any]]
    """JSON-patch-like list of {op, path, before, after} against the previous revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEventItem:
    at: datetime
    reason: str
    message: str
    instance: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapRow:
    """One instance's cells, oldest first; None = no data. `breaches` are the column indexes where an absolute limit was broken."""

    instance: str
    state: str
    role: str
    values: list[float | None]
    breaches: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """`metric` is one of METRICS; columns are `step_seconds` wide from `start`; cells are the maximum (or mean) of their seconds.
    `maximum` is the scale's top: the data's maximum, at least the limit; 1 for shares. `migrations_total` are all of the range; those in
    `migrations` are fewer only where there are more pairs of instances and columns than can be shown, and the busiest are kept."""

    pool: str
    metric: str
    unit: str
    aggregate: str
    scale: str
    start: datetime
    step_seconds: int
    columns: int
    maximum: float
    limit: float | None
    rows: list[HeatmapRow]
    migrations: list["HeatmapMigration"]
    migrations_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatmapMigration:
    """The `count` migrations from one instance to another within one column; `id`, `at` and `trigger` are the newest one's."""

    id: str
    at: datetime
    source: str
    target: str
    trigger: str
    count: int


METRICS = {
    "pending_prefill_tokens": "tokens",
    "running": "requests",
    "waiting": "requests",
    "in_flight": "requests",
    "kv_usage": "share",
    "ttft_p95": "seconds",
    "tpot_p95": "seconds",
    "hit_rate": "share",
    "requests": "requests/s",
    "failed": "requests/s",
}
"""Metrics a heatmap can show, with their unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    pool: str
    session: str
    instance: str | None
    version: int
    reason: str
    bound_at: datetime
    last_seen_at: datetime
    migrations: int
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingHistoryItem:
    """One holder of the session, from `bound_at` until `released_at` (None = now)."""

    instance: str
    version: int
    reason: str
    bound_at: datetime
    released_at: datetime | None
    router: str
    migration: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetail:
    session: SessionSummary
    history: list[BindingHistoryItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What migrations and re-routes have in common. Predictions are None where nothing could be predicted; `outcome` is the request's: underway,
    completed, failed, cancelled or refused."""

    id: str
    pool: str
    session: str | None
    request: str | None
    source: str
    target: str
    trigger: str
    at: datetime
    router: str
    predicted_source_ttft_seconds: float | None
    predicted_target_ttft_seconds: float | None
    benefit_seconds: float | None
    """Predicted for staying minus predicted for moving: negative when the move was predicted to cost time."""
    actual_ttft_seconds: float | None
    tokens_moved: int
    tokens_recomputed: int
    outcome: str
    explanation: str
    """What moved, why, what was promised and whether it came true, in sentences made from the other fields."""
    paid_off: bool | None
    """False when the real TTFT was not below the one predicted for staying, true when it was and a gain had been predicted, else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Move):
    """A bound session's home moved: a step of the session's history. `request` is the one that carried it, None when none did."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReRoute(Move):
    """A queued or unbound request went elsewhere; no session's home moved. `session` is only what the request named."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFlow:
    source: str
    target: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationMatrix:
    """Flows between instances, of migrations or of re-routes. Not more than the newest 10,000 of the range are counted: `complete` says
    whether those are all, and `counted_from` is the time from which on all are counted."""

    flows: list[MigrationFlow]
    by_trigger: dict[str, int]
    timeline: list["TimelineBucket"]
    total: int
    complete: bool = True
    counted_from: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBucket:
    at: datetime
    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTerm:
    instance: str
    hit_tokens: int
    miss_tokens: int
    pending_tokens: int
    predicted_ttft_seconds: float
    total: float | None
    terms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """A sampled decision. Which candidate wins follows from `rule`, the candidates' values of its terms, and `limits`: `terms` say in which unit
    and direction each counts (`total` is among them), `parts` name the terms whose sum the total is. `candidates` are the chosen one, the next best
    and the one passed over, out of `considered` instances. `ttft_seconds` is of `served_by`, which may be another instance after a re-route."""

    id: str
    pool: str
    request: str
    session: str | None
    at: datetime
    router: str
    policy: str
    table_version: int
    chosen: str
    runner_up: str | None
    reason: str
    prompt_tokens: int
    queued_seconds: float | None
    ttft_seconds: float | None
    sample_rate: float
    candidates: list[CandidateTerm]
    rule: Rule
    terms: list[Term]
    parts: list[str]
    limits: list[LimitValue]
    considered: int
    passed_over: str | None
    served_by: str | None
    explanation: str = ""
    """The choice in sentences, made from the fields above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionGroup:
    """`sparkline` is the count per bucket of the asked range, oldest first."""

    pool: str
    reason: str
    status: int
    count: int
    share: float
    first_at: datetime
    last_at: datetime
    sparkline: list[int]
    samples: list["RejectionSample"]
    suggestion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionSample:
    at: datetime
    request: str
    prompt_tokens: int
    retry_after_seconds: float
    predicted_ttft_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionReport:
    groups: list[RejectionGroup]
    total: int
    served: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SloVersion:
    version: int
    pool: str
    ttft_seconds: float
    tpot_seconds: float
    percentile: float
    active_from: datetime
    active_until: datetime | None
    attainment: float | None
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`chain` is the hash linking this entry to the one before it on the same day."""

    id: int
    at: datetime
    actor: str
    role: str
    source: str
    action: str
    object: str
    reason: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    result: str
    request_id: str | None
    plan: str | None
    chain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """An entry's place in the audit log's chain. Whoever keeps one elsewhere can prove later that nothing up to it was changed or cut off."""

    id: int
    chain: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerification:
    """Whether the audit log is whole. `first_broken` is the id of the first entry that does not fit or is gone, `missing` how many entries the
    newest head knows of and the log has not, `kept_head_holds` whether the head asked about is still in the chain (None: none was)."""

    intact: bool
    entries: int
    first_broken: int | None
    missing: int = 0
    head: AuditHead | None = None
    kept_head_holds: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """What applying would do, estimated from what is bound and flowing now.

    Sessions of a removed instance move to others, or are lost (`sessions_lost`) where none is left to take them. `predicted_attainment` is the
    share of requests whose TTFT would be in time, as `prediction_basis` says; both None where nothing flows, and then nothing is promised.
    """

    instances_added: int
    instances_removed: int
    victims: list[str]
    sessions_moved: int
    cache_tokens_lost: int
    predicted_attainment: float | None
    warnings: list[str]
    heavy: bool
    sessions_lost: int = 0
    prediction_basis: str | None = None
    """Heavy plans (to zero, or moving more than 10 % of sessions) want the pool's name and a reason to be applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A previewed change. `state` is open, applied, expired, superseded or undone; it can be applied until `expires_at` if the object did not change."""

    id: str
    pool: str
    kind: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    state: str
    diff: list[dict[str, Any]]
    effect: PlanEffect
    owner: str | None
    patch: str
    """The change as a kubectl-ready merge patch (YAML), to copy when GitOps owns the object."""
    applied_at: datetime | None = None
    applied_by: str | None = None
    undo_until: datetime | None = None
    undo_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlanRequest:
    kind: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """`confirm` must equal the pool's name and `reason` be given for heavy plans."""

    confirm: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who is asking. `role` is viewer, operator, admin, system-operator or system-router; `expires_at` None for a bootstrap token."""

    subject: str
    role: str
    source: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """`token` is a one-time login link's token, or an API token pasted by a person."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """A browser session. `token` goes into the cookie; the database holds only its hash."""

    token: str
    identity: Identity
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLinkRequest:
    role: str
    subject: str = "sandbox"
    minutes: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLink:
    token: str
    path: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    name: str
    role: str
    days: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenItem:
    """`secret` is present only in the answer that created it."""

    id: str
    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """RFC 9457 problem document. `field`, `value` and `remedy` are there when a person's input was wrong."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    field: str | None = None
    value: Any = None
    remedy: str | None = None
