"""Instances: state, position on the ring and load."""

from dataclasses import dataclass, field
from datetime import datetime

from fairlead.capabilities import NOTHING_KNOWN, EngineCapability
from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import BindingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCount:
    """The number of living instances of a role in one state."""

    role: Role
    state: InstanceState
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSummary:
    """One instance.

    `key_share` is the instance's share of the hash ring (0 unless it accepts requests). Load figures are of the newest
    complete second, `hit_rate` and `ttft_p95_seconds` of the last five minutes.
    """

    id: str
    pool: str
    state: InstanceState
    role: Role
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
    before: InstanceState | None
    after: InstanceState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKnowledge:
    """The knowledge of one live router about the instance's prefix cache, like `KnownCache` in the routers' reports."""

    router: str
    state: str
    blocks: int
    lag_seconds: float | None
    gaps: int
    batches_lost: int
    restarts: int
    answered: int
    exact: int
    believed_tokens: int
    cached_tokens: int
    wrong_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntOfEngines:
    """A figure that one live router measured on an instance or on its whole pool, like `LearntFigure`
    in the reports.
    """

    router: str
    quantity: str
    learnt: float
    declared: float | None
    samples: int
    error: float | None
    declared_error: float | None
    in_use: bool
    predicted: float | None = None
    observed: float | None = None
    off_seconds: float = 0.0
    value: float | None = None
    value_samples: int = 0
    age_seconds: float | None = None
    p10: float | None = None
    p50: float | None = None
    p90: float | None = None
    line: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCondition:
    """A problem that `routers` live routers see in the instance's engine now.

    `reason` is a `fairlead.reports.engines.EngineTrouble`, or a name that only newer routers know; `seconds` is the
    problem's duration, 0 if unknown.
    """

    reason: str
    message: str
    seconds: float
    routers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """A data-parallel rank of the instance: its load in the newest complete second, and the number of sessions that are
    bound to it.
    """

    rank: int
    running: int
    waiting: int
    pending_prefill_tokens: int
    kv_usage: float | None
    bound_sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSession:
    """A session that is bound to this instance. `share` (0-1) is its context's share of all counted contexts."""

    session: str
    context_tokens: int
    share: float
    bound_at: datetime
    last_seen_at: datetime
    reason: BindingReason
    migrations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsHeld:
    """The sessions that are bound to this instance: the ten sessions with the largest contexts.

    `counted` sessions, the most recently seen, were counted, with `context_tokens` in total; `complete` says whether
    these are all sessions. A context is the number of tokens of its session's requests; only the engine knows how much
    of the context is still in its KV cache.
    """

    counted: int
    complete: bool
    context_tokens: int
    top: list[HeldSession]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDetail:
    """An instance with its caches, figures and ranks.

    `caches` has a row for each live router that knows the instance's prefix cache, and `learnt` a row for each router
    and quantity that the router measured on the instance. `ranks` has the data-parallel ranks, if there are several.
    `capability` has this instance's measured speeds or, without measurements, the declared speeds; the size of the KV
    cache and the bytes per token are the pool's, because routers measure them over all instances.
    """

    instance: InstanceSummary
    transitions: list[InstanceTransition]
    conditions: list[EngineCondition]
    caches: list[CacheKnowledge]
    learnt: list[LearntOfEngines]
    held: SessionsHeld
    ranks: list[RankLoad] = field(default_factory=list)
    capability: EngineCapability = NOTHING_KNOWN
