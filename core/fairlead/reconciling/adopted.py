"""Instances that are pods of a workload: the pool routes to them, drains them and releases them, but never deletes
them.

The workload decides about its pods: a pod that the workload adds is adopted; a pod that it deletes drains during its
grace period like any other pod. So a lost instance is kept until its pod returns or is deleted, and an instance that a
person drained gets no requests until the drain is withdrawn.
"""

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import DeletionReason, DrainReason, ReleaseReason
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth
from fairlead.reconciling.requested_drains import is_withdrawn
from fairlead.reconciling.round_plan import UNBORN, RoundPlan


def release_lost(plan: RoundPlan, desired: DesiredPool) -> None:
    """Release two kinds of pods: pods that have ended permanently, because their workload replaces them, and lost pods
    that no role selects.
    """
    for instance in plan.free():
        if not instance.adopted or instance.state is not InstanceState.LOST:
            continue
        role = desired.role(instance.role)
        if instance.health is PodHealth.FAILED:
            plan.release(instance, ReleaseReason.POD_FAILED)
        elif role is None or not role.adopts or not is_current(instance, role):
            plan.release(instance, ReleaseReason.NOT_SELECTED)


def keep_adopted(plan: RoundPlan, desired: DesiredRole) -> None:
    """Adjust a role to the pods that it selects: drain pods whose drain a person requested, end withdrawn drains, and
    release pods that the role no longer selects.
    """
    for instance in plan.free():
        if is_current(instance, desired) and is_withdrawn(instance):
            plan.end_drain(instance)
    asked = [one for one in plan.live(desired.role) if one.drain_requested and one.id not in plan.actions and is_current(one, desired)]
    for cost, victim in plan.victims(desired, asked):
        plan.drain(victim, DrainReason.REQUESTED, cost)
    _give_up_others(plan, desired)


def is_current(instance: ObservedInstance, desired: DesiredRole) -> bool:
    """Return whether the role selects this adopted pod."""
    return instance.adopted and instance.role is desired.role and instance.spec_hash == desired.spec_hash


def stays(instance: ObservedInstance, desired: DesiredRole) -> bool:
    """Return whether a drained instance is left alone. It is left alone if its role still selects it, because then only
    its workload ends it.
    """
    return desired.adopts and is_current(instance, desired)


def _give_up_others(plan: RoundPlan, desired: DesiredRole) -> None:
    """Release the instances of this role whose pods the role's selector no longer matches, but only when an instance
    with a matching pod serves. So a selector that matches no pod does not stop the pool.
    """
    live = [instance for instance in plan.live(desired.role) if instance.id not in plan.actions]
    others = [instance for instance in live if not is_current(instance, desired)]
    if not any(is_current(instance, desired) and instance.state is InstanceState.SERVING for instance in live):
        return
    for instance in others:
        if instance.state in UNBORN:
            plan.delete(instance, DeletionReason.NEVER_SERVED)
    served = [instance for instance in others if instance.state not in UNBORN]
    for cost, victim in plan.victims(desired, served):
        plan.drain(victim, DrainReason.NOT_SELECTED, cost)
