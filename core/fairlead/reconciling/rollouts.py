"""Rollouts: how many instances above the desired number may exist, and how many may be missing, while outdated
instances are replaced.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance
from fairlead.reconciling.round_plan import UNBORN, RoundPlan

_SETTLED = frozenset({InstanceState.SERVING, InstanceState.CORDONED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The margin that a rollout may still use: `surge` instances above `replicas`, and `unavailable` serving instances
    below `replicas`.
    """

    surge: int
    unavailable: int


def room(desired: DesiredRole) -> Room:
    """Return the margin that the spec's bounds allow, limited by the role's minimum and maximum.

    If this leaves no margin at all, one instance is removed before its successor is created; if the minimum forbids
    that, the successor is created first, above the maximum. If instances share devices with other pools, an old
    instance is always removed first: its successor needs the device.
    """
    surge = min(desired.rollout.max_surge, max(0, desired.max_replicas - desired.replicas))
    spare = max(0, desired.replicas - desired.least_serving)
    unavailable = min(desired.rollout.max_unavailable, spare)
    if desired.devices is not None:
        return Room(surge=0, unavailable=max(1, unavailable))
    if surge == unavailable == 0:
        return Room(surge=0, unavailable=1) if spare else Room(surge=1, unavailable=0)
    return Room(surge=surge, unavailable=unavailable)


def creatable_beside(plan: RoundPlan, desired: DesiredPool, strays: Collection[ObservedInstance]) -> int | None:
    """Return the number of instances that may be created within the surge while there are `strays`, which are instances
    of roles that the pool does not have. None if there are no strays.

    One instance of each role may always exist, unless instances share devices with other pools.
    """
    if not strays:
        return None
    most = sum(role.replicas + room(role).surge for role in desired.roles)
    if _shares_no_devices(desired):
        most = max(most, len({one.role for one in strays}) + sum(role.replicas > 0 for role in desired.roles))
    return max(0, most - len(strays) - sum(len(plan.live(role.role)) for role in desired.roles))


def strays_to_drain(plan: RoundPlan, desired: DesiredPool, strays: Collection[ObservedInstance]) -> dict[Role, int]:
    """Return, by role, the number of serving strays that may be drained now: the serving instances above the number
    that must continue to serve.

    The last stray of each role stays until an instance of each of the pool's roles serves, because prefill and decode
    instances cannot serve without each other. This does not hold if instances share devices with other pools.
    """
    serving = {role.role: sum(one.state is InstanceState.SERVING for one in plan.live(role.role)) for role in desired.roles}
    there = Counter(one.role for one in strays if one.state is InstanceState.SERVING and one.draining_since is None)
    least = sum(max(0, role.replicas - room(role).unavailable) for role in desired.roles)
    spare = max(0, there.total() + sum(serving.values()) - least)
    waits = _shares_no_devices(desired) and any(role.replicas > 0 and not serving[role.role] for role in desired.roles)
    found: dict[Role, int] = {}
    for role, count in sorted(there.items()):
        found[role] = min(spare, count - waits)
        spare -= found[role]
    return found


def _shares_no_devices(desired: DesiredPool) -> bool:
    return all(role.devices is None for role in desired.roles)


def outdated(desired: DesiredRole, instances: list[ObservedInstance]) -> list[ObservedInstance]:
    """Return the instances that a rollout replaces by draining: instances that have served and have an outdated
    template.
    """
    return [instance for instance in instances if instance.spec_hash != desired.spec_hash and instance.state not in UNBORN]


def _to_replace(desired: DesiredRole, live: list[ObservedInstance]) -> int:
    """Return the number of outdated instances that the rollout replaces: all outdated instances, or as many as the
    present canary step allows.
    """
    rolling, canary = len(outdated(desired, live)), desired.rollout.canary
    return rolling if canary is None else max(0, rolling - max(0, desired.replicas - canary.updated))


