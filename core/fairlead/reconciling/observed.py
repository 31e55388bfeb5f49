"""The inputs of a plan: the desired pool, and the instances as the cluster shows them."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.capabilities import Figure, declared
from fairlead.instances import InstanceState, Role
from fairlead.reconciling.devices import SharedDevices


class PodHealth(StrEnum):
    """The health of a pod, reduced to the values that planning needs."""

    PENDING = "Pending"
    """The pod has no IP yet, or none of its containers runs yet."""
    RUNNING = "Running"
    """Containers run but are not ready."""
    READY = "Ready"
    UNREACHABLE = "Unreachable"
    """The pod's node stopped reporting; the pod may still run."""
    FAILED = "Failed"
    """The pod has ended and never runs again."""


class EngineSleep(StrEnum):
    """Whether an instance's engine sleeps, as the engine itself reports it."""

    UNASKED = "Unasked"
    AWAKE = "Awake"
    ASLEEP = "Asleep"
    SILENT = "Silent"
    """The engine did not respond in time."""
    UNABLE = "Unable"
    """The engine has no endpoint for sleeping, or refused to sleep."""


WAKING = "Waking"
"""The reason of the state Starting: the instance slept, and is being woken."""

_LOSSES = {PodHealth.FAILED: "PodFailed", PodHealth.UNREACHABLE: "NodeUnreachable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInstance:
    """One pod of the pool. Times are Unix seconds; `state` and `state_since` are the values last recorded on the
    pod.
    """

    id: str
    role: Role = Role.BOTH
    health: PodHealth
    state: InstanceState
    state_since: float
    spec_hash: str
    created_at: float
    terminating: bool = False
    """The pod has been deleted and is in its grace period."""
    draining_since: float | None = None
    flip_to: Role | None = None
    """The role in which the pod continues after its drain; None = the pod is deleted then."""
    cordoned: bool = False
    """Whether a person cordoned the instance, so that it gets no new requests."""
    drain_requested: bool = False
    """Whether a person asked to drain and replace the instance."""
    drained_on_request: bool = False
    """Whether the instance drains because a person requested it."""
    drained_as_surplus: bool = False
    """Whether the instance drains because fewer instances are desired."""
    ordinal: int = 0
    """The instance's ordinal in the pool, counted from 1; 0 = created before instances had ordinals."""
    failures: int = 0
    """Number of consecutive instances that failed before this instance. This instance replaces the last of these failed
    instances.
    """
    health_reason: str = ""
    """Kubernetes' reason for the health, such as `Evicted`; empty if Kubernetes gives none."""
    restarts: int = 0
    """Number of restarts of the container that runs the instance's engine."""
    warmed_restarts: int | None = None
    """Number of restarts when the instance last had its full weight; None = it never had its full weight."""
    adopted: bool = False
    """Whether the pod belongs to a workload that the pool selects: Fairlead neither creates nor deletes it."""
    group: str = ""
    """Name of the LeaderWorkerSet whose leader is this pod; empty for an instance of one pod."""
    waking: bool = False
    """Whether the instance's recorded state is Starting because it is being woken."""
    sleep: EngineSleep = EngineSleep.UNASKED
    claim: str = ""
    """The ResourceClaim of the shared device that the pool gave the instance; empty if it shares none."""
    place: int = 0
    """The pod's ordinal in an ordered workload. The highest ordinal is removed first."""
    template: str = ""
    """The identifier of the template that an adopted pod was made from."""

    @property
    def counts(self) -> bool:
        """Whether the instance counts as one of its role's instances: it is neither being removed nor asleep."""
        return self.draining_since is None and not self.terminating and self.state is not InstanceState.ASLEEP

    @property
    def is_warm(self) -> bool:
        """Whether the engine process is the same process that reached its full weight. If so, the engine kept its cache
        although its pod was not ready for a while.
        """
        return self.warmed_restarts == self.restarts

    @property
    def loss_reason(self) -> str:
        """Return one word for the cause of the instance's loss; meaningful only if the instance is lost."""
        return self.health_reason or _LOSSES.get(self.health, "NotReady")


class RoleChange(StrEnum):
    """How an instance moves from a role with a surplus to a role that lacks an instance."""

    ROLE_FLIP = "RoleFlip"
    """Drain the instance, then let the same pod continue in the other role."""
    REPLACE = "Replace"
    """Drain and delete the instance, and create another instance in the other role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A rollout that a person paused or a regression stopped: no outdated instance is replaced.

    Lost instances are still replaced, and further instances are still created when more are desired. While a rollout is
    paused, each template keeps its number of instances, as each ReplicaSet of a paused Deployment does. After a
    regression the new template gets no more instances.
    """

    former_hash: str | None = None
    """Hash of the template that all instances had before the rollout; None = unknown, and the present hash is used
    instead.
    """
    updated: int = 0
    """Number of instances that keep the present template; 0 after a regression."""
    regressed: bool = False
    """Whether the present template made the pool worse. If so, instances with the present template are removed before
    instances with the former template.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryLimit:
    """A step of a canary: `updated` instances get the present template, and all other instances keep the former
    template. If the former template is unknown (None), new instances get the present template.
    """

    former_hash: str | None
    updated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBounds:
    """How a role's instances are replaced after a change of their template; see `fairlead.reconciling.rollouts`."""

    max_surge: int = 1
    max_unavailable: int = 0
    halt: Halt | None = None
    """The reason why the rollout is halted; None while it continues."""
    canary: CanaryLimit | None = None
    """The limit of the present canary step; None = the rollout replaces all instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """The steps in which a new instance gets its share of the ring's keys; see `fairlead.reconciling.warming`."""

    seconds: float = 0.0
    """Seconds until the instance has its full weight; 0 = it has its full weight at once."""
    first_weight: float = 0.25
    """The share (0-1) of its full weight that the instance has at first."""


UNDECLARED_SPEED = declared(6250.0)
_DEFAULT_BOUNDS = RolloutBounds()
_AT_ONCE = Warming()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload to which a role's adopted pods belong, according to its scale subresource."""

    replicas: int
    pods: int = 0
    """Present number of the workload's pods, from its status."""
    ordered: bool = False
    """Whether the workload always ends the pod with the highest ordinal first; otherwise it ends the pod with the
    lowest deletion cost first.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRole:
    """The desired state of one role, according to the spec in force.

    `min_replicas` is the lower bound in force: the role's own minimum, or the minimum of a schedule's open window if
    that is higher.
    """

    role: Role = Role.BOTH
    replicas: int
    min_replicas: int
    max_replicas: int
    spec_hash: str
    drain_timeout_seconds: float
    rollout: RolloutBounds = _DEFAULT_BOUNDS
    warming: Warming = _AT_ONCE
    nodes: int = 1
    """The number of pods of one instance."""
    asleep: int = 0
    """The maximum number of instances kept asleep."""
    devices: SharedDevices | None = None
    """The devices on which the role takes turns with other pools; None = it takes no turns."""
    adopts: bool = False
    """Whether the role's instances are pods that it selects; `spec_hash` is then the hash of the selected pods'
    template.
    """
    workload: Workload | None = None
    """The workload whose number of pods is set to `replicas`; None = the role has no workload, or the workload may not
    be scaled now.
    """
    replace_stalled_after_seconds: float = 60.0
    """Seconds after which an instance with a stalled engine is replaced; 0 = never."""
    prefill_speed: Figure = UNDECLARED_SPEED
    """The declared prefill speed in tokens per second, used if the control API has no better figure. When an instance
    must be removed, this speed converts its cached tokens into the seconds that its sessions would wait elsewhere.
    """

    @property
    def kept_hash(self) -> str:
        """Hash of the template whose instances are the last to be removed."""
        halt = self.rollout.halt
        return halt.former_hash if halt is not None and halt.regressed and halt.former_hash is not None else self.spec_hash

    @property
    def least_serving(self) -> int:
        """Number of instances that must keep serving: the role's minimum, and at least one for the roles prefill and
        decode.
        """
        return self.min_replicas if self.role is Role.BOTH else max(1, self.min_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredPool:
    """The desired state of a pool, according to the spec in force. It contains each role once."""

    roles: tuple[DesiredRole, ...]
    role_change: RoleChange = RoleChange.REPLACE

    def role(self, role: Role | None) -> DesiredRole | None:
        """Return the desired state of a role; None when the pool has no such role."""
        return next((wanted for wanted in self.roles if wanted.role is role), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Time limits and rates of reconciling."""

    creations_per_second: int = 16
    """Maximum number of pods of a pool created within one second."""
    failed_backoff_seconds: float = 10.0
    """Least age in seconds at which a failed pod is replaced, so that a pod that cannot start is not recreated in a
    loop.
    """
    lost_timeout_seconds: float = 60.0
    """Seconds for which an instance must have been lost before it is replaced."""
    longest_backoff_seconds: float = 300.0
    """Upper limit in seconds of the backoffs `failed_backoff_seconds` and `lost_timeout_seconds`, which double with
    each failure in a row. A configured backoff that is already longer than this limit is not shortened.
    """
    stable_seconds: float = 600.0
    """Seconds that an instance must have lived to reset the count of failures in a row, as in the kubelet's crash
    loop.
    """
