"""The conditions of a pool's status, with named reasons, computed from what was observed.

Pure; times come from the caller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.observed import DesiredRole, ObservedInstance


class ConditionType(StrEnum):
    READY = "Ready"
    INSTANCES_READY = "InstancesReady"
    RING_SYNCED = "RingSynced"
    PROGRESSING = "Progressing"
    SLO_MET = "SLOMet"
    CONTROL_PLANE_REACHABLE = "ControlPlaneReachable"
    DEGRADED = "Degraded"


NOT_ANSWERED_YET = "NotAnsweredYet"


class SpecRefusal(StrEnum):
    """Why a spec that passed the schema is refused: the reason of Ready=False and of the event SpecRefused."""

    INVALID_SPEC = "InvalidSpec"
    INVALID_ROUTING = "InvalidRouting"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """A refused spec: the named reason, and one line with field, value and remedy."""

    reason: SpecRefusal
    message: str


class ActionFailureReason(StrEnum):
    """Why an action of the operator failed: the reason of Degraded=True and of the event about it."""

    ACTION_FAILED = "ActionFailed"
    CHILD_NOT_OURS = "ChildNotOurs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """An action that failed: the named reason, and one line with the server's words or the remedy."""

    reason: ActionFailureReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition before it has a time. `status` is True, False or Unknown."""

    type: ConditionType
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The facts from which the conditions are computed.

    `observations` None = the API did not answer, and `api_problem` says why. Both None = the API was asked too
    recently to call it unanswered. `troubles` maps a reason to the instances whose containers cannot run because of
    it. `apply_problem` says why the last action failed, if it did. `strangers` are pods that carry the pool's label
    and are not its instances.
    """

    problem: SpecProblem | None
    desired: DesiredRole | None
    instances: tuple[ObservedInstance, ...]
    observations: PoolObservations | None
    api_problem: str | None
    slo_percentile: float | None
    troubles: Mapping[str, tuple[str, ...]]
    apply_problem: ActionFailure | None
    strangers: tuple[str, ...] = ()


def pool_conditions(facts: PoolFacts) -> tuple[Condition, ...]:
    """All conditions of a pool: one per type, always the same types in the same order."""
    instances_ready = _instances_ready(facts)
    degraded = _degraded(facts)
    return (
        _ready(facts, instances_ready),
        instances_ready,
        _ring_synced(facts),
        _progressing(facts),
        _slo_met(facts),
        _control_plane(facts),
        degraded,
    )


def merge_conditions(
    previous: Iterable[Mapping[str, Any]], fresh: Iterable[Condition], generation: int, now: str
) -> tuple[dict[str, Any], ...]:
    """The new status.conditions list.

    `now` (RFC 3339) becomes lastTransitionTime only where the status differs from the previous one. A condition whose
    status is not known yet keeps its previous value.
    """
    before = {str(condition.get("type")): condition for condition in previous}
    merged = []
    for condition in fresh:
        known = before.get(condition.type.value)
        if known is not None and condition.reason == NOT_ANSWERED_YET:
            merged.append(dict(known))
            continue
        same = known is not None and known.get("status") == condition.status and known.get("lastTransitionTime")
        since = str(known["lastTransitionTime"]) if known is not None and same else now
        merged.append({**asdict(condition), "type": condition.type.value, "observedGeneration": generation, "lastTransitionTime": since})
    return tuple(merged)


def _is_unanswered(facts: PoolFacts) -> bool:
    return facts.observations is None and facts.api_problem is None


def _not_answered_yet(kind: ConditionType) -> Condition:
    return Condition(
        type=kind, status="Unknown", reason=NOT_ANSWERED_YET, message="The control API has been asked and has not answered yet"
    )


def _count(facts: PoolFacts, *states: InstanceState) -> int:
    return sum(1 for instance in facts.instances if instance.state in states and not instance.terminating)


def _ready(facts: PoolFacts, instances_ready: Condition) -> Condition:
    if facts.problem is not None:
        kept = "the last good spec stays in force" if facts.desired is not None else "nothing is created until it is corrected"
        return Condition(type=ConditionType.READY, status="False", reason=facts.problem.reason, message=f"{facts.problem.message}; {kept}")
    return Condition(
        type=ConditionType.READY, status=instances_ready.status, reason=instances_ready.reason, message=instances_ready.message
    )


