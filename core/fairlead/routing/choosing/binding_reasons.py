"""Session homes: why work leaves an instance, and why a policy that keeps bindings sets or moves one."""

from collections.abc import Callable, Sequence

from fairlead.instances import InstanceState, Role
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.tables import InstanceEntry


def reason_to_leave(instance: str, view: PoolView, now: float) -> BindingReason:
    """Why work cannot stay on an instance: drain, also when that is over and it is gone; instance-lost; engine-stalled;
    or ring-change when it still accepts.
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
    return BindingReason.RING_CHANGE if load.may_be_sent(now) else BindingReason.INSTANCE_LOST


class RingAge:
    """Since when a policy's ring has been as it is, to tell a session that moves because the ring
    changed from one whose key did.
    """

    def __init__(self) -> None:
        self._members: tuple[tuple[str, int], ...] | None = None
        self._started_at: float | None = None
        self._changed_at = float("-inf")
        self.is_new = True

    def rebuilt(self, instances: Sequence[InstanceEntry]) -> None:
        """The ring was built from these."""
        members = tuple(sorted((entry.id, anchors) for entry in instances if (anchors := anchor_count(entry))))
        self.is_new = self.is_new or members != self._members
        self._members = members

    def settle(self, now: float) -> None:
        """The first look at a new ring."""
        if self._started_at is None:
            self._started_at = now
        else:
            self._changed_at = now
        self.is_new = False

    def reason(self, home: Binding, is_other_key: Callable[[], bool]) -> BindingReason:
        """Why a session's place is no longer `home`.

        Of a binding older than this policy only a key that still leads there is evidence.
        """
        if home.bound_at < self._changed_at:
            return BindingReason.RING_CHANGE
        older = self._started_at is not None and home.bound_at < self._started_at
        return BindingReason.RING_CHANGE if older and not is_other_key() else BindingReason.PREFIX_KEY


def binding_reason(home: Binding | None, chosen: str, otherwise: BindingReason, view: PoolView, now: float) -> BindingReason | None:
    """The reason to record when a request's session, bound as `home`, is served by `chosen`: None when it stays.

    A first placement is cold; a home that drains, is lost or broken gives that reason; from a
    healthy home it is `otherwise`.
    """
    if home is None or home.instance is None:
        return BindingReason.COLD
    if home.instance == chosen:
        return None
    reason = reason_to_leave(home.instance, view, now)
    if reason is not BindingReason.RING_CHANGE:
        return reason
    load = view.load(home.instance)
    flipped = load is not None and load.entry.role is Role.DECODE  # it drained before
    return BindingReason.DRAIN if flipped else otherwise
