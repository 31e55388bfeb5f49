"""All conditions of a pool, and how they become the list in its status."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fairlead.conditions.answers import NOT_ANSWERED_YET, control_plane_reachable, ring_synced, slo_met
from fairlead.conditions.degradation import degraded
from fairlead.conditions.facts import ActionFailure, Condition, ConditionType, PoolFacts
from fairlead.conditions.gateways import gateway_ready
from fairlead.conditions.migrations import migrations_paused
from fairlead.conditions.readiness import instances_ready, progressing, ready
from fairlead.conditions.scaling import scaling_active, scaling_limited


def pool_conditions(facts: PoolFacts) -> tuple[Condition, ...]:
    """All conditions of a pool: one per type, always the same types in the same order.

    GatewayReady is left out where the pool asks for no gateway.
    """
    of_instances = instances_ready(facts)
    of_gateways = () if facts.gateway is None else (gateway_ready(facts.gateway),)
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


def only_degraded(
    previous: Iterable[Mapping[str, Any]], failure: ActionFailure, generation: int, now: str
) -> tuple[Mapping[str, Any], ...] | None:
    """The list after a round that broke, so that nothing else is newly known; None when it says so already."""
    before = tuple(previous)
    kind = ConditionType.DEGRADED
    fresh = Condition(type=kind, status="True", reason=failure.reason, message=failure.message)
    if any((one.get("type"), one.get("reason"), one.get("message")) == (kind, fresh.reason, fresh.message) for one in before):
        return None
    return (*(one for one in before if one.get("type") != kind), *merge_conditions(before, (fresh,), generation, now))
