"""Drains that a person requests: the instance is emptied and replaced, and the role keeps its number of instances.

Such a drain begins under the same conditions as an eviction: all other desired instances serve, and at least one other
instance serves. Otherwise a successor is created first, above the maximum if necessary. If the request is withdrawn
before the instance is empty, the instance returns to service, unless its successor already serves. An instance that
shares its device with other pools is drained at once, since its successor needs the device.
"""

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import DeletionReason, DrainReason
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth
from fairlead.reconciling.round_plan import UNBORN, RoundPlan


def drain_requested(plan: RoundPlan, desired: DesiredRole) -> int:
    """Begin the requested drains that may begin now.

    Return the number of successors that must be created before the other requested drains may begin. While the routers'
    reports are missing, no drain begins and no successor is created, but existing successors stay.
    """
    asked = [one for one in plan.live(desired.role) if one.drain_requested and one.id not in plan.actions]
    for instance in asked:
        if instance.state in UNBORN:
            plan.delete(instance, DeletionReason.NEVER_SERVED)
        elif instance.state is InstanceState.LOST:
            plan.drain(instance.id, DrainReason.REQUESTED, 0.0)
    able = [one for one in asked if one.id not in plan.actions]
    if plan.observations is None:
        return min(len(able), max(0, len(plan.live(desired.role)) - desired.replicas))
    waiting = 0
    idle = {one.id for one in able if one.state is InstanceState.CORDONED}
    for cost, victim in plan.victims(desired, able):
        if victim in idle or desired.devices is not None or _spare(plan, desired, victim):
            plan.drain(victim, DrainReason.REQUESTED, cost)
        else:
            waiting += 1
    return waiting


def is_withdrawn(instance: ObservedInstance) -> bool:
    """Return whether the instance drains on a person's request that has been withdrawn."""
    return (
        instance.state is InstanceState.DRAINING
        and instance.drained_on_request
        and not instance.drain_requested
        and instance.health is PodHealth.READY
    )


def _spare(plan: RoundPlan, desired: DesiredRole, instance: str) -> bool:
    """Return whether enough other instances of the role keep serving without this instance."""
    others = [one for one in plan.live(desired.role) if one.id != instance and one.id not in plan.actions]
    serving = sum(1 for one in others if one.state is InstanceState.SERVING)
    return serving >= max(1, desired.least_serving, desired.replicas - 1)
