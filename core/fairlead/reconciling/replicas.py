"""Brings one role to its number of instances: creates, removes and replaces instances."""

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import CreationReason, DeletionReason, DrainReason
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth
from fairlead.reconciling.rollouts import creatable, outdated, replace_outdated, surge_now, templates
from fairlead.reconciling.round_plan import UNBORN, RoundPlan


def delete_outdated_unborn(plan: RoundPlan, desired: DesiredRole) -> None:
    """Replace a pod with an old template at once if it never served: a corrected image must not wait for the wrong
    one.
    """
    if desired.rollout.halt is not None:
        return
    for instance in plan.live(desired.role):
        if instance.id not in plan.actions and instance.state in UNBORN and instance.spec_hash != desired.spec_hash:
            plan.delete(instance, DeletionReason.OUTDATED)


def scale(plan: RoundPlan, desired: DesiredRole, *, arriving: int = 0, moving: int = 0, succeeding: int = 0) -> None:
    """Create the instances that a role lacks, remove those that are too many, and replace outdated ones.

    `arriving` = drained instances on their way into the role. `moving` = instances of the surplus, or places of the
    deficit, that are left for role flips. `succeeding` = instances that come before those whose place they take.
    """
    live = plan.live(desired.role)
    count = len(live) + arriving
    target = desired.replicas + surge_now(plan, desired, live, succeeding) + succeeding
    if count < target:
        missing = min(target - count - moving, creatable(plan, desired, live) + succeeding - arriving)
        _create(plan, desired, count, missing, succeeding)
    elif count > target:
        _give_up(plan, desired, live, count - target - moving)
    elif outdated(desired, live):
        replace_outdated(plan, desired, live)


def _create(plan: RoundPlan, desired: DesiredRole, count: int, missing: int, succeeding: int) -> None:
    """Create `missing` instances beside the `count` that there are, each for its reason."""
    hashes = templates(plan, desired, missing)
    if not plan.observed and plan.last_ordinal == 0:
        plan.create(desired.role, hashes, CreationReason.POOL_CREATED)
        return
    wanted = max(0, min(missing, desired.replicas - count))
    replacing = min(wanted, len(plan.leaving(desired.role)))
    plan.create(desired.role, hashes[:replacing], CreationReason.REPLACING)
    plan.create(desired.role, hashes[replacing:wanted], CreationReason.ADDED)
    successors = wanted + max(0, succeeding - max(0, count - desired.replicas))
    plan.create(desired.role, hashes[wanted:successors], CreationReason.REPLACING)
    plan.create(desired.role, hashes[successors:], CreationReason.ROLLOUT)


def _give_up(plan: RoundPlan, desired: DesiredRole, live: list[ObservedInstance], surplus: int) -> None:
    """Remove instances that do not serve first, then the cordoned, then the cheapest that serve, outdated before
    current.

    At least the wanted number goes on serving.
    """
    free = [instance for instance in live if instance.id not in plan.actions]
    lost = [instance for instance in free if instance.state is InstanceState.LOST]
    unborn = [instance for instance in free if instance.state in UNBORN]
    for instance in sorted(lost, key=lambda item: item.id) + sorted(unborn, key=lambda item: (item.state, item.id)):
        if surplus <= 0:
            return
        surplus -= 1
        if instance.state in UNBORN:
            plan.delete(instance, DeletionReason.NEVER_SERVED)
        elif instance.health is PodHealth.FAILED:
            plan.delete(instance, DeletionReason.POD_FAILED)
        else:
            plan.drain(instance.id, DrainReason.SCALED_DOWN, 0.0)
    reachable = [instance for instance in free if instance.state not in UNBORN and instance.state is not InstanceState.LOST]
    spare = len(reachable) - desired.replicas
    for cost, victim in plan.victims(desired, reachable)[: max(0, min(surplus, spare))]:
        plan.drain(victim, DrainReason.SCALED_DOWN, cost)
