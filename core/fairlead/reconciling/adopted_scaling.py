"""Scales the workload that a role's instances come from, so that exactly the drained instances are removed.

Scale-in: the coldest instances are drained, with the least deletion cost in the same write; when all of them are empty,
the workload's number is lowered by as many, once. A ReplicaSet then ends them, as it ranks ready pods by that cost. A
workload that always ends the highest ordinal has those drained. Nothing is remembered: who drains, and how many there
are beside them, is read from the pods. When another pod went instead, as a ReplicaSet ends pods that are not ready
before all others, or when more are wanted meanwhile, drains are taken back.
"""

from collections.abc import Sequence

from fairlead.draining import is_drained
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.adopted import is_current
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth, Workload
from fairlead.reconciling.round_plan import RoundPlan


def scale_adopted(plan: RoundPlan, desired: DesiredRole) -> None:
    """Take one step towards the desired number of a role that adopts; none while its workload replaces pods, or
    has pods of which none is the role's: they belong to another owner, or are not adopted yet.
    """
    pods = [one for one in plan.observed if is_current(one, desired) and not one.terminating and one.health is not PodHealth.FAILED]
    leaving = [one for one in pods if _leaves(one)]
    workload = desired.workload
    if workload is None:
        _take_back(plan, leaving, len(leaving))
        return
    if not pods and workload.pods:
        return
    if workload.replicas < desired.replicas:
        plan.scale_workload(desired.role, workload.replicas, desired.replicas)
    surplus = len(pods) - len(leaving) - desired.replicas
    if surplus < 0:
        _take_back(plan, _last_to_go(leaving, workload), -surplus)
    elif len(pods) != workload.replicas or len({one.template for one in pods}) > 1:
        return
    elif surplus > 0:
        _drain(plan, desired, workload, [one for one in pods if one not in leaving], surplus)
    elif workload.ordered and (misplaced := _misplaced(pods, leaving)):
        _take_back(plan, misplaced, len(misplaced))
    elif leaving and all(_is_through(plan, desired, one) for one in leaving):
        plan.scale_workload(desired.role, workload.replicas, workload.replicas - len(leaving))


def _leaves(instance: ObservedInstance) -> bool:
    """Whether it is drained for a scale-in, and not because a person wants it empty."""
    return instance.draining_since is not None and not instance.drained_on_request


def _drain(plan: RoundPlan, desired: DesiredRole, workload: Workload, staying: Sequence[ObservedInstance], surplus: int) -> None:
    """Drain the pods to be removed: the highest ordinals, or else those that are not ready, then the coldest."""
    free = [one for one in staying if one.id not in plan.actions]
    costs = plan.victims(desired, free)
    if workload.ordered:
        places = {one.id: one.place for one in free}
        costs.sort(key=lambda priced: -places[priced[1]])
    else:
        idle = {one.id for one in free if one.health is not PodHealth.READY}
        costs.sort(key=lambda priced: priced[1] not in idle)
    for cost, victim in costs[:surplus]:
        plan.drain(victim, DrainReason.SCALED_DOWN, cost, goes_first=not workload.ordered)


def _last_to_go(leaving: Sequence[ObservedInstance], workload: Workload) -> list[ObservedInstance]:
    """The draining pods, starting with those that the workload would end last."""
    if workload.ordered:
        return sorted(leaving, key=lambda one: one.place)
    return sorted(leaving, key=lambda one: (one.health is not PodHealth.READY, -(one.draining_since or 0.0), one.id))


def _misplaced(pods: Sequence[ObservedInstance], leaving: Sequence[ObservedInstance]) -> list[ObservedInstance]:
    """The draining pods that an ordered workload would not end next."""
    highest = max((one.place for one in pods if not _leaves(one)), default=-1)
    return [one for one in leaving if one.place < highest]


def _take_back(plan: RoundPlan, leaving: Sequence[ObservedInstance], count: int) -> None:
    """Put the first `count` back into service; one that is not ready waits until it is."""
    ready = [one for one in leaving if one.id not in plan.actions and one.health is PodHealth.READY]
    for instance in ready[:count]:
        plan.end_drain(instance)


def _is_through(plan: RoundPlan, desired: DesiredRole, instance: ObservedInstance) -> bool:
    """Whether nothing of a draining pod is waited for any more. Without the control API's answer nothing is lowered."""
    if plan.observations is None or instance.id in plan.actions:
        return False
    since = instance.draining_since if instance.draining_since is not None else plan.now
    return is_drained(plan.observations, instance.id) or plan.now - since >= desired.drain_timeout_seconds
