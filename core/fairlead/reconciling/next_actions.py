"""`next_actions`: the next actions for a pool. Each role is brought to its number of instances.

When a role scales up while instances drain, new instances are created and the drains continue. A draining instance has
already lost its sessions and its position on the rings, so its return to service would save nothing and would add a
race. Drained instances serve again in only two cases: the drain was for a role flip, or a person withdrew the request
for the drain.
"""

from collections.abc import Mapping
from dataclasses import replace

from fairlead.draining import acknowledged, is_drained
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import Action, CreationReason, DeletionReason, DrainReason
from fairlead.reconciling.adopted import keep_adopted, release_lost, stays
from fairlead.reconciling.adopted_scaling import scale_adopted
from fairlead.reconciling.backoff import failures_of_replacement, replaced_at
from fairlead.reconciling.flips import flips
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth, ReplicaLimits
from fairlead.reconciling.requested_drains import drain_requested
from fairlead.reconciling.rollouts import creatable, creatable_beside, outdated, replace_outdated, strays_to_drain, surge_now, templates
from fairlead.reconciling.round_plan import NONE_GONE, UNBORN, RoundPlan, timer_of
from fairlead.reconciling.sleeping import give_back, go_on_waking, keep_in_bounds, lay_down, wake
from fairlead.reconciling.states import next_state
from fairlead.reconciling.turns import free_claims, give_up, keep_apart
from fairlead.reconciling.warming import weights
from fairlead.reports.engines import EngineTrouble

_DEFAULT_LIMITS = ReplicaLimits()
_CLOCK_TOLERANCE_SECONDS = 1.0


def next_actions(
    desired: DesiredPool | None,
    observed: tuple[ObservedInstance, ...],
    observations: PoolObservations | None,
    now: float,
    limits: ReplicaLimits = _DEFAULT_LIMITS,
    last_ordinal: int = 0,
    gone: Mapping[str, Role] = NONE_GONE,
) -> tuple[Action, ...]:
    """Return the actions to take now, at most one per instance, and one per workload.

    Total: every combination of arguments has a plan, and a settled pool has an empty plan. `desired` None = no valid
    spec was ever seen, so only states are recorded. `observed` are the instances of all roles. `observations` is the
    API's response to the states of exactly these instances; it is None if the API did not respond, and then only
    actions that need no confirmation by routers are returned. `now` is in Unix seconds and may jump. `last_ordinal` is
    the highest ordinal known to have been given; it is needed if the instance with that ordinal no longer exists.
    `gone` are instances that disappeared and have no successor yet.
    """
    plan = RoundPlan(observed=observed, observations=observations, now=now, limits=limits, last_ordinal=last_ordinal, gone=gone)
    _record_states(plan, weights(desired, observed, now))
    if desired is not None:
        _delete_lost(plan, desired)
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
        plan.most_creations = creatable_beside(plan, desired, _strays(plan, desired))
        for role in makes:
            drain_stalled(plan, role)
            keep_apart(plan, role)
            give_up(plan, role)
            if role.devices is not None:
                plan.claims, plan.in_use = free_claims(role.devices, now), frozenset(role.devices.in_use())
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


def _delete_lost(plan: RoundPlan, desired: DesiredPool) -> None:
    for instance in plan.free():
        if instance.state is not InstanceState.LOST or instance.adopted:
            continue
        waits = plan.now < replaced_at(instance, plan.limits)
        reason = DeletionReason.LOST_TOO_LONG
        if _is_superseded(instance, desired):  # its failures say nothing of the new template
            if plan.replaceable() > 0:
                plan.delete(instance, DeletionReason.OUTDATED)
                plan.failed(instance.role, 0)
            continue
        if instance.health is PodHealth.FAILED:
            waits = waits and instance.created_at <= plan.now
            reason = DeletionReason.POD_FAILED
        if instance.draining_since is not None:
            if not waits or instance.health is PodHealth.FAILED:
                plan.delete(instance, reason)
        elif not waits and plan.replaceable() > 0:
            plan.delete(instance, reason)
            plan.failed(instance.role, failures_of_replacement(instance, plan.limits))


def _is_superseded(instance: ObservedInstance, desired: DesiredPool) -> bool:
    """Return whether the instance ended permanently with a template that has been corrected since."""
    role = desired.role(instance.role)
    if role is not None and role.rollout.canary is not None and instance.spec_hash == role.rollout.canary.former_hash:
        return False
    is_current = role is None or role.adopts or role.rollout.halt is not None or instance.spec_hash == role.spec_hash
    return instance.health is PodHealth.FAILED and instance.draining_since is None and not is_current


def _delete_drained(plan: RoundPlan, desired: DesiredPool, going_on: Mapping[str, Role]) -> None:
    """Delete instances that are drained, or that have drained for too long. Two kinds of instances are kept: instances
    that will change their role, and instances that were drained to stay empty.
    """
    for instance in plan.free():
        if instance.state is not InstanceState.DRAINING or instance.id in going_on:
            continue
        if stays(instance, _terms(desired, instance.role)):
            continue
        terms = _terms(desired, instance.role)
        empty = is_drained(plan.observations, instance.id)
        if (empty or plan.elapsed(instance) >= terms.drain_timeout_seconds) and not lay_down(plan, terms, instance):
            plan.delete(instance, DeletionReason.DRAINED if empty else DeletionReason.DRAIN_TIMED_OUT)


def _strays(plan: RoundPlan, desired: DesiredPool) -> list[ObservedInstance]:
    """Return the instances of roles that the pool does not have, without instances whose pods are being deleted. Such
    instances exist after an edit of their label, or if the pool was created again with other roles.
    """
    return [instance for instance in plan.observed if desired.role(instance.role) is None and not instance.terminating]


