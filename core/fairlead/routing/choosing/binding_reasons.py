"""The reasons why a request or session cannot stay on an instance, and why a session's position on a hash ring
changed.
"""

from collections.abc import Callable, Sequence

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.tables import InstanceEntry


def reason_to_leave(instance: str, view: PoolView, now: float) -> BindingReason:
    """Return the reason why a request or session cannot stay on the instance:

    - `drain`: the instance drains, or was drained and no longer exists
    - `instance-lost`: the instance is lost or takes no requests, for example because its decode instances are lost
    - `engine-stalled`: the engine makes no progress
    - `ring-change`: the instance still takes requests, so only a change of the ring can be the reason
    """
    if view.has_drained(instance):
        return BindingReason.DRAIN
    load = view.load(instance)
    if load is None or load.entry.state in (InstanceState.LOST, InstanceState.GONE):
        return BindingReason.INSTANCE_LOST
    if load.entry.state in (InstanceState.DRAINING, InstanceState.CORDONED):
        return BindingReason.DRAIN
    if load.is_stalled:
        return BindingReason.ENGINE_STALLED
    if load.entry.role is Role.DECODE:
        return BindingReason.DRAIN  # it drained before its role changed
    return BindingReason.RING_CHANGE if load.is_candidate(now) else BindingReason.INSTANCE_LOST


class RingAge:
    """The time of the last change of a policy's ring. A session whose binding is older moves because the ring changed;
    other sessions move because their key changed.
    """

    def __init__(self) -> None:
        self._members: tuple[tuple[str, int], ...] | None = None
        self._started_at: float | None = None
        self._changed_at = float("-inf")
        self.is_new = True

    def rebuilt(self, instances: Sequence[InstanceEntry]) -> None:
        """Record the instances from which the ring was built."""
        members = tuple(sorted((entry.id, anchors) for entry in instances if (anchors := anchor_count(entry))))
        self.is_new = self.is_new or members != self._members
        self._members = members

    def settle(self, now: float) -> None:
        """Record `now` as the time of the ring's change. Call this at the first decision after the ring changed."""
        if self._started_at is None:
            self._started_at = now
        else:
            self._changed_at = now
        self.is_new = False

    def reason(self, home: Binding, is_other_key: Callable[[], bool]) -> BindingReason:
        """Return the reason why the policy no longer places the session on `home`. The first condition that holds
        decides:

        - the binding is older than the last change of the ring: `ring-change`
        - `is_other_key()`, that is, `home` is the place of another possible key of the prompt, so the session's key has
          changed: `prefix-key`
        - the binding is older than this policy's first decision: `ring-change`
        - otherwise `off-ring`: the ring did not choose `home`, because its instance took no requests at that time,
          or because a person chose `home`
        """
        if home.bound_at < self._changed_at:
            return BindingReason.RING_CHANGE
        if is_other_key():
            return BindingReason.PREFIX_KEY
        older = self._started_at is not None and home.bound_at < self._started_at
        return BindingReason.RING_CHANGE if older else BindingReason.OFF_RING
