"""The messages that the operator and the control API exchange about one pool.

The operator sends everything it observes, after each change and at least every few seconds. A state that is sent twice
has the same effect as a state that is sent once (the exchange is level-triggered). The response has the facts that only
routers and Postgres know, such as the remaining sessions and requests of each instance. These dataclasses are the wire
format (JSON).
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fairlead.capabilities import EngineCapability
from fairlead.instances import InstanceState, Role
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.scaling.signals import PoolDemand, PoolSignals
from fairlead.schedules.windows import Window
from fairlead.tables import CanaryFacts, EarlyRejectionFacts, InstanceEngine, Outlook, PoolKey, PriorityClass, SloFacts

LONGEST_MESSAGE = 1024
"""Maximum length of a message, in bytes. The limit exists because a Postgres index entry holds at most 2,704 bytes."""

INSTANCES_STARTING = "InstancesStarting"
"""Ready's reason while instances start and nothing is wrong. Advice and pages show it as a notice, not as an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """One instance as the operator sees it.

    `address` is host:port, None until the pod has an IP; `reason` says why the instance is in this state; for
    `revision`, `engine` and `stays` see `fairlead.tables.InstanceEntry`.
    """

    id: str
    pod_uid: str
    address: str | None
    role: Role
    state: InstanceState
    reason: str
    node: str | None = None
    weight: float = 1.0
    restarts: int = 0
    revision: str = ""
    created_at: float
    engine: InstanceEngine | None = None
    stays: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulesInForce:
    """The settings that the spec's schedules put in force at the time `at`, by the operator's clock.

    `windows` are the open windows. `slo` and `early_rejection` are the pool's own settings with the overrides of these
    windows. `overruled` maps each schedule whose open window has no effect to the schedules that take precedence over
    it.
    """

    at: datetime
    windows: tuple[Window, ...]
    slo: SloFacts
    early_rejection: EarlyRejectionFacts
    overruled: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool as the operator sees it: the object's identity and verbatim spec, and all instances not yet gone.

    `changed_by` is the field manager that last wrote the spec (kubectl-client-side-apply, fairlead-api,
    argocd-controller, …). `paused` is set while the spec is refused, and `problem` says why: the last valid spec stays
    in force, and instances that serve are not changed. `scaling_decisions` are the newest decisions of each controller
    and role, repeated in each state; each decision is stored once.
    """

    uid: str
    generation: int
    resource_version: str
    spec: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    changed_by: str
    owners: dict[str, str] = field(default_factory=dict)
    """Maps members of the spec to their field managers; members without a manager are left out. If a member changed and
    the control API did not make the change, it records the member's manager as the author.
    """
    last_writer: str = ""
    """The field manager that last wrote any part of the spec; empty from operators that do not report it."""
    problem: str | None = None
    conditions: tuple[dict[str, Any], ...] = ()
    schedules: SchedulesInForce | None = None
    """The schedules' effect; None if no spec was ever in force, or the pool is being deleted."""
    desired: dict[str, int] = field(default_factory=dict)
    """Desired number of instances per role, from the object's status; empty if the status has none yet."""
    instances: tuple[InstanceReport, ...]
    outlook: Outlook = Outlook.UNKNOWN
    opens_at: float | None = None
    """Time when instances will be desired again (Unix seconds), as in the routing table; None if no such time is known.
    """
    scaling_decisions: tuple[ScalingDecisionRecord, ...] = ()
    objectives: tuple[PriorityClass, ...] = ()
    """Priority classes that InferenceObjectives add to the classes of the spec."""
    canary: CanaryFacts | None = None
    """The canary of the rollout in progress, as it appears in the routing table; None without a canary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """The verdict of the control API's canary judge: `verdict` is `go`, `wait` or `back`, `step` names the canary's
    step, and `reason` is a sentence.
    """

    step: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObservation:
    """The facts about one instance from the routers and the database.

    `acknowledged` = every live router routes by a table in which the instance has the state last reported. `in_flight`
    is summed over live routers. `cache_tokens` estimates the cached tokens that sessions would lose.
    """

    id: str
    in_flight: int
    bound_sessions: int
    cache_tokens: int
    acknowledged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTrouble:
    """A problem that routers see with an instance's engine: a `fairlead.reports.engines.EngineTrouble`, or the name of
    a trouble that only newer routers know.
    """

    instance: str
    trouble: str
    words: str
    seconds: float = 0.0
    """Seconds that the trouble has lasted, if the duration matters; the smallest value of all routers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedInstance:
    """An instance that is in the control API's record but not in the operator's new state, with its last recorded
    state.
    """

    id: str
    role: Role
    state: InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskObservation:
    """The tasks of one priority class that ended in the last hour. `tasks` is the number of tasks whose last turn got a
    response, and `in_time` is the number of these tasks that were in time. Tasks that broke off without a response are
    counted separately.
    """

    name: str
    tasks: int
    in_time: int
    broken_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObservations:
    """The control API's response to a PoolState.

    `live_routers` counts the routers that reported in the last 10 s (`FAIRLEAD_ROUTER_LIVE_SECONDS`). Attainments are
    shares (0-1) of requests of the last 5 minutes: requests with a first token are judged by TTFT, finished requests by
    TPOT and by both (`slo_attainment`). `signals` is None if nothing is measured, or if a router does not report the
    needed values. `demand` is None if no router reports demand. `figures_behind_seconds` is the delay of the control
    API's roll-ups if the delay is too long to use them, else 0. If it is not 0, attainments and signals are None, and
    the pool's idle time is unknown.
    """

    table_version: int
    table_acknowledged: bool
    live_routers: int
    ttft_attainment: float | None
    requests_per_second: float
    instances: tuple[InstanceObservation, ...]
    tpot_attainment: float | None = None
    slo_attainment: float | None = None
    signals: PoolSignals | None = None
    demand: PoolDemand | None = None
    troubled_engines: tuple[InstanceTrouble, ...] = ()
    figures_behind_seconds: float = 0.0
    capability: EngineCapability | None = None
    """The capability of an instance; None if the control API does not report it."""
    ended: tuple[EndedInstance, ...] = ()
    """The instances that ended because the PoolState no longer lists them."""
    departed: str = ""
    """A sentence about demand that is outside the band of the pool's forecast; empty while demand is within the band.
    While the text is not empty, schedules that follow the forecast are suspended.
    """
    canary: CanaryVerdict | None = None
    """The newest verdict about the canary's step; None if there is no verdict yet."""
    tasks: tuple[TaskObservation, ...] = ()
    """Results of tasks by priority class; empty if the spec has no targets of whole tasks, or if no task ended in the
    last hour.
    """
    record_lacks: str = ""
    """A warning that the control API's database lost commits within the last day; empty if it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPools:
    """The pools for which live routers hold requests."""

    pools: tuple[PoolKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnheardPools:
    """The pools whose state no operator has sent recently, except pools that `fairlead serve` reports."""

    pools: tuple[PoolKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvent:
    """An action that the operator took or refused, for history and audit: a scale step, a drain, a replacement, a
    policy change.

    Only the first `LONGEST_MESSAGE` bytes of a message are kept; the joint message of several admission webhooks may be
    longer.
    """

    at: float
    reason: str
    message: str
    instance: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if len(self.message) > LONGEST_MESSAGE // 4:
            object.__setattr__(self, "message", self.message.encode(errors="replace")[:LONGEST_MESSAGE].decode(errors="ignore"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvents:
    """Events of one pool, sent together."""

    events: tuple[PoolEvent, ...]
