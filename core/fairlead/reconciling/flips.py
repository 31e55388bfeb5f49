"""Role flips: a drained instance of a role with a surplus continues, in the same pod, in a role that lacks an instance.

A flip in progress is recorded on the pod, so the flip continues after a restart of the operator. In each round, the
drained instance has three possible ends, tried in this order: it continues in the role for which it was drained if that
role still lacks an instance; it continues in its own role if that role lacks an instance; it is deleted like any other
drained instance. If a person withdraws a drain, the instance returns to its own role at once, provided that the role
lacks an instance or has an instance that never served and can be removed instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

from fairlead.draining import is_drained
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import DesiredPool, DesiredRole, PodHealth, RoleChange
from fairlead.reconciling.requested_drains import is_withdrawn
from fairlead.reconciling.rollouts import outdated
from fairlead.reconciling.round_plan import UNBORN, RoundPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """The flips in progress, and the numbers of instances reserved for the next flips."""

    destinations: Mapping[str, Role]
    """The next role of each instance that drains for a flip; the instance already counts in that role."""
    moving: Mapping[Role, int]
    """By role, the number of instances that planned flips will move into the role or out of it; no other step may
    create or remove these instances. Empty while the control API does not respond: then no flip can begin, and missing
    instances are created.
    """

    def arriving(self, role: Role) -> int:
        """Return the number of draining instances that will continue in this role."""
        return sum(1 for destination in self.destinations.values() if destination is role)


def flips(plan: RoundPlan, desired: DesiredPool) -> Flips:
    """Finish the flips whose instances are drained. If no flip is in progress, begin the next flip. Return the flips in
    progress and the instances reserved for flips.
    """
    destinations = _destinations(plan, desired)
    _finish(plan, desired, destinations)
    moving: dict[Role, int] = {}
    may_begin = desired.role_change is RoleChange.ROLE_FLIP and plan.observations is not None
    if may_begin and not any(role.adopts for role in desired.roles):
        for donor, taker in permutations(desired.roles, 2):
            count = _movable(plan, donor, taker, destinations)
            if count > 0:
                begun = not destinations and _begin(plan, donor, taker)
                moving[donor.role] = moving[taker.role] = count
                if begun:
                    destinations = {**destinations, begun: taker.role}
                    moving[donor.role] = moving[taker.role] = count - 1
    return Flips(destinations=destinations, moving=moving)


def _destinations(plan: RoundPlan, desired: DesiredPool) -> dict[str, Role]:
    found: dict[str, Role] = {}
    for instance in sorted(plan.free(), key=lambda item: item.id):
        own = desired.role(instance.role)
        if instance.adopted:
            continue
        if own is not None and is_withdrawn(instance):
            unborn = sum(1 for one in plan.live(own.role) if one.state in UNBORN and one.id not in plan.actions)
            is_current = instance.spec_hash == own.spec_hash or own.rollout.halt is not None
            if is_current and _lack(plan, own, found) + unborn > 0:
                found[instance.id] = own.role
            continue
        if instance.state is not InstanceState.DRAINING or instance.flip_to is None or instance.health is not PodHealth.READY:
            continue
        if instance.drain_requested:
            continue
        for role in (desired.role(instance.flip_to), desired.role(instance.role)):
            if role is not None and role.spec_hash == instance.spec_hash and _lack(plan, role, found) > 0:
                found[instance.id] = role.role
                break
    return found


def _finish(plan: RoundPlan, desired: DesiredPool, destinations: Mapping[str, Role]) -> None:
    """Change the roles of drained instances, and put instances whose drain was withdrawn back into service.

    At the drain timeout an instance changes its role while requests still run on it: its pod stays, so no request is
    cut off.
    """
    for instance in plan.free():
        role = destinations.get(instance.id)
        own = desired.role(instance.role)
        if role is None or own is None:
            continue
        if is_withdrawn(instance):
            plan.end_drain(instance)
        elif is_drained(plan.observations, instance.id) or plan.elapsed(instance) >= own.drain_timeout_seconds:
            plan.flip(instance, role)


def _movable(plan: RoundPlan, donor: DesiredRole, taker: DesiredRole, destinations: Mapping[str, Role]) -> int:
    """Return the number of instances that move from the donor role to the taker role by flips.

    Instances of the donor role that do not serve are removed instead, and during a rollout instances are replaced, not
    flipped.
    """
    if donor.spec_hash != taker.spec_hash or any(outdated(role, plan.live(role.role)) for role in (donor, taker)):
        return 0
    idle = sum(1 for instance in plan.live(donor.role) if instance.state not in ACCEPTING)
    return min(-_lack(plan, donor, destinations) - idle, _lack(plan, taker, destinations))


def _lack(plan: RoundPlan, role: DesiredRole, destinations: Mapping[str, Role]) -> int:
    """Return the number of instances that a role lacks; a negative number means a surplus."""
    return role.replicas - len(plan.live(role.role)) - sum(1 for destination in destinations.values() if destination is role.role)


def _begin(plan: RoundPlan, donor: DesiredRole, taker: DesiredRole) -> str | None:
    """Drain the donor's cheapest instance for the taker, and return its id; None if no flip may begin now.

    Flips happen one at a time: the previously flipped instance must serve in its new role first, and enough instances
    must go on serving in the old role.
    """
    if any(instance.state is InstanceState.WARMING for instance in plan.live(taker.role)):
        return None
    free = [
        instance
        for instance in plan.live(donor.role)
        if instance.id not in plan.actions and instance.state in ACCEPTING and not instance.drain_requested
    ]
    if len(free) - 1 < max(donor.least_serving, donor.replicas):
        return None
    for cost, victim in plan.victims(donor, free)[:1]:
        plan.drain(victim, DrainReason.ROLE_FLIP, cost, flip_to=taker.role)
        return victim
    return None
