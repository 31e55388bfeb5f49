"""The actions that the operator may take on a pool's instances, one per instance and round."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import InstanceState, Role


class CreationReason(StrEnum):
    """The reason why an instance is created; also the reason of its first state."""

    POOL_CREATED = "PoolCreated"
    """The pool never had an instance."""
    ADDED = "Added"
    """The role has fewer instances than desired, and this is not because an instance is being removed or has just
    ended.
    """
    REPLACING = "Replacing"
    """The instance replaces another instance that has ended, is being removed now, or will be removed once this
    instance serves.
    """
    ROLLOUT = "Rollout"
    """The instance has the new template and takes over from an instance with an old template."""


class DeletionReason(StrEnum):
    """The reason why a pod is deleted; also the reason of the event about the deletion."""

    DRAINED = "Drained"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    NEVER_SERVED = "NeverServed"
    OUTDATED = "Outdated"
    POD_FAILED = "PodFailed"
    LOST_TOO_LONG = "LostTooLong"
    NOT_WOKEN = "NotWoken"
    """The instance slept, and did not wake up in time."""
    SLEEPS_UNNEEDED = "SleepsUnneeded"
    """The instance sleeps and is not needed: more instances sleep than the pool keeps, or the instance has an outdated
    template.
    """
    OUT_OF_TURN = "OutOfTurn"
    """The instance occupies a device that it shares with other pools, although it is another pool's turn."""


class ReleaseReason(StrEnum):
    """The reason why an adopted pod is returned to its workload; also the reason of the event about the release."""

    NOT_SELECTED = "NotSelected"
    POD_FAILED = "PodFailed"
    POOL_DELETED = "PoolDeleted"


class DrainReason(StrEnum):
    """The reason why an instance is drained."""

    SCALED_DOWN = "ScaledDown"
    OUTDATED = "Outdated"
    ROLE_FLIP = "RoleFlip"
    REQUESTED = "Requested"
    """A person asked for the drain. Another instance replaces the drained instance, unless it is adopted."""
    STALLED = "EngineStalled"
    """Routers see that the instance's engine makes no progress; another instance replaces it."""
    NOT_SELECTED = "NotSelected"
    """No role selects the adopted pod any more. Or the pool created the pod itself, and the pod's role now selects pods
    instead.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstance:
    """Create one pod of this role from the template with this hash.

    Its name follows from `ordinal` (see `instance_name`); if a pod of that name exists, the action is already done.
    """

    role: Role
    ordinal: int
    spec_hash: str
    reason: CreationReason
    failures: int = 0
    """Number of consecutive failed instances before this instance."""
    replaces: str = ""
    """The instance that the new instance replaces; empty if that is not known yet."""
    claim: str = ""
    """The ResourceClaim of the shared device that the instance gets; empty if it shares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """Write the new state of an instance on its pod. The state begins at the time of the write."""

    instance: str
    before: InstanceState
    state: InstanceState
    reason: str
    restarts: int = 0
    """Number of restarts of the instance's containers when the state was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Mark an instance as draining from now on. Only a drain that a person asked for can be ended (`EndDrain`).

    The instance gets no new requests and its sessions move away. Once the instance is empty, its pod is deleted or,
    with `flip_to`, continues in that role.
    """

    instance: str
    reason: DrainReason
    cost: float
    """The cost computed for this instance when it was chosen, in disturbed requests."""
    flip_to: Role | None = None
    goes_first: bool = False
    """Whether the adopted pod gets the lowest deletion cost, so that its workload ends it before all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRole:
    """Give a drained instance's pod this role and let the pod warm up in the new role, in one write.

    The role may be the pod's present role. This is the case if the instance was drained for another role which no
    longer needs an instance, and the pod's own role needs one.
    """

    instance: str
    before: Role
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDrain:
    """Put an instance back into service because its drain was withdrawn. The instance warms up while it still serves
    its requests.
    """

    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInstance:
    """Delete the pod, with its usual grace period."""

    instance: str
    reason: DeletionReason
    group: str = ""
    """The LeaderWorkerSet that is deleted instead of the pod, with all pods of the group; empty for a single pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepInstance:
    """Ask a drained instance's engine to sleep. The instance stays Draining until the engine reports that it sleeps, so
    a repeated or lost request does no harm.
    """

    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeInstance:
    """Ask a sleeping instance's engine to wake up and, if `begins`, record that the instance is Starting. It stays
    Starting until its engine reports that it is awake.
    """

    instance: str
    begins: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseInstance:
    """Remove all labels and annotations that the pool wrote on an adopted pod. The pod keeps running but is no longer
    an instance.
    """

    instance: str
    reason: ReleaseReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWorkload:
    """Set the number of pods of the workload to which a role's instances belong, if the number is still `before`."""

    role: Role
    before: int
    replicas: int


Action = (
    CreateInstance
    | RecordState
    | Drain
    | EndDrain
    | FlipRole
    | DeleteInstance
    | SleepInstance
    | WakeInstance
    | ReleaseInstance
    | ScaleWorkload
)
