"""All conditions of a pool, joined into the list in its status.

This module adds the conditions for paused migrations, gateways and scaling; scaling uses the words of Kubernetes'
HorizontalPodAutoscaler. Each gateway has its own entry in the status of the GAIE InferencePool, which says whether it
takes the pool as a backend (`Accepted`) and finds the endpoint picker (`ResolvedRefs`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fairlead.conditions.answers import NOT_ANSWERED_YET, control_plane_reachable, not_answered_yet, ring_synced, slo_met, task_slo_met
from fairlead.conditions.facts import (
    ActionFailure,
    Condition,
    ConditionType,
    GatewayFacts,
    GatewayJudgement,
    GatewayParent,
    PoolFacts,
    ScalingFacts,
)
from fairlead.conditions.readiness import degraded, instances_ready, progressing, ready
from fairlead.instances import Role
from fairlead.reconciling.devices import DeviceUser, Turn
from fairlead.scaling.targets import RoleTarget, TargetReason


def pool_conditions(facts: PoolFacts) -> tuple[Condition, ...]:
    """Return all conditions of a pool: one per type, always the same types in the same order.

    GatewayReady is left out if the spec has no gateway, ForecastHolds if no schedule follows a forecast, TaskSLOMet if
    the spec has no targets of whole tasks, and HasDevices if the pool takes no turns on devices.
    """
    of_instances = instances_ready(facts)
    of_gateways = () if facts.gateway is None else (gateway_ready(facts.gateway),)
    of_forecasts = (forecast_holds(facts),) if facts.follows_forecast else ()
    of_tasks = (task_slo_met(facts),) if facts.task_targets else ()
    of_turns = (has_devices(facts, facts.turn),) if facts.turn is not None else ()
    return (
        ready(facts, of_instances),
        of_instances,
        ring_synced(facts),
        progressing(facts),
        slo_met(facts),
        control_plane_reachable(facts),
        degraded(facts),
        scaling_active(facts),
        scaling_limited(facts),
        migrations_paused(facts),
        *of_gateways,
        *of_forecasts,
        *of_tasks,
        *of_turns,
    )


def merge_conditions(
    previous: Iterable[Mapping[str, Any]], fresh: Iterable[Condition], generation: int, now: str
) -> tuple[dict[str, Any], ...]:
    """Return the new status.conditions list.

    `now` (RFC 3339) becomes the lastTransitionTime of each condition whose status differs from its previous status. A
    condition whose status is not known yet keeps its previous value.
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


