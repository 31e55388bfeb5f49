"""Ready, InstancesReady and Progressing: do the wanted instances serve, and is something under way?"""

from fairlead.conditions.facts import Condition, ConditionType, PoolFacts
from fairlead.instances import InstanceState


def ready(facts: PoolFacts, of_instances: Condition) -> Condition:
    if facts.problem is not None:
        kept = "the last good spec stays in force" if facts.desired is not None else "nothing is created until it is corrected"
        return Condition(type=ConditionType.READY, status="False", reason=facts.problem.reason, message=f"{facts.problem.message}; {kept}")
    return Condition(type=ConditionType.READY, status=of_instances.status, reason=of_instances.reason, message=of_instances.message)


def instances_ready(facts: PoolFacts) -> Condition:
    kind = ConditionType.INSTANCES_READY
    if facts.desired is None:
        return Condition(type=kind, status="False", reason="NoValidSpec", message="No valid spec was seen yet")
    serving, wanted = facts.count(InstanceState.SERVING), facts.desired.replicas
    words = f"{serving} of {wanted} instances serve"
    if wanted == 0:
        return Condition(type=kind, status="True", reason="ScaledToZero", message="No instance is wanted")
    if serving >= wanted:
        return Condition(type=kind, status="True", reason="AllServing", message=words)
    lost = facts.count(InstanceState.LOST)
    if lost:
        return Condition(type=kind, status="False", reason="InstancesLost", message=f"{words}, {lost} lost")
    if facts.observations is None and facts.count(InstanceState.WARMING):
        return Condition(
            type=kind,
            status="False",
            reason="WaitingForControlPlane",
            message=f"{words}; ready instances wait for the control API to list them",
        )
    cordoned = facts.count(InstanceState.CORDONED)
    if cordoned and serving + cordoned >= wanted:
        return Condition(type=kind, status="False", reason="InstancesCordoned", message=f"{words}, {cordoned} are cordoned")
    return Condition(type=kind, status="False", reason="InstancesStarting", message=words)


def progressing(facts: PoolFacts) -> Condition:
    kind = ConditionType.PROGRESSING
    draining = facts.count(InstanceState.DRAINING)
    starting = facts.count(InstanceState.PENDING, InstanceState.STARTING, InstanceState.WARMING)
    live = [instance for instance in facts.instances if instance.draining_since is None and not instance.terminating]
    if facts.desired is not None and any(instance.spec_hash != facts.desired.spec_hash for instance in live):
        old = sum(1 for instance in live if instance.spec_hash != facts.desired.spec_hash)
        return Condition(type=kind, status="True", reason="RollingReplacement", message=f"{old} instances still have the old template")
    if draining:
        return Condition(type=kind, status="True", reason="Draining", message=f"{draining} instances drain")
    if starting or (facts.desired is not None and len(live) != facts.desired.replicas):
        wanted = facts.desired.replicas if facts.desired is not None else len(live)
        return Condition(type=kind, status="True", reason="Scaling", message=f"{len(live)} of {wanted} instances exist, {starting} start")
    return Condition(type=kind, status="False", reason="Settled", message="Nothing to do")