def _give_up_strays(plan: RoundPlan, desired: DesiredPool) -> None:
    """Remove instances of roles that the pool does not have, at the pace of a rollout. An instance that does not serve
    leaves at once. A serving instance leaves when an instance of the pool's roles serves in its place.
    """
    strays = _strays(plan, desired)
    drained = strays_to_drain(plan, desired, strays)
    for role in sorted({instance.role for instance in strays}):
        live = plan.live(role)
        stay = sum(one.state in (InstanceState.SERVING, InstanceState.WARMING) for one in live)
        terms = replace(_terms(desired, role), replicas=stay - drained.get(role, 0))
        keep_in_bounds(plan, terms)
        _give_up(plan, terms, live, len(live) - terms.replicas)
        go_on_waking(plan, terms)


def _terms(desired: DesiredPool, role: Role) -> DesiredRole:
    """Return the desired state of a role. For a role that the spec does not have, the desired number is 0 and most
    other settings are copied from another role.
    """
    known = desired.role(role)
    if known is not None:
        return known
    return replace(desired.roles[0], role=role, replicas=0, min_replicas=0, asleep=0, devices=None, adopts=False)


def delete_outdated_unborn(plan: RoundPlan, desired: DesiredRole) -> None:
    """Delete pods that have an outdated template and never served, at once. So a corrected image replaces a broken
    image immediately.
    """
    if desired.rollout.halt is not None:
        return
    canary = desired.rollout.canary
    wanted = {desired.spec_hash, None if canary is None else canary.former_hash}
    for instance in plan.live(desired.role):
        if instance.id not in plan.actions and instance.state in UNBORN and instance.spec_hash not in wanted:
            plan.delete(instance, DeletionReason.OUTDATED)


def scale(plan: RoundPlan, desired: DesiredRole, *, arriving: int = 0, moving: int = 0, succeeding: int = 0) -> None:
    """Create the instances that a role lacks, remove surplus instances, and replace outdated instances.

    `arriving` = drained instances that will continue in the role. `moving` = surplus or missing instances that role
    flips will handle. `succeeding` = successors that are created before their predecessors are drained.
    """
    wake(plan, desired, desired.replicas - len(plan.live(desired.role)) - arriving - moving)
    keep_in_bounds(plan, desired)
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
    go_on_waking(plan, desired)


def _create(plan: RoundPlan, desired: DesiredRole, count: int, missing: int, succeeding: int) -> None:
    """Create `missing` instances, each with its reason, in addition to the `count` instances that exist."""
    hashes = templates(plan, desired, missing)
    if not plan.observed and plan.last_ordinal == 0:
        plan.create(desired.role, hashes, CreationReason.POOL_CREATED)
        return
    wanted = max(0, min(missing, desired.replicas - count))
    replaced = plan.replaced(desired.role, wanted)
    replacing = len(replaced)
    plan.create(desired.role, hashes[:replacing], CreationReason.REPLACING, replaced)
    plan.create(desired.role, hashes[replacing:wanted], CreationReason.ADDED)
    successors = wanted + max(0, succeeding - max(0, count - desired.replicas))
    plan.create(desired.role, hashes[wanted:successors], CreationReason.REPLACING)
    plan.create(desired.role, hashes[successors:], CreationReason.ROLLOUT)


def _give_up(plan: RoundPlan, desired: DesiredRole, live: list[ObservedInstance], surplus: int) -> None:
    """Remove surplus instances: first instances that do not serve, then cordoned instances, then serving instances.
    Among serving instances, outdated instances and instances with a low cost of removal come first.

    At least the desired number of instances keeps serving.
    """
    surplus = give_back(plan, desired, surplus)
    free = [instance for instance in live if instance.id not in plan.actions]
    lost = [instance for instance in free if instance.state is InstanceState.LOST]
    unborn = [instance for instance in free if instance.state in UNBORN and not instance.waking]
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


SHARE = 4
"""One instance in this many may be out of service, for any reason, when a stalled instance of the role is drained."""
_DRAINED = frozenset({InstanceState.WARMING, InstanceState.SERVING, InstanceState.CORDONED})


def drain_stalled(plan: RoundPlan, desired: DesiredRole) -> None:
    """Drain the stalled instances that may be drained now.

    Their engines make no progress. Routers see this but no probe does, because the engines' HTTP servers respond. The
    drain takes no time because the instance's requests are already lost, and a new instance is created. At most a
    quarter of a role's instances, but at least one, may be out of service at a time for any reason. This limit has two
    purposes: a fault that stalls every engine, such as a lost store of KV caches, is not cured by removing all
    instances, and a false alarm must not remove all instances.
    """
    seconds = desired.replace_stalled_after_seconds
    if plan.observations is None or seconds <= 0:
        return
    found = plan.observations.troubled_engines
    stalled = {one.instance for one in found if one.trouble == EngineTrouble.ENGINE_STALLED and one.seconds >= seconds}
    live = plan.live(desired.role)
    serving = sum(one.state is InstanceState.SERVING for one in live)
    able = [one for one in live if one.id in stalled and one.id not in plan.actions and one.state in _DRAINED and not one.adopted]
    for cost, victim in plan.victims(desired, able):
        left = serving - sum(one.id == victim and one.state is InstanceState.SERVING for one in able)
        if desired.replicas - left > max(1, desired.replicas // SHARE):
            return
        serving = left
        plan.drain(victim, DrainReason.STALLED, cost)
