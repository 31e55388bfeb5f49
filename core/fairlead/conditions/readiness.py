"""Ready, InstancesReady and Progressing: do the desired instances serve, and is something in progress?"""

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts
from fairlead.conditions.roles import SHORTAGES, count, scaling_words, serving_words, shortage
from fairlead.instances import InstanceState


def ready(facts: PoolFacts, of_instances: Condition) -> Condition:
    if facts.problem is not None:
        kept = "the last good spec stays in force" if facts.desired else "nothing is created until it is corrected"
        return Condition(type=ConditionType.READY, status="False", reason=facts.problem.reason, message=f"{facts.problem.message}; {kept}")
    return Condition(type=ConditionType.READY, status=of_instances.status, reason=of_instances.reason, message=of_instances.message)


def instances_ready(facts: PoolFacts) -> Condition:
    """The role with the gravest shortage gives the reason, and every role that is short is in the message."""
    kind = ConditionType.INSTANCES_READY
    if not facts.desired:
        return Condition(type=kind, status="False", reason="NoValidSpec", message="No valid spec was seen yet")
    if all(role.replicas == 0 for role in facts.desired):
        until = " until a request arrives" if facts.scaling is not None and facts.scaling.sleeps else ""
        return Condition(type=kind, status="True", reason="ScaledToZero", message=f"No instance is desired{until}")
    answered = facts.observations is not None
    short = [found for role, instances in facts.by_role if (found := shortage(role, instances, api_answers=answered)) is not None]
    if short:
        gravest = min((reason for reason, _ in short), key=SHORTAGES.index)
        return Condition(type=kind, status="False", reason=gravest, message="; ".join(words for _, words in short))
    words = "; ".join(serving_words(role, instances) for role, instances in facts.by_role)
    return Condition(type=kind, status="True", reason="AllServing", message=words)


def progressing(facts: PoolFacts) -> Condition:
    kind = ConditionType.PROGRESSING
    draining = count(facts.instances, InstanceState.DRAINING)
    live = [instance for instance in facts.instances if instance.draining_since is None and not instance.terminating]
    current = {role.role: role.spec_hash for role in facts.desired}
    old = sum(1 for instance in live if current and instance.spec_hash != current.get(instance.role))
    if facts.rollout_trouble is not None and (old or any(role.replicas for role in facts.desired)):
        reason, why = facts.rollout_trouble
        still = f"; {old} instances still have the old template" if old else ""
        return Condition(type=kind, status="False", reason=reason, message=f"{why}{still}")
    if old:
        return Condition(type=kind, status="True", reason="RollingReplacement", message=f"{old} instances still have the old template")
    if draining:
        return Condition(type=kind, status="True", reason="Draining", message=f"{draining} instances drain")
    scaling = [words for role, instances in facts.by_role if (words := scaling_words(role, instances)) is not None]
    if scaling:
        return Condition(type=kind, status="True", reason="Scaling", message="; ".join(scaling))
    return Condition(type=kind, status="False", reason="Settled", message="Nothing to do")
