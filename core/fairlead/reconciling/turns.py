"""Pools take turns on the devices that they share: on each device at most one instance is awake.

An instance is woken or created only on a free device. A device is free when the engines of all other pods confirm that
they have left it. A pool that lacks a device waits and shows this in its condition `HasDevices`. Another pool that can
release a device then drains an instance and puts it to sleep. Pools exchange no messages: each pool decides from the
present state of the cluster and the engines, so that the next operator can continue after an operator was killed
between any two steps.
"""

from collections.abc import Iterable

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import DeletionReason, DrainReason, RecordState
from fairlead.reconciling.devices import DeviceUser, SharedDevices, Turn, TurnTaker
from fairlead.reconciling.observed import DesiredRole, ObservedInstance
from fairlead.reconciling.round_plan import UNBORN, RoundPlan
from fairlead.reconciling.sleeping import PATIENCE_SECONDS

RESERVED_SECONDS = 60.0
"""Seconds for which a free device is reserved for the waiting pool with the highest precedence. After this time any
pool may take the device.
"""
DEFERENCE_SECONDS = 30.0
"""Seconds for which a pool does not release a device because another pool should release one first."""
START_SECONDS = 900.0
"""Seconds that a cold start, or the end of an instance, may take while another pool waits for its device."""


def is_idle(devices: SharedDevices, observations: PoolObservations | None) -> bool:
    """Return whether the pool has had no request for at least as long as the pool's minimum serving time
    (`at_least_seconds`). False if its demand is not known.
    """
    demand = observations.demand if observations is not None else None
    if demand is None or demand.idle_seconds is None or demand.in_flight or demand.held_requests:
        return False
    return demand.idle_seconds >= devices.own.at_least_seconds


def turn_of(desired: DesiredRole, instances: Iterable[ObservedInstance], observations: PoolObservations | None, now: float) -> Turn | None:
    """Return the pool's state in taking turns; None if the role takes no turns. An idle pool waits for devices only up
    to its minimum, because otherwise a pool with requests would have to release a device for the idle pool.
    """
    devices = desired.devices
    if devices is None:
        return None
    present, idle = sum(one.counts and one.role is desired.role for one in instances), is_idle(devices, observations)
    wanted = min(desired.replicas, max(present, desired.min_replicas)) if idle else desired.replicas
    free = sum(not devices.holders(claim) for claim in free_claims(devices, now))
    waiting = max(0, wanted - present - free)
    holders = tuple(user for claim in devices.own.claims for user in devices.holders(claim) if user.pool != devices.own.pool)
    return Turn(wanted=desired.replicas, waiting=waiting, holders=holders, idle=idle)


def free_claims(devices: SharedDevices, now: float) -> list[str]:
    """Return the claims whose devices the pool may take now. Devices that are reserved for pools with precedence are
    left out. A device also counts as free if only a sleeping engine of this pool still uses it.
    """
    own = devices.own.pool
    free = [claim for claim in devices.own.claims if all(_is_sleeper(user, own) for user in devices.holders(claim))]
    for rival in _waiting(devices, now):
        kept = [claim for claim in _preferred(devices, rival, free) if _is_kept(devices, rival, claim, now)]
        if kept:
            free.remove(kept[0])
    return free


def _is_kept(devices: SharedDevices, rival: TurnTaker, claim: str, now: float) -> bool:
    """Return whether a free device is reserved for the pool `rival`, which has precedence over this pool."""
    is_first = _place_in_line(devices, rival, now, claim) < _place_in_line(devices, devices.own, now, claim)
    return is_first and now < devices.free_since.get(claim, now) + RESERVED_SECONDS


def _is_sleeper(user: DeviceUser, pool: str) -> bool:
    return user.pool == pool and user.state is InstanceState.ASLEEP


def _waiting(devices: SharedDevices, now: float) -> list[TurnTaker]:
    """Return the other pools that wait for a device, in the order in which they get devices."""
    waiting = [rival for rival in devices.others if rival.waiting_since is not None]
    return sorted(waiting, key=lambda rival: _place_in_line(devices, rival, now))


def _place_in_line(devices: SharedDevices, taker: TurnTaker, now: float, claim: str = "") -> tuple[bool, bool, int, int, bool, float, str]:
    """Return a sort key for the pools that wait. The criteria, in this order, put first: pools below their minimum,
    pools with requests, pools with a higher priority, pools with fewer devices, pools that did not use the `claim`
    last, and pools that have waited longer.
    """
    held, last = devices.held(taker.pool), devices.last_user(claim)
    since = now if taker.waiting_since is None else taker.waiting_since
    return held >= taker.least, taker.idle, -taker.priority, held, last == taker.pool, since, taker.pool


def _preferred(devices: SharedDevices, taker: TurnTaker, claims: Iterable[str]) -> list[str]:
    """Return the claims that the pool can use. Claims at which an instance of the pool sleeps come first."""
    usable = [claim for claim in claims if claim in taker.claims]
    return sorted(usable, key=lambda claim: not devices.sleeps_at(taker.pool, claim))


def keep_apart(plan: RoundPlan, desired: DesiredRole) -> None:
    """Delete three kinds of instances: a sleeping instance that woke up although it is not the pool's turn, a sleeping
    instance whose engine does not confirm that it left its device, and an instance that takes too long to start. Each
    would be a second instance on its device, or would block the device without using it.
    """
    devices = desired.devices
    if devices is None:
        return
    for instance in plan.observed:
        if instance.role is desired.role and instance.claim and not instance.terminating and _is_in_the_way(plan, devices, instance):
            plan.delete(instance, DeletionReason.OUT_OF_TURN)


