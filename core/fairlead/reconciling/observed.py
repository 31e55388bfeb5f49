"""What a plan is made of: the wish, and the instances as the cluster shows them."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.instances import InstanceState, Role


class PodHealth(StrEnum):
    """A pod in the only words that matter for planning."""

    PENDING = "Pending"
    """No IP yet, or no container runs yet."""
    RUNNING = "Running"
    """Containers run, not ready."""
    READY = "Ready"
    UNREACHABLE = "Unreachable"
    """Its node stopped reporting; it may still run."""
    FAILED = "Failed"
    """Ended for good; it never comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInstance:
    """One pod of the pool. Times are Unix seconds; `state` and `state_since` are what was last recorded on the pod."""

    id: str
    role: Role = Role.BOTH
    health: PodHealth
    state: InstanceState
    state_since: float
    spec_hash: str
    created_at: float
    terminating: bool = False
    """Somebody deleted the pod; it is in its grace period."""
    draining_since: float | None = None
    ordinal: int = 0
    """Which of the pool's instances it is, counted from 1; 0 = made before they were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRole:
    """What the spec in force wants of one role."""

    role: Role = Role.BOTH
    replicas: int
    min_replicas: int
    max_replicas: int
    spec_hash: str
    drain_timeout_seconds: float
    prefill_tokens_per_second: float = 6250.0
    """Turns cached tokens into the seconds a session would wait elsewhere (victim choice)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How patient and how fast reconciling is."""

    creations_per_second: int = 16
    """Most pods of a pool created within one second."""
    failed_backoff_seconds: float = 10.0
    """A failed pod is replaced at this age at the earliest, so that a pod that cannot start is not recreated in
    a loop.
    """
    lost_timeout_seconds: float = 60.0
    """An instance lost for so long is replaced."""
