"""Replaces instances whose engine makes no progress, which routers see and no probe does: their HTTP server answers.

A stalled instance is drained, which takes no time as it has lost its requests already, and a new one is made. At most a
quarter of a role, but at least one instance, is away at a time for any reason: a fault that stalls every engine, such
as a lost store of KV caches, is not cured by removing them all, and a false alarm must not remove them either.
"""

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.observed import DesiredRole
from fairlead.reconciling.round_plan import RoundPlan
from fairlead.reports.engines import EngineTrouble

SHARE = 4
"""One in this many instances of a role may be away when a stalled one is drained."""
_DRAINED = frozenset({InstanceState.WARMING, InstanceState.SERVING, InstanceState.CORDONED})


def drain_stalled(plan: RoundPlan, desired: DesiredRole) -> None:
    """Begin the drains of stalled instances that may begin."""
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