def _is_in_the_way(plan: RoundPlan, devices: SharedDevices, instance: ObservedInstance) -> bool:
    takers = [taker for taker in (devices.own, *devices.others) if taker.waiting_since is not None]
    is_wanted = any(instance.claim in taker.claims for taker in takers)
    if instance.state is InstanceState.ASLEEP:
        return _wakes_out_of_turn(plan, devices, instance) or (is_wanted and _is_unsure(plan.now, devices, instance))
    is_slow = instance.state in UNBORN and not instance.waking and plan.elapsed_since(instance.created_at) >= START_SECONDS
    return is_slow and any(taker is not devices.own and instance.claim in taker.claims for taker in takers)


def _wakes_out_of_turn(plan: RoundPlan, devices: SharedDevices, instance: ObservedInstance) -> bool:
    action = plan.actions.get(instance.id)
    if not isinstance(action, RecordState) or action.state is InstanceState.ASLEEP:
        return False
    return any(user.pod != instance.id for user in devices.holders(instance.claim))


def _is_unsure(now: float, devices: SharedDevices, instance: ObservedInstance) -> bool:
    user = next((user for user in devices.holders(instance.claim) if user.pod == instance.id), None)
    return user is not None and user.unsure_since is not None and now - user.unsure_since >= PATIENCE_SECONDS


def give_up(plan: RoundPlan, desired: DesiredRole) -> None:
    """Drain an instance for each other pool that waits for a device. Drain none if a device is free or becoming free
    for that pool, or if another pool should release a device first.
    """
    devices = desired.devices
    if devices is None or plan.observations is None:
        return
    becoming_free = [claim for claim in _all_claims(devices) if all(_leaves(user, plan.now) for user in devices.holders(claim))]
    for rival in _waiting(devices, plan.now):
        coming = _preferred(devices, rival, becoming_free)
        if coming:
            becoming_free.remove(coming[0])
        elif (victim := _victim(plan, desired, devices, rival)) is not None:
            plan.drain(victim[1], DrainReason.SCALED_DOWN, victim[0])


def _leaves(user: DeviceUser, now: float) -> bool:
    return user.goes and now - user.since < START_SECONDS


def _all_claims(devices: SharedDevices) -> list[str]:
    return sorted({claim for taker in (devices.own, *devices.others) for claim in taker.claims})


def _victim(plan: RoundPlan, desired: DesiredRole, devices: SharedDevices, rival: TurnTaker) -> tuple[float, str] | None:
    """Return the instance to drain for the waiting pool `rival`, with its cost; None if this pool releases no
    device.
    """
    live = [one for one in plan.live(desired.role) if one.id not in plan.actions and one.state in ACCEPTING]
    least = max(devices.own.least, desired.min_replicas)
    own = TurnTaker(pool=devices.own.pool, claims=devices.own.claims, priority=devices.own.priority, least=least)
    idle = is_idle(devices, plan.observations)
    able = [one for one in live if one.claim in rival.claims and plan.elapsed(one) >= devices.own.at_least_seconds]
    if not able or len(live) <= least or not _yields(devices, own, rival, idle=idle):
        return None
    if _others_turn(plan.now, devices, rival, idle=idle):
        return None
    claim_of = {one.id: one.claim for one in able}
    return min(plan.victims(desired, able), key=lambda found: not devices.sleeps_at(rival.pool, claim_of[found[1]]), default=None)


def _yields(devices: SharedDevices, giver: TurnTaker, rival: TurnTaker, *, idle: bool) -> bool:
    """Return whether the pool `giver` releases a device for the waiting pool `rival`."""
    has, gets = devices.held(giver.pool), devices.held(rival.pool)
    if has <= giver.least:
        return False
    if gets < rival.least:
        return True
    if giver.priority != rival.priority:
        return giver.priority < rival.priority
    return idle or gets == 0 or has > gets + 1


def _others_turn(now: float, devices: SharedDevices, rival: TurnTaker, *, idle: bool) -> bool:
    """Return whether another pool should release a device before this pool, because it has a lower priority, has no
    requests, or has more devices. False after `DEFERENCE_SECONDS`, because the other pool may be unable to release one.
    """
    if rival.waiting_since is None or now - rival.waiting_since >= DEFERENCE_SECONDS:
        return False
    able = [one for one in devices.others if one.pool != rival.pool and _could_give(devices, one, rival, now)]
    mine = _comes_first(devices, devices.own, idle=idle)
    return any(_comes_first(devices, one, idle=one.idle) < mine for one in able)


def _could_give(devices: SharedDevices, giver: TurnTaker, rival: TurnTaker, now: float) -> bool:
    serving = [user for claim in rival.claims for user in devices.serving(giver.pool, claim)]
    served = any(now - user.since >= giver.at_least_seconds for user in serving)
    return served and _yields(devices, giver, rival, idle=giver.idle)


def _comes_first(devices: SharedDevices, taker: TurnTaker, *, idle: bool) -> tuple[int, bool, int, str]:
    return taker.priority, not idle, -devices.held(taker.pool), taker.pool
