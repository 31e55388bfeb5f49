"""The devices that pools of a namespace share, the pods that use them, and the pools that take turns on them.

A device is named by its ResourceClaim: the pods that name the same claim get the same device. A pod has left its device
only if the pod has ended, or if it is recorded as Asleep and its engine confirms that it has freed the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.instances import ACCEPTING, InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUser:
    """A pod that uses a shared device. `since` is the time at which its recorded state began (Unix seconds)."""

    claim: str
    pod: str
    pool: str = ""
    """The pool to which the pod belongs as an instance; empty if the pod is not an instance."""
    state: InstanceState | None = None
    """The recorded state; None if the pod is not an instance."""
    since: float = 0.0
    leaving: bool = False
    """Whether the pod is being deleted, or drains."""
    off: bool = False
    """Whether the pod has left its device."""
    unsure_since: float | None = None
    """The time since which the engine of a sleeping instance has not confirmed that it left its device (Unix seconds);
    None otherwise.
    """

    @property
    def goes(self) -> bool:
        """Whether the pod is about to leave its device: it is being deleted, drains, or falls asleep."""
        return self.leaving or self.state is InstanceState.ASLEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTaker:
    """A pool that takes turns on the devices of `claims`; `least` is its minimum number of instances."""

    pool: str
    claims: tuple[str, ...]
    priority: int = 0
    least: int = 0
    at_least_seconds: float = 60.0
    waiting_since: float | None = None
    """The time since which the pool has waited for a device, according to the pool's own condition (Unix seconds); None
    if it does not wait.
    """
    idle: bool = False
    """Whether the pool has had no request for `at_least_seconds`, according to the pool's own condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDevices:
    """The facts from which one pool takes turns: `own` is this pool, `others` are the other pools that take turns."""

    own: TurnTaker
    others: tuple[TurnTaker, ...] = ()
    users: tuple[DeviceUser, ...] = ()
    free_since: Mapping[str, float] = field(default_factory=dict)
    """By claim, the time since which the operator has seen the claim's device free (Unix seconds). A claim that is
    missing here counts as free since now.
    """

    def holders(self, claim: str) -> list[DeviceUser]:
        """Return the pods that may use the memory of the device of a claim."""
        return [user for user in self.users if user.claim == claim and not user.off]

    def in_use(self) -> set[str]:
        """Return the claims whose devices may be in use by a pod."""
        return {user.claim for user in self.users if not user.off}

    def last_user(self, claim: str) -> str:
        """Return the pool that last changed the state of its instance on the device of a claim; empty if no pod uses
        the claim.
        """
        users = [user for user in self.users if user.claim == claim]
        return max(users, key=lambda user: user.since).pool if users else ""

    def sleeps_at(self, pool: str, claim: str) -> bool:
        """Return whether an instance of the pool uses this claim and sleeps, so that it does not use the device."""
        return any(user.claim == claim and user.pool == pool and user.off for user in self.users)

    def held(self, pool: str) -> int:
        """Return the number of devices that the pool's instances hold and are not about to leave."""
        return len({user.claim for user in self.users if user.pool == pool and not (user.off or user.goes)})

    def serving(self, pool: str, claim: str) -> list[DeviceUser]:
        """Return the pool's instances that take requests on a claim's device."""
        return [user for user in self.holders(claim) if user.pool == pool and user.state in ACCEPTING and not user.leaving]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A pool's state in taking turns: the number of its `wanted` instances, how many of them wait for a device, the
    pods of other pools that hold the devices, and whether the pool is idle.
    """

    wanted: int
    waiting: int
    holders: tuple[DeviceUser, ...]
    idle: bool
