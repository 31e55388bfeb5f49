"""The conditions Ready, InstancesReady, Progressing and Degraded. They say whether the desired instances serve, whether
a change is in progress, and which instances have which faults.
"""

from fairlead.amounts import amount
from fairlead.conditions.facts import Condition, ConditionType, NoRoom, PoolFacts
from fairlead.conditions.roles import SHORTAGES, asleep_words, below_minimum, count, scaling_words, serving_words, shortage
from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceTrouble
from fairlead.reconciling.observed import EngineSleep, ObservedInstance
from fairlead.reports.engines import PASSING

SCALED_TO_ZERO = "ScaledToZero"
UNTIL_A_REQUEST = " until a request arrives"
"""The last words of the message about a pool without instances that the next request will wake."""


def ready(facts: PoolFacts, of_instances: Condition) -> Condition:
    if facts.problem is not None:
        kept = "the last good spec stays in force" if facts.desired else "nothing is created until it is corrected"
        return Condition(type=ConditionType.READY, status="False", reason=facts.problem.reason, message=f"{facts.problem.message}; {kept}")
    return Condition(type=ConditionType.READY, status=of_instances.status, reason=of_instances.reason, message=of_instances.message)


def instances_ready(facts: PoolFacts) -> Condition:
    """Return InstancesReady. The role with the worst shortage gives the reason; the message names every role that lacks
    instances.
    """
    kind = ConditionType.INSTANCES_READY
    if not facts.desired:
        return Condition(type=kind, status="False", reason="NoValidSpec", message="No valid spec was seen yet")
    if all(role.replicas == 0 for role in facts.desired):
        until = UNTIL_A_REQUEST if facts.scaling is not None and facts.scaling.sleeps else ""
        return Condition(type=kind, status="True", reason=SCALED_TO_ZERO, message=f"No instance is desired{until}")
    answered = facts.observations is not None
    short = [found for role, instances in facts.by_role if (found := shortage(role, instances, api_answers=answered)) is not None]
    if short:
        gravest = min((reason for reason, _ in short), key=SHORTAGES.index)
        return Condition(type=kind, status="False", reason=gravest, message="; ".join(words for _, words in short))
    words = "; ".join(serving_words(role, instances) + asleep_words(instances) for role, instances in facts.by_role)
    return Condition(type=kind, status="True", reason="AllServing", message=words)


def progressing(facts: PoolFacts) -> Condition:
    kind = ConditionType.PROGRESSING
    draining = count(facts.instances, InstanceState.DRAINING)
    live = [instance for instance in facts.instances if instance.counts]
    current = {role.role: role.spec_hash for role in facts.desired}
    old = sum(1 for instance in live if current and instance.spec_hash != current.get(instance.role))
    outdated = f"{amount(old, 'instance')} still {'has' if old == 1 else 'have'} the old template"
    if facts.rollout_trouble is not None and (old or any(role.replicas for role in facts.desired)):
        reason, why = facts.rollout_trouble
        still = f"; {outdated}{_without_room(facts)}" if old else ""
        return Condition(type=kind, status="False", reason=reason, message=f"{why}{still}")
    if old and facts.canary:
        return Condition(type=kind, status="True", reason="Canary", message=f"{facts.canary}; {outdated}")
    if old:
        message = f"{outdated}{_without_room(facts)}"
        return Condition(type=kind, status="True", reason="RollingReplacement", message=message)
    if draining:
        return Condition(type=kind, status="True", reason="Draining", message=amount(draining, "instance", "drain"))
    scaling = [words for role, instances in facts.by_role if (words := scaling_words(role, instances)) is not None]
    if scaling:
        return Condition(type=kind, status="True", reason="Scaling", message="; ".join(scaling))
    return Condition(type=kind, status="False", reason="Settled", message="Nothing to do")


def _without_room(facts: PoolFacts) -> str:
    """Return the remedy for a rollout that is stuck because its next instance has no room and no old instance may be
    removed first.
    """
    waits = any(trouble.reason in set(NoRoom) for trouble in facts.troubles)
    if not waits or all(role.rollout.max_unavailable for role in facts.desired):
        return ""
    return "; there is no room for one more instance: with rollout.maxSurge 0 and maxUnavailable 1 an old instance goes first"


SLEEP_REMEDY = (
    "start it with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1, or take warm out of roles[]; until then surplus instances are deleted"
)
_NAMED = 5
"""Maximum number of instances that a message names; further instances are only counted."""


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
    unable = [one.id for one in facts.instances if one.sleep is EngineSleep.UNABLE and not one.terminating]
    if unable:
        message = f"{_listed(unable)}: its engine cannot sleep; {SLEEP_REMEDY}"
        return Condition(type=kind, status="True", reason="SleepNotSupported", message=message)
    found = () if facts.observations is None else tuple(one for one in facts.observations.troubled_engines if one.trouble not in PASSING)
    if found:
        return Condition(type=kind, status="True", reason=min(one.trouble for one in found), message=_of_engines(found))
    return Condition(type=kind, status="False", reason="AsExpected", message="No fault is known")


def _troubles(facts: PoolFacts) -> str:
    """Return the instances that cannot run, grouped by reason, each group with the message about its first instance."""
    lines = []
    for reason in sorted({trouble.reason for trouble in facts.troubles}):
        of_reason = sorted((trouble for trouble in facts.troubles if trouble.reason == reason), key=lambda trouble: trouble.instance)
        words = f" ({of_reason[0].message})" if of_reason[0].message else ""
        lines.append(f"{_listed([trouble.instance for trouble in of_reason])}: {reason}{words}")
    return "; ".join(lines)


def _of_engines(found: tuple[InstanceTrouble, ...]) -> str:
    """Describe, like `_troubles`, the engine problems that routers have found."""
    lines = []
    for reason in sorted({one.trouble for one in found}):
        of_reason = sorted((one for one in found if one.trouble == reason), key=lambda one: one.instance)
        lines.append(f"{_listed([one.instance for one in of_reason])}: {of_reason[0].words}")
    return "; ".join(lines)


def _loss(instance: ObservedInstance) -> str:
    row = f", {instance.failures + 1} failures in a row" if instance.failures else ""
    return f"{instance.id} ({instance.loss_reason}{row})"


def _listed(names: list[str]) -> str:
    """Return the first names in alphabetical order, and the number of names that are left out."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(sorted(names)[:_NAMED]) + more
