"""`next_actions`: the next actions for a pool.

When a role scales up while instances drain, new instances are created and the drains go on: a draining instance
has lost its sessions and its place in the rings, so reviving it would save nothing of value, and a state that is
never left has one race less. Only an instance drained for a role flip goes on, or one whose drain a person asked for
and takes back.
"""

from collections.abc import Mapping
from dataclasses import replace

from fairlead.draining import acknowledged, is_drained
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import Action, DeletionReason
from fairlead.reconciling.adopted import keep_adopted, release_lost, stays
from fairlead.reconciling.adopted_scaling import scale_adopted
from fairlead.reconciling.backoff import failures_of_replacement, replaced_at
from fairlead.reconciling.flips import flips
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth, ReplicaLimits
from fairlead.reconciling.replicas import delete_outdated_unborn, scale
from fairlead.reconciling.requested_drains import drain_requested
from fairlead.reconciling.round_plan import RoundPlan, timer_of
from fairlead.reconciling.stalled import drain_stalled
from fairlead.reconciling.states import next_state
from fairlead.reconciling.warming import weights

_DEFAULT_LIMITS = ReplicaLimits()
_CLOCK_TOLERANCE_SECONDS = 1.0


def next_actions(
    desired: DesiredPool | None,
    observed: tuple[ObservedInstance, ...],
    observations: PoolObservations | None,
    now: float,
    limits: ReplicaLimits = _DEFAULT_LIMITS,
    last_ordinal: int = 0,
) -> tuple[Action, ...]:
    """The actions to take now, at most one per instance, and one per workload.

    Total: every combination of arguments has a plan, and a settled pool has an empty one. `desired` None = no valid
    spec was ever seen, so only states are recorded. `observed` are the instances of all roles. `observations` is the
    API's answer to the states of exactly these instances, None when it did not answer: then nothing starts that needs
    the routers' consent. `now` is in Unix seconds and may jump. `last_ordinal` is the highest ordinal known to have
    been given, needed when that instance is already gone.
    """
    plan = RoundPlan(observed=observed, observations=observations, now=now, limits=limits, last_ordinal=last_ordinal)
    _record_states(plan, weights(desired, observed, now))
    if desired is not None:
        _delete_lost(plan)
        release_lost(plan, desired)
        makes = [role for role in desired.roles if not role.adopts]
        for role in makes:
            delete_outdated_unborn(plan, role)
        under_way = flips(plan, desired)
        _delete_drained(plan, desired, under_way.destinations)
        for role in desired.roles:
            if role.adopts:
                keep_adopted(plan, role)
                scale_adopted(plan, role)
        for role in makes:
            drain_stalled(plan, role)
            arriving, moving = under_way.arriving(role.role), under_way.moving.get(role.role, 0)
            scale(plan, role, arriving=arriving, moving=moving, succeeding=drain_requested(plan, role))
        _give_up_strays(plan, desired)
    # Creations first: a pod carries how often in a row its predecessors failed, and a crash must not lose that.
    return (*plan.creations, *plan.actions.values(), *plan.scalings)


def _record_states(plan: RoundPlan, warming: Mapping[str, float]) -> None:
    for instance in plan.observed:
        in_every_table = acknowledged(plan.observations, instance.id)
        state, reason = next_state(instance, in_every_table=in_every_table, warm=instance.id not in warming)
        if state is not instance.state:
            plan.record(instance, state, reason)
        elif timer_of(instance) > plan.now + _CLOCK_TOLERANCE_SECONDS:
            # The clock went back: start the timer again, or it would run longer by the size of the jump.
            plan.record(instance, state, "ClockWentBack")


def _delete_lost(plan: RoundPlan) -> None:
    for instance in plan.free():
        if instance.state is not InstanceState.LOST or instance.adopted:
            continue
        waits = plan.now < replaced_at(instance, plan.limits)
        reason = DeletionReason.LOST_TOO_LONG
        if instance.health is PodHealth.FAILED:
            waits = waits and instance.created_at <= plan.now
            reason = DeletionReason.POD_FAILED
        if instance.draining_since is not None:
            if not waits or instance.health is PodHealth.FAILED:
                plan.delete(instance, reason)
        elif not waits and plan.replaceable() > 0:
            plan.delete(instance, reason)
            plan.failed(instance.role, failures_of_replacement(instance, plan.limits))


def _delete_drained(plan: RoundPlan, desired: DesiredPool, going_on: Mapping[str, Role]) -> None:
    """Delete what is drained, or drains for too long, unless it goes on in a role or stays empty."""
    for instance in plan.free():
        if instance.state is not InstanceState.DRAINING or instance.id in going_on:
            continue
        if stays(instance, _terms(desired, instance.role)):
            continue
        if is_drained(plan.observations, instance.id):
            plan.delete(instance, DeletionReason.DRAINED)
        elif plan.elapsed(instance) >= _terms(desired, instance.role).drain_timeout_seconds:
            plan.delete(instance, DeletionReason.DRAIN_TIMED_OUT)


def _give_up_strays(plan: RoundPlan, desired: DesiredPool) -> None:
    """Give up instances of a role that the pool does not have, such as after an edit of their label."""
    for role in sorted({instance.role for instance in plan.observed} - {wanted.role for wanted in desired.roles}):
        scale(plan, _terms(desired, role))


def _terms(desired: DesiredPool, role: Role) -> DesiredRole:
    """What is wanted of a role; of one that the pool does not have: nothing, by the terms of the others."""
    known = desired.role(role)
    if known is not None:
        return known
    return replace(desired.roles[0], role=role, replicas=0, min_replicas=0, adopts=False)
