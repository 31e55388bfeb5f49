"""Pools: their spec, their state and their history."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fairlead.capabilities import NOTHING_KNOWN, EngineCapability
from fairlead.tables import MIGRATIONS_MODES
from fairlead_client.resources.instances import InstanceCount, InstanceSummary, LearntOfEngines


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCondition:
    type: str
    status: str
    reason: str
    message: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """One pool.

    `attainment`, `slo_attainment`, `hit_rate`, `requests_per_second` and `rejections_per_second` cover the last 5
    minutes, and `sessions_moved`, `requests_rerouted` and `lost_moves` are counts of that time. A share is None without
    traffic. `figures_behind_seconds` is the lag of the control API's roll-ups if that exceeds half a minute, else 0.
    During such a lag, figures computed from the roll-ups (attainments, hit rate, requests) are None.
    `requests_per_second` is also None if no router reports. A lost move is a router's move of a session that another
    writer had moved first: the router served the request where it had sent it, but the session's binding and history
    are the first writer's. `slo_attainment` is the share of judged requests with TTFT and TPOT in time, for which
    `slo_percentile` (0-100) is the goal; `attainment` is the share of first tokens in time.
    `ttft_at_percentile_seconds` is the TTFT at that percentile, to be compared with `ttft_slo_seconds`. `state_digest`
    changes with the generation, the routing table, the conditions, the wanted numbers and the instances' states, and
    with nothing else. `owner` names the GitOps tool or the file that owns the pool, if any; the pool is then read-only
    here. `engines_file` names the file with the addresses of a pool whose engines run already (`fairlead serve`).
    `selector` has the labels of the running pods that the pool adopted, such as `app=vllm`. With either of them,
    Fairlead neither creates nor ends instances; if both are None, the instances are pods that the pool creates.
    `scale_target` names the workload of adopted pods that the pool scales, such as `Deployment vllm`, if it scales one.
    """

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
    requests_per_second: float | None
    rejections_per_second: float
    sessions_moved: int
    requests_rerouted: int
    table_version: int
    state_digest: str
    owner: str | None
    created_at: datetime
    asleep: int = 0
    """Instances that sleep until they are needed (`roles[].warm`)."""
    lost_moves: int = 0
    figures_behind_seconds: float = 0.0
    slo_attainment: float | None = None
    engines_file: str | None = None
    selector: str | None = None
    scale_target: str | None = None
    migrations: str = MIGRATIONS_MODES[0]
    """The spec's `routing.migrations`: whether sessions and queued requests may move."""

    @property
    def runs_already(self) -> bool:
        """Whether the pool's instances are started and ended elsewhere, and not by Fairlead."""
        return self.engines_file is not None or self.selector is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDetail:
    """One pool with its spec and its instances, which may be left out; `counts` always counts them.

    `desired` has the desired instances per role, as the operator has them: an InferencePoolRole, an open window of a
    schedule, the load or the ratio may set other numbers than the spec. `learnt` has a row for each live router and
    each quantity that it measured on the pool's engines; `capability` has an instance's figures, each from its best
    source: measured, fitted, declared or unknown. `conditions` are the conditions that the operator reported at
    `observed_at`; figures in them may be older by up to its resync pause (10 s by default).
    """

    pool: PoolSummary
    spec: dict[str, Any]
    generation: int
    conditions: list[PoolCondition]
    instances: list[InstanceSummary]
    live_routers: int
    table_acknowledged: bool
    desired: dict[str, int] = field(default_factory=dict)
    learnt: list[LearntOfEngines] = field(default_factory=list)
    capability: EngineCapability = NOTHING_KNOWN
    counts: list[InstanceCount] = field(default_factory=list)
    observed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRevision:
    number: int
    generation: int
    at: datetime
    actor: str
    reason: str | None
    spec: dict[str, Any]
    diff: list[dict[str, Any]]
    """The changes from the previous revision, like a JSON patch: a list of {op, path, before, after}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEventItem:
    at: datetime
    reason: str
    message: str
    instance: str | None
