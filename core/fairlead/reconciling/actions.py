"""What the operator may do to a pool's instances, one action per instance and round."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import InstanceState, Role


class DeletionReason(StrEnum):
    """Why a pod is deleted; also the reason of the event about it."""

    DRAINED = "Drained"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    NEVER_SERVED = "NeverServed"
    OUTDATED = "Outdated"
    POD_FAILED = "PodFailed"
    LOST_TOO_LONG = "LostTooLong"


class DrainReason(StrEnum):
    """Why an instance is emptied."""

    SCALED_DOWN = "ScaledDown"
    OUTDATED = "Outdated"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstance:
    """Create one pod of this role from the template with this hash.

    Its name follows from `ordinal` (see `naming`); one that exists is fine.
    """

    role: Role
    ordinal: int
    spec_hash: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """Write an instance's new state, and that it began now, on its pod."""

    instance: str
    before: InstanceState
    state: InstanceState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Mark an instance as draining since now: no new requests, sessions move away, the pod goes when it is empty.

    Never undone.
    """

    instance: str
    reason: DrainReason
    cost: float
    """What the victim choice took it to cost; the least of the candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInstance:
    """Delete the pod, with its usual grace period."""

    instance: str
    reason: DeletionReason


Action = CreateInstance | RecordState | Drain | DeleteInstance
