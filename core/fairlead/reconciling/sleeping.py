"""Instances that sleep: a role puts surplus instances to sleep, and wakes them when it needs more instances.

A sleeping engine has lost its KV cache, so all sleeping instances of a role are alike. The instance with the least
valuable cache goes to sleep, because a scale-in drains that instance. It is drained in the same way as before a
deletion. A sleeping instance has no anchors, does not count towards the desired number, and is in no router's table.
The recorded state follows the engine's own answer whether it sleeps, even if somebody else woke the engine or put it to
sleep.
"""

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import DeletionReason, SleepInstance
from fairlead.reconciling.observed import DesiredRole, EngineSleep, ObservedInstance, PodHealth
from fairlead.reconciling.round_plan import RoundPlan

PATIENCE_SECONDS = 300.0
"""Seconds that an engine may take to fall asleep or to wake up before its instance is deleted. A cold start takes about
this long.
"""
_CAN_SLEEP = frozenset({EngineSleep.AWAKE, EngineSleep.ASLEEP})
_SURPLUS = "ScaledDown"


def lay_down(plan: RoundPlan, desired: DesiredRole, instance: ObservedInstance) -> bool:
    """Put a drained instance to sleep instead of deleting it. Return False if the instance must be deleted: it was
    drained for another reason than a surplus, its template is outdated, enough other instances sleep already, or its
    engine cannot sleep or takes too long to fall asleep.
    """
    is_surplus = instance.drained_as_surplus and not (instance.drain_requested or instance.cordoned or instance.adopted)
    late = plan.elapsed(instance) >= desired.drain_timeout_seconds + PATIENCE_SECONDS
    if not is_surplus or late or instance.spec_hash != desired.kept_hash or instance.health is not PodHealth.READY:
        return False
    if _room(plan, desired) <= 0 or instance.sleep not in _CAN_SLEEP:
        return instance.sleep is EngineSleep.SILENT and plan.elapsed(instance) < desired.drain_timeout_seconds
    if instance.sleep is EngineSleep.ASLEEP:
        plan.record(instance, InstanceState.ASLEEP, _SURPLUS)
    else:
        plan.put_to_sleep(instance)
    return True


def wake(plan: RoundPlan, desired: DesiredRole, missing: int) -> None:
    """Begin to wake up to `missing` sleeping instances. A sleeping instance that shares its device with other pools is
    woken only if the device is free.
    """
    able = [one for one in _sleepers(plan, desired) if _is_kept(desired, one) and one.sleep is EngineSleep.ASLEEP]
    for instance in [one for one in able if plan.claims is None or one.claim in plan.claims][: max(0, missing)]:
        plan.wake(instance)


def go_on_waking(plan: RoundPlan, desired: DesiredRole) -> None:
    """Wake the instances that should wake up but whose engines still sleep. A former operator may have stopped before
    it asked these engines.
    """
    for instance in plan.live(desired.role):
        if instance.waking and instance.sleep is EngineSleep.ASLEEP and instance.id not in plan.actions:
            plan.wake(instance)


def give_back(plan: RoundPlan, desired: DesiredRole, surplus: int) -> int:
    """Put surplus instances back to sleep if they are recorded as waking and their engines still sleep. Return the
    surplus that is left.

    Instances that share devices with other pools are not put back. A call to wake such an instance may be in progress,
    and another pool must not take the device in the meantime.
    """
    if desired.devices is not None:
        return surplus
    waking = [one for one in plan.live(desired.role) if one.waking and one.sleep is EngineSleep.ASLEEP and one.id not in plan.actions]
    for instance in waking[: max(0, min(surplus, _room(plan, desired)))]:
        plan.record(instance, InstanceState.ASLEEP, _SURPLUS)
        surplus -= 1
    return surplus


def keep_in_bounds(plan: RoundPlan, desired: DesiredRole) -> None:
    """Delete sleeping instances beyond the number that the role keeps, sleeping instances with an outdated template,
    with a requested drain or with a device that the role no longer uses, and instances that did not wake up in time.
    """
    sleepers = _sleepers(plan, desired)
    for instance in sleepers:
        if not _is_kept(desired, instance) and not instance.cordoned:
            plan.delete(instance, DeletionReason.SLEEPS_UNNEEDED)
    able = [one for one in sleepers if one.id not in plan.actions]
    for instance in able[: max(0, -_room(plan, desired))]:
        plan.delete(instance, DeletionReason.SLEEPS_UNNEEDED)
    for instance in plan.live(desired.role):
        if instance.waking and instance.id not in plan.actions and plan.elapsed(instance) >= PATIENCE_SECONDS:
            plan.delete(instance, DeletionReason.NOT_WOKEN)


def _sleepers(plan: RoundPlan, desired: DesiredRole) -> list[ObservedInstance]:
    """Return the role's sleeping instances that have no action in this round, in the order in which they are woken."""
    found = (one for one in plan.free() if one.role is desired.role and one.state is InstanceState.ASLEEP)
    return sorted(found, key=lambda one: (one.ordinal, one.id))


def _is_kept(desired: DesiredRole, instance: ObservedInstance) -> bool:
    can_return = desired.devices is None or instance.claim in desired.devices.own.claims
    return can_return and instance.spec_hash == desired.kept_hash and not (instance.drain_requested or instance.cordoned)


def _room(plan: RoundPlan, desired: DesiredRole) -> int:
    """Return the number of further instances that may sleep; negative if too many instances sleep. Instances that are
    falling asleep count as sleeping.
    """
    return desired.asleep - sum(_counts(plan, desired, one) for one in plan.observed)


def _counts(plan: RoundPlan, desired: DesiredRole, instance: ObservedInstance) -> bool:
    if instance.role is not desired.role or instance.terminating:
        return False
    action = plan.actions.get(instance.id)
    if action is None:
        return instance.state is InstanceState.ASLEEP
    return isinstance(action, SleepInstance) or getattr(action, "state", None) is InstanceState.ASLEEP
