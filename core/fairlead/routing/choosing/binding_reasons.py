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
    """Return the reason why a request or session cannot stay on the instance: `drain`, even if the drained instance no
    longer exists; `instance-lost`, even if only the decode instances that it needs are lost; `engine-stalled`; or
    `ring-change` if the instance still accepts requests.
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
    """The age of a policy's ring. It shows whether a session moves because the ring changed or because the session's
    key changed.
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
        """Record `now` as the time of the first decision on the present ring, unless such a time is already
        recorded.
        """
        if self._started_at is None:
            self._started_at = now
        else:
            self._changed_at = now
        self.is_new = False

    def reason(self, home: Binding, is_other_key: Callable[[], bool]) -> BindingReason:
        """Return the reason why the policy no longer places the session on `home`.

        The ring changed if the binding is older than the ring's last change, or older than this policy while no other
        cause is visible. The key changed if another key of the request leads to `home`. Otherwise `home` was not chosen
        by the ring: the instance on the ring took no requests at that time, or a person chose `home`.
        """
        if home.bound_at < self._changed_at:
            return BindingReason.RING_CHANGE
        if is_other_key():
            return BindingReason.PREFIX_KEY
        older = self._started_at is not None and home.bound_at < self._started_at
        return BindingReason.RING_CHANGE if older else BindingReason.OFF_RING
