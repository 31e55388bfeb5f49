"""Session homes: why work leaves an instance, and why a policy that keeps bindings sets or moves one."""

from fairlead.instances import InstanceState
from fairlead.reports import Binding, BindingReason
from fairlead.routing.protocols import InstanceLoad, PoolView


def reason_to_leave(load: InstanceLoad | None, now: float) -> BindingReason:
    """Why work cannot stay on an instance (None = unknown): drain, instance-lost, or ring-change when it still accepts."""
    if load is None or load.entry.state in (InstanceState.LOST, InstanceState.GONE):
        return BindingReason.INSTANCE_LOST
    if load.entry.state in (InstanceState.DRAINING, InstanceState.CORDONED):
        return BindingReason.DRAIN
    return BindingReason.INSTANCE_LOST if load.broken_until > now else BindingReason.RING_CHANGE


def binding_reason(home: Binding | None, chosen: str, otherwise: BindingReason, view: PoolView, now: float) -> BindingReason | None:
    """The reason to record when a request's session, bound as `home`, is served by `chosen`: None when it stays.

    A first placement is cold; a home that drains, is lost or broken gives that reason; from a healthy home it is `otherwise`.
    """
    if home is None or home.instance is None:
        return BindingReason.COLD
    if home.instance == chosen:
        return None
    reason = reason_to_leave(view.load(home.instance), now)
    return otherwise if reason is BindingReason.RING_CHANGE else reason
