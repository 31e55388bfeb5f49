"""Degraded: is anything wrong, with which instance, and why?"""

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts
from fairlead.conditions.roles import below_minimum
from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceTrouble
from fairlead.reconciling.observed import ObservedInstance
from fairlead.reports.engines import PASSING

_NAMED = 5
"""Maximum number of instances that a message names; it counts the others."""


def degraded(facts: PoolFacts) -> Condition:
    kind = ConditionType.DEGRADED
    if facts.apply_problem is not None:
        return Condition(type=kind, status="True", reason=facts.apply_problem.reason, message=facts.apply_problem.message)
    if facts.troubles:
        return Condition(type=kind, status="True", reason=min(trouble.reason for trouble in facts.troubles), message=_troubles(facts))
    lost = [_loss(instance) for instance in facts.instances if instance.state is InstanceState.LOST and not instance.terminating]
    if lost:
        return Condition(type=kind, status="True", reason="InstancesLost", message=f"Lost: {_listed(lost)}")
    if facts.selecting_nothing:
        message = f"No running pod of the namespace has {' or '.join(facts.selecting_nothing)}; compare roles[].selector with their labels"
        return Condition(type=kind, status="True", reason="NoPodsSelected", message=message)
    if facts.scale_problems:
        message = "; ".join(problem.message for problem in facts.scale_problems)
        return Condition(type=kind, status="True", reason=facts.scale_problems[0].reason, message=message)
    below = [words for role, instances in facts.by_role if (words := below_minimum(role, instances)) is not None]
    if below:
        return Condition(type=kind, status="True", reason="BelowMinimum", message="; ".join(below))
    if facts.unused_objectives:
        message = f"InferenceObjectives without effect: {'; '.join(facts.unused_objectives)}"
        return Condition(type=kind, status="True", reason="ObjectiveNotUsed", message=message)
    if facts.strangers:
        message = f"{', '.join(facts.strangers)}: has the pool's label, so the Service selects it, but is not an instance; remove the label"
        return Condition(type=kind, status="True", reason="StrangePods", message=message)
    found = () if facts.observations is None else tuple(one for one in facts.observations.troubled_engines if one.trouble not in PASSING)
    if found:
        return Condition(type=kind, status="True", reason=min(one.trouble for one in found), message=_of_engines(found))
    return Condition(type=kind, status="False", reason="AsExpected", message="No fault is known")


def _troubles(facts: PoolFacts) -> str:
    """Who cannot run, and why: for each reason the instances, and the message about the first of them."""
    lines = []
    for reason in sorted({trouble.reason for trouble in facts.troubles}):
        of_reason = sorted((trouble for trouble in facts.troubles if trouble.reason == reason), key=lambda trouble: trouble.instance)
        words = f" ({of_reason[0].message})" if of_reason[0].message else ""
        lines.append(f"{_listed([trouble.instance for trouble in of_reason])}: {reason}{words}")
    return "; ".join(lines)


def _of_engines(found: tuple[InstanceTrouble, ...]) -> str:
    """As `_troubles`, for what routers found of engines."""
    lines = []
    for reason in sorted({one.trouble for one in found}):
        of_reason = sorted((one for one in found if one.trouble == reason), key=lambda one: one.instance)
        lines.append(f"{_listed([one.instance for one in of_reason])}: {of_reason[0].words}")
    return "; ".join(lines)


def _loss(instance: ObservedInstance) -> str:
    row = f", {instance.failures + 1} failures in a row" if instance.failures else ""
    return f"{instance.id} ({instance.loss_reason}{row})"


def _listed(names: list[str]) -> str:
    """The first names in order, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more
