"""Scales the workload to which a role's instances belong, so that exactly the drained instances are removed.

Scale-in: the coldest instances are drained and get the lowest deletion cost in the same write. When all of them are
empty, the workload's replicas are lowered once by their number. A ReplicaSet then ends exactly these pods, because it
ranks ready pods by that cost. If the workload always ends the pods with the highest ordinals (a StatefulSet), these
pods are drained. No state is kept, because the pods show the number of draining and of other instances. Drains are
withdrawn if the workload ended another pod (a ReplicaSet first ends pods that are not ready), or if more instances are
desired in the meantime.
"""

from collections.abc import Sequence

from fairlead.draining import is_drained
from fairlead.reconciling.actions import DrainReason
from fairlead.reconciling.adopted import is_current
from fairlead.reconciling.observed import DesiredRole, ObservedInstance, PodHealth, Workload
from fairlead.reconciling.round_plan import RoundPlan


def scale_adopted(plan: RoundPlan, desired: DesiredRole) -> None:
    """Take one step towards the desired number of instances of a role that adopts pods. No step is taken in two cases:
    the workload is replacing its pods, or none of the workload's pods belongs to the role (another owner has them, or
    they are not adopted yet).
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
    """Return whether the instance drains because of a scale-in, and not because of a person's request."""
    return instance.draining_since is not None and not instance.drained_on_request


def _drain(plan: RoundPlan, desired: DesiredRole, workload: Workload, staying: Sequence[ObservedInstance], surplus: int) -> None:
    """Drain the pods to be removed. In an ordered workload, these are the pods with the highest ordinals; otherwise
    first the pods that are not ready, then the pods that are cheapest to remove.
    """
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
    """Return the draining pods in the reverse of the order in which the workload would end them."""
    if workload.ordered:
        return sorted(leaving, key=lambda one: one.place)
    return sorted(leaving, key=lambda one: (one.health is not PodHealth.READY, -(one.draining_since or 0.0), one.id))


def _misplaced(pods: Sequence[ObservedInstance], leaving: Sequence[ObservedInstance]) -> list[ObservedInstance]:
    """Return the draining pods that an ordered workload would not end next."""
    highest = max((one.place for one in pods if not _leaves(one)), default=-1)
    return [one for one in leaving if one.place < highest]


def _take_back(plan: RoundPlan, leaving: Sequence[ObservedInstance], count: int) -> None:
    """Put the first `count` ready pods back into service. Pods that are not ready drain until they are ready."""
    ready = [one for one in leaving if one.id not in plan.actions and one.health is PodHealth.READY]
    for instance in ready[:count]:
        plan.end_drain(instance)


def _is_through(plan: RoundPlan, desired: DesiredRole, instance: ObservedInstance) -> bool:
    """Return whether a draining pod may go: it is empty, or the drain timeout has passed. False without the control
    API's response.
    """
    if plan.observations is None or instance.id in plan.actions:
        return False
    since = instance.draining_since if instance.draining_since is not None else plan.now
    return is_drained(plan.observations, instance.id) or plan.now - since >= desired.drain_timeout_seconds
