"""Types, reasons, and the facts from which the conditions are computed."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import Role
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.devices import Turn
from fairlead.reconciling.observed import DesiredRole, ObservedInstance
from fairlead.reconciling.rollout_progress import Rollout, RolloutTrouble
from fairlead.scaling.targets import RoleTarget
from fairlead.tables import TaskTarget


class ConditionType(StrEnum):
    READY = "Ready"
    INSTANCES_READY = "InstancesReady"
    RING_SYNCED = "RingSynced"
    PROGRESSING = "Progressing"
    SLO_MET = "SLOMet"
    CONTROL_PLANE_REACHABLE = "ControlPlaneReachable"
    DEGRADED = "Degraded"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"
    MIGRATIONS_PAUSED = "MigrationsPaused"
    GATEWAY_READY = "GatewayReady"
    FORECAST_HOLDS = "ForecastHolds"
    TASK_SLO_MET = "TaskSLOMet"
    HAS_DEVICES = "HasDevices"


class SpecRefusal(StrEnum):
    """The reason why a spec that passed the schema is refused; also the reason of Ready=False and of the event
    SpecRefused.
    """

    INVALID_SPEC = "InvalidSpec"
    INVALID_ROUTING = "InvalidRouting"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """A refused spec: the named reason, and one line with field, value and remedy."""

    reason: SpecRefusal
    message: str


class ActionFailureReason(StrEnum):
    """The reason why an action of the operator failed; also the reason of Degraded=True and of the event about the
    failure.
    """

    ACTION_FAILED = "ActionFailed"
    CHILD_NOT_OURS = "ChildNotOurs"
    OPERATOR_FAULT = "OperatorFault"
    """The operator has a fault: it failed while reconciling the pool, and will fail again until the situation changes.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """An action of the operator that failed: the named reason, and one line with the server's message or the remedy."""

    reason: ActionFailureReason
    message: str


class ScaleProblemReason(StrEnum):
    """The reason why a workload is not scaled; also the reason of Degraded=True."""

    MISSING = "ScaleTargetMissing"
    OTHER_PODS = "ScaleTargetOfOtherPods"
    AUTOSCALER = "ScaledByAutoscaler"
    OTHER_POOL = "ScaledByAnotherPool"
    REFUSED = "ScaleTargetRefused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleProblem:
    """A workload that a role names and that is not scaled, with the reason and one line with the remedy."""

    reason: ScaleProblemReason
    message: str


class GatewayProblemReason(StrEnum):
    """The reason why a pool with `spec.gateway` is not announced to any gateway; also the reason of
    GatewayReady=False.
    """

    NO_PICKER = "NoPicker"
    DEFINITION_MISSING = "DefinitionMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProblem:
    """The problem that keeps the operator from announcing the pool to gateways, and one line with the remedy."""

    reason: GatewayProblemReason | ActionFailureReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayJudgement:
    """A gateway's verdict on the pool, in the gateway's own words. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParent:
    """A gateway that routes to the pool, such as `Gateway infra/public`, and the status it reports for the pool."""

    name: str
    judgements: tuple[GatewayJudgement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFacts:
    """The state of a pool with `spec.gateway`: the gateways that route to the pool, or the reason why no gateway
    can.
    """

    problem: GatewayProblem | None = None
    parents: tuple[GatewayParent, ...] = ()


class NoRoom(StrEnum):
    """The reason why there is no room for an instance; also the reason of Degraded=True."""

    NODES = "Unschedulable"
    """No node has room for the pod; the reason that Kubernetes gives."""
    QUOTA = "WaitingForQuota"
    """Kueue has not admitted the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An instance that cannot run: Kubernetes' reason, such as `ImagePullBackOff`, and its message (may be empty)."""

    instance: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a pool's status, without its transition time, which is added later. `status` is True, False or
    Unknown.
    """

    type: ConditionType
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFacts:
    """The facts that determined every role's number of instances. `measured` are the roles with fresh signals.
    `answered` says whether the control API responded in this round, so that one late response does not look as if
    nothing were measured.
    """

    is_fixed: bool
    answered: bool
    targets: tuple[RoleTarget, ...]
    measured: frozenset[Role]
    is_measured: bool = False
    """Whether the wanted numbers follow from the measured load (mode SLO), and are not declared by a person or another
    controller.
    """
    sleeps: bool = False
    """Whether the pool stays without instances until a request arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHeard:
    """The control API's last response, which came at the Unix time `at`."""

    observations: PoolObservations
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The facts from which the conditions are computed.

    `desired` has an entry per role; it is empty when no valid spec was seen yet. `observations` None = the API did not
    respond, and `api_problem` says why. If both are None, the API was asked only a moment ago and may still respond.
    `apply_problem` says why the last action failed, if it did. `strangers` are pods that carry the pool's label and are
    not its instances. `scaling` None = no valid spec was seen yet.
    """

    problem: SpecProblem | None
    desired: tuple[DesiredRole, ...]
    instances: tuple[ObservedInstance, ...]
    observations: PoolObservations | None
    api_problem: str | None
    slo_percentile: float | None
    troubles: tuple[Trouble, ...]
    apply_problem: ActionFailure | None
    strangers: tuple[str, ...] = ()
    rollout: Rollout | None = None
    """The unfinished rollout, if any."""
    rollout_trouble: tuple[RolloutTrouble, str] | None = None
    """The reason why a rollout is stuck, as a code and in words."""
    canary: str = ""
    """The state of the rollout's canary, in words; empty without a canary."""
    scaling: ScalingFacts | None = None
    selecting_nothing: tuple[str, ...] = ()
    """Selectors of roles that match no pod."""
    scale_problems: tuple[ScaleProblem, ...] = ()
    gateway: GatewayFacts | None = None
    """The state of the pool's gateways; None if the spec does not ask for gateways."""
    migrations_paused: bool | None = False
    """Whether the spec forbids moving sessions; None = no valid spec was seen yet."""
    follows_forecast: bool = False
    """Whether the spec has a schedule that follows the pool's forecast."""
    task_targets: tuple[TaskTarget, ...] = ()
    """The spec's targets of whole tasks."""
    unused_objectives: tuple[str, ...] = ()
    """InferenceObjectives that name a class no request can have, each with the reason."""
    last_heard: LastHeard | None = None
    """The API's last response. It is given only while the API does not respond and only if the shares of requests in
    that response are still recent; None otherwise.
    """
    turn: Turn | None = None
    """The pool's state in taking turns on shared devices; None if the pool takes no turns."""

    @property
    def by_role(self) -> tuple[tuple[DesiredRole, tuple[ObservedInstance, ...]], ...]:
        """Every desired role with its instances."""
        return tuple((role, tuple(instance for instance in self.instances if instance.role is role.role)) for role in self.desired)