def leaving_next(roles: Iterable[DesiredRole], instances: Iterable[ObservedInstance], *, halted: bool) -> frozenset[str]:
    """Return the instances that will be drained soon: instances whose drain a person requested and, unless the rollout
    is `halted`, instances that the rollout replaces.
    """
    templates = {} if halted else {role.role: role.spec_hash for role in roles if not role.adopts}
    return frozenset(one.id for one in instances if one.drain_requested or templates.get(one.role, one.spec_hash) != one.spec_hash)


def surge_now(plan: RoundPlan, desired: DesiredRole, live: list[ObservedInstance], succeeding: int) -> int:
    """Return the surge: the number of instances that the role may have now in addition to `replicas` and to the
    successors of requested drains (`succeeding`).

    A surge does not start while outdated instances drain, so that a rollout never adds more pods than its bound. A
    surge that has started continues while the rollout is halted. If no instance has the present template, no surge has
    started, and instances above `replicas` are surplus.
    """
    rolling = _to_replace(desired, live)
    if not rolling or desired.replicas == 0:
        return 0
    allowed = min(room(desired).surge, rolling)
    begun = max(0, min(len(live) - desired.replicas - succeeding, allowed))
    if desired.rollout.halt is not None:
        return min(begun, sum(one.spec_hash == desired.spec_hash for one in live))
    draining = sum(1 for instance in plan.draining() if instance.role is desired.role)
    return max(begun, allowed - draining)


def creatable(plan: RoundPlan, desired: DesiredRole, live: list[ObservedInstance]) -> int:
    """Return the number of instances that may be created within the surge. Outdated instances that still drain use up
    the surge too.

    Instances that drain because of a scale-in do not count, whatever their template. Otherwise they could prevent the
    replacement of a lost instance, or a new scale-out of the pool.
    """
    draining = sum(
        1
        for instance in plan.draining()
        if instance.role is desired.role
        and instance.flip_to is None
        and instance.spec_hash != desired.spec_hash
        and not instance.drained_as_surplus
    )
    return desired.replicas + room(desired).surge - len(live) - draining


def templates(plan: RoundPlan, desired: DesiredRole, count: int) -> list[str]:
    """Return the hashes of the templates of the next `count` instances to create: the present template, unless the
    rollout is halted or a canary.

    In these two cases, only the allowed number of instances gets the present template; all other instances get the
    former template.
    """
    limit, count = desired.rollout.halt or desired.rollout.canary, max(0, count)
    if limit is None or limit.former_hash is None:
        return [desired.spec_hash] * count
    updated = sum(1 for instance in plan.live(desired.role) if instance.spec_hash == desired.spec_hash)
    present = min(count, max(0, limit.updated - updated))
    return [desired.spec_hash] * present + [limit.former_hash] * (count - present)


def replace_outdated(plan: RoundPlan, desired: DesiredRole, live: list[ObservedInstance]) -> None:
    """Drain outdated instances within the bounds, once all current instances serve.

    A cordoned instance serves no new requests, so draining it never reduces the number of serving instances.
    """
    if desired.rollout.halt is not None:
        return
    fresh = [instance for instance in live if instance.spec_hash == desired.spec_hash]
    if not all(instance.state in _SETTLED and instance.id not in plan.actions for instance in fresh):
        return
    free = [instance for instance in live if instance.id not in plan.actions]
    serving = {instance.id for instance in free if instance.state is InstanceState.SERVING}
    least = desired.least_serving if desired.devices is None else 0
    spare = len(serving) - max(least, desired.replicas - room(desired).unavailable)
    candidates = [instance for instance in outdated(desired, free) if instance.id in serving or instance.state is InstanceState.CORDONED]
    for cost, victim in plan.victims(desired, candidates)[: _to_replace(desired, live)]:
        if victim in serving:
            if spare <= 0:
                return
            spare -= 1
        plan.drain(victim, DrainReason.OUTDATED, cost)