def only_degraded(
    previous: Iterable[Mapping[str, Any]], failure: ActionFailure, generation: int, now: str
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the condition list after a failed reconcile round. Degraded is updated, and HasDevices if the pool has it;
    all other conditions stay. None if Degraded already reports this failure.
    """
    before = tuple(previous)
    kind = ConditionType.DEGRADED
    fresh = [Condition(type=kind, status="True", reason=failure.reason, message=failure.message)]
    if any((one.get("type"), one.get("reason"), one.get("message")) == (kind, fresh[0].reason, fresh[0].message) for one in before):
        return None
    if any(one.get("type") == ConditionType.HAS_DEVICES for one in before):
        fresh.append(_cannot_use_a_device())
    kinds = {one.type for one in fresh}
    return (*(one for one in before if one.get("type") not in kinds), *merge_conditions(before, fresh, generation, now))


def migrations_paused(facts: PoolFacts) -> Condition:
    """Return the condition MigrationsPaused: True while `spec.routing.migrations` is Paused."""
    kind = ConditionType.MIGRATIONS_PAUSED
    if facts.migrations_paused is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if not facts.migrations_paused:
        return Condition(type=kind, status="False", reason="NotPaused", message="Sessions move by the policy's rules")
    message = "Sessions stay on their instance, however hot it is, unless it drains or is lost"
    return Condition(type=kind, status="True", reason="PausedInSpec", message=message)


def forecast_holds(facts: PoolFacts) -> Condition:
    """Return ForecastHolds: True while demand is within the band of the pool's forecast. If the control API does not
    answer, its last answer counts, so an outage of the control API does not change schedules.
    """
    kind = ConditionType.FORECAST_HOLDS
    if facts.observations is None:
        return not_answered_yet(kind)
    if facts.observations.departed:
        message = f"Schedules that follow the forecast are suspended: {facts.observations.departed}"
        return Condition(type=kind, status="False", reason="DemandLeftBand", message=message)
    return Condition(type=kind, status="True", reason="WithinBand", message="Schedules that follow the forecast are in force")


def suspends_forecast(conditions: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether, by these conditions, the schedules that follow a forecast are suspended."""
    return any(one.get("type") == ConditionType.FORECAST_HOLDS and one.get("status") == "False" for one in conditions)


WAITS_FOR_DEVICE, IDLE = "WaitsForDevice", "Idle"
"""Reasons of HasDevices from which other pools decide whether to release a device. WaitsForDevice: the pool waits for a
device. Idle: the pool has its devices and no requests.
"""
_NAMED = 5
"""Maximum number of pods that a message names; further pods are only counted."""


def has_devices(facts: PoolFacts, turn: Turn) -> Condition:
    """Return HasDevices. It is False while the pool's instances wait for other pools' instances to leave the devices
    that they share. A pool whose actions fail does not count as waiting, because it could not use a device.
    """
    kind = ConditionType.HAS_DEVICES
    if facts.apply_problem is not None:
        return _cannot_use_a_device()
    if turn.waiting:
        who = f"{turn.waiting} of {turn.wanted} instances wait{'s' if turn.waiting == 1 else ''} for a device"
        return Condition(type=kind, status="False", reason=WAITS_FOR_DEVICE, message=f"{who}; {_held(turn.holders)}")
    if turn.idle:
        return Condition(type=kind, status="True", reason=IDLE, message="The pool has no requests; pools that wait get its devices first")
    return Condition(type=kind, status="True", reason="HasItsDevices", message="No instance waits for a device")


def _cannot_use_a_device() -> Condition:
    message = "The pool cannot use a device now: see Degraded"
    return Condition(type=ConditionType.HAS_DEVICES, status="Unknown", reason="ActionsFail", message=message)


def _held(holders: tuple[DeviceUser, ...]) -> str:
    words = [f"{one.claim} by {one.pod}{f' of {one.pool} ({one.state})' if one.pool else ', not an instance'}" for one in holders]
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return f"in use: {', '.join(words[:_NAMED])}{more}" if words else "free devices are reserved for pools that come first"


_ACCEPTED = "Accepted"
_RESOLVED = "ResolvedRefs"


def gateway_ready(facts: GatewayFacts) -> Condition:
    """Return GatewayReady: True if every gateway that routes to the pool accepts it and finds its endpoint picker."""
    kind = ConditionType.GATEWAY_READY
    if facts.problem is not None:
        return Condition(type=kind, status="False", reason=facts.problem.reason, message=facts.problem.message)
    if not facts.parents:
        message = (
            "No gateway routes to the pool yet: name it as a backend of an HTTPRoute (group "
            "inference.networking.k8s.io, kind InferencePool)"
        )
        return Condition(type=kind, status="Unknown", reason="NoGateway", message=message)
    refused = _found(facts, _ACCEPTED, "False")
    if refused:
        return Condition(type=kind, status="False", reason="NotAccepted", message=_told(refused))
    unresolved = _found(facts, _RESOLVED, "False")
    if unresolved:
        return Condition(type=kind, status="False", reason="RefsNotResolved", message=_told(unresolved))
    silent = [parent.name for parent in facts.parents if _judgement(parent, _ACCEPTED) is None]
    if silent:
        message = f"{', '.join(silent)}{' has' if len(silent) == 1 else ' have'} not reported yet whether the pool is accepted"
        return Condition(type=kind, status="Unknown", reason="NotJudgedYet", message=message)
    names = ", ".join(parent.name for parent in facts.parents)
    return Condition(type=kind, status="True", reason="Accepted", message=f"Accepted by {names}")


def _judgement(parent: GatewayParent, kind: str) -> GatewayJudgement | None:
    """Return the gateway's judgement; None if the gateway gives no judgement, or reports Unknown."""
    return next((one for one in parent.judgements if one.type == kind and one.status in {"True", "False"}), None)


def _found(facts: GatewayFacts, kind: str, status: str) -> list[tuple[str, GatewayJudgement]]:
    told = ((parent.name, _judgement(parent, kind)) for parent in facts.parents)
    return [(name, one) for name, one in told if one is not None and one.status == status]


def _told(found: list[tuple[str, GatewayJudgement]]) -> str:
    """Return the reasons and messages of gateways, joined, each in the gateway's own words."""
    return "; ".join(f"{name}: {one.reason}{f' ({one.message})' if one.message else ''}" for name, one in found)


def scaling_active(facts: PoolFacts) -> Condition:
    """Return ScalingActive: True if the numbers of instances follow measured signals."""
    kind = ConditionType.SCALING_ACTIVE
    scaling = facts.scaling
    if scaling is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    if scaling.is_fixed:
        return Condition(type=kind, status="False", reason="ScalingDisabled", message="scaling.mode and ratio.mode are Fixed")
    silent = [target.role.value for target in scaling.targets if target.role not in scaling.measured]
    if not silent:
        return Condition(type=kind, status="True", reason="ValidSignalsFound", message="Every role is measured")
    if facts.observations is not None and facts.observations.figures_behind_seconds:
        message = "The control API's roll-ups lag, so the last minutes are not known; the numbers of instances stay as they are"
        return Condition(type=kind, status="False", reason="FiguresBehind", message=message)
    if scaling.answered or facts.api_problem is not None:
        message = f"No fresh measurements of {' and '.join(silent)}; the numbers of instances stay as they are"
        return Condition(type=kind, status="False", reason="NoSignals", message=message)
    return not_answered_yet(kind)


def scaling_limited(facts: PoolFacts) -> Condition:
    """Return ScalingLimited. It is True if bounds keep a role from its desired number of instances. Two intended limits
    do not count: a schedule that sets another number than the declared number, and a minimum that keeps more instances
    than the measured load needs.
    """
    kind = ConditionType.SCALING_LIMITED
    scaling = facts.scaling
    if scaling is None:
        return Condition(type=kind, status="Unknown", reason="NoValidSpec", message="No valid spec was seen yet")
    limited = _limited(scaling)
    if not limited:
        meant = [words for target in scaling.targets if (words := _words_of_meant(target))]
        message = "; ".join(meant) or "No bound keeps a role from its recommended number"
        return Condition(type=kind, status="False", reason="DesiredWithinRange", message=message)
    reason = "TooManyReplicas" if any(target.wanted > target.bounds.upper for target in limited) else "TooFewReplicas"
    return Condition(type=kind, status="True", reason=reason, message="; ".join(_words(target) for target in limited))


def _limited(scaling: ScalingFacts) -> list[RoleTarget]:
    return [target for target in scaling.targets if _is_limited(target, scaling)]


def _is_limited(target: RoleTarget, scaling: ScalingFacts) -> bool:
    if target.reason is TargetReason.SCHEDULE:
        return not scaling.is_fixed and target.wanted > target.bounds.upper
    return target.reason is TargetReason.ROLE_BOUNDS and not (scaling.is_measured and target.wanted < target.bounds.lower)


def _words_of_meant(target: RoleTarget) -> str:
    """Return a sentence about the schedule or the minimum that sets the role's number of instances as intended; empty
    if neither does.
    """
    match target.reason:
        case TargetReason.SCHEDULE:
            return f"Schedule {target.schedule} sets {target.replicas} {_noun(target)}, as intended"
        case TargetReason.ROLE_BOUNDS:
            return f"The minimum of the role keeps {target.replicas} {_noun(target)}, as intended: the load needs only {target.wanted}"
        case _:
            return ""


def _noun(target: RoleTarget) -> str:
    return "instances" if target.role is Role.BOTH else f"{target.role} instances"


def _words(target: RoleTarget) -> str:
    by = f"schedule {target.schedule}" if target.schedule is not None else "the role"
    return f"{target.wanted} {_noun(target)} are recommended, but {by} allows only {target.bounds.lower} to {target.bounds.upper}"