def _instances_ready(facts: PoolFacts) -> Condition:
    kind = ConditionType.INSTANCES_READY
    if facts.desired is None:
        return Condition(type=kind, status="False", reason="NoValidSpec", message="No valid spec was seen yet")
    serving, wanted = _count(facts, InstanceState.SERVING), facts.desired.replicas
    words = f"{serving} of {wanted} instances serve"
    if wanted == 0:
        return Condition(type=kind, status="True", reason="ScaledToZero", message="No instance is wanted")
    if serving >= wanted:
        return Condition(type=kind, status="True", reason="AllServing", message=words)
    lost = _count(facts, InstanceState.LOST)
    if lost:
        return Condition(type=kind, status="False", reason="InstancesLost", message=f"{words}, {lost} lost")
    if facts.observations is None and _count(facts, InstanceState.WARMING):
        return Condition(
            type=kind,
            status="False",
            reason="WaitingForControlPlane",
            message=f"{words}; ready instances wait for the control API to list them",
        )
    cordoned = _count(facts, InstanceState.CORDONED)
    if cordoned and serving + cordoned >= wanted:
        return Condition(type=kind, status="False", reason="InstancesCordoned", message=f"{words}, {cordoned} are cordoned")
    return Condition(type=kind, status="False", reason="InstancesStarting", message=words)


def _ring_synced(facts: PoolFacts) -> Condition:
    kind = ConditionType.RING_SYNCED
    if _is_unanswered(facts):
        return _not_answered_yet(kind)
    if facts.observations is None:
        return Condition(
            type=kind, status="Unknown", reason="ControlPlaneUnreachable", message="Routers go on with the last table they have"
        )
    version = facts.observations.table_version
    if facts.observations.live_routers == 0:
        return Condition(type=kind, status="True", reason="NoLiveRouter", message=f"Table version {version}; no router reported lately")
    if facts.observations.table_acknowledged:
        message = f"All {facts.observations.live_routers} live routers route by table version {version}"
        return Condition(type=kind, status="True", reason="Acknowledged", message=message)
    return Condition(
        type=kind, status="False", reason="WaitingForRouters", message=f"Not every live router has table version {version} yet"
    )


def _progressing(facts: PoolFacts) -> Condition:
    kind = ConditionType.PROGRESSING
    draining = _count(facts, InstanceState.DRAINING)
    starting = _count(facts, InstanceState.PENDING, InstanceState.STARTING, InstanceState.WARMING)
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


def _slo_met(facts: PoolFacts) -> Condition:
    kind = ConditionType.SLO_MET
    if facts.slo_percentile is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if _is_unanswered(facts):
        return _not_answered_yet(kind)
    if facts.observations is None:
        return Condition(type=kind, status="Unknown", reason="ControlPlaneUnreachable", message="Attainment is not known")
    attained = facts.observations.ttft_attainment
    if attained is None:
        return Condition(type=kind, status="Unknown", reason="NoTraffic", message="No request finished in the last 5 minutes")
    words = f"{attained * 100:.0f}% of the requests of the last 5 minutes met the TTFT target, wanted {facts.slo_percentile:g}%"
    met = attained * 100 >= facts.slo_percentile
    return Condition(type=kind, status="True" if met else "False", reason="TargetMet" if met else "TargetMissed", message=words)


def _control_plane(facts: PoolFacts) -> Condition:
    kind = ConditionType.CONTROL_PLANE_REACHABLE
    if _is_unanswered(facts):
        return _not_answered_yet(kind)
    if facts.observations is None:
        message = f"{facts.api_problem}; what serves goes on, drains and new instances wait"
        return Condition(type=kind, status="False", reason="NoAnswer", message=message)
    return Condition(type=kind, status="True", reason="Answered", message="The control API took the pool's state")


def _degraded(facts: PoolFacts) -> Condition:
    kind = ConditionType.DEGRADED
    if facts.apply_problem is not None:
        return Condition(type=kind, status="True", reason=facts.apply_problem.reason, message=facts.apply_problem.message)
    for reason, instances in sorted(facts.troubles.items()):
        return Condition(type=kind, status="True", reason=reason, message=f"{', '.join(instances)}: {reason}")
    lost = [instance.id for instance in facts.instances if instance.state is InstanceState.LOST and not instance.terminating]
    if lost:
        return Condition(type=kind, status="True", reason="InstancesLost", message=f"Lost: {', '.join(sorted(lost))}")
    if facts.desired is not None:
        accepting = _count(facts, *ACCEPTING)
        if (
            facts.desired.replicas > 0
            and accepting < facts.desired.min_replicas
            and not _count(facts, InstanceState.PENDING, InstanceState.STARTING)
        ):
            message = f"{accepting} instances take requests, less than the minimum of {facts.desired.min_replicas}"
            return Condition(type=kind, status="True", reason="BelowMinimum", message=message)
    if facts.strangers:
        message = f"{', '.join(facts.strangers)}: has the pool's label, so the Service selects it, but is no instance; remove the label"
        return Condition(type=kind, status="True", reason="StrangePods", message=message)
    return Condition(type=kind, status="False", reason="AsExpected", message="Nothing is wrong")
