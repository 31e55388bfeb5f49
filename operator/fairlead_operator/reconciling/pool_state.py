"""Translates a pool's objects into the types of the planner, the control API and the conditions. Pure."""

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fairlead.conditions.facts import PoolFacts, Trouble
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pool_states import PoolState, SchedulesInForce
from fairlead.pools import PoolSpec
from fairlead.reconciling.backoff import replaced_at
from fairlead.reconciling.observed import ReplicaLimits
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.table_content import outlook
from fairlead.tables import CanaryFacts, InstanceEntry, Outlook, PriorityClass
from fairlead_operator.observing.field_managers import owner_of, spec_manager, who_changed
from fairlead_operator.observing.groups import LEADERLESS_SECONDS, no_leader
from fairlead_operator.observing.pods import Pod
from fairlead_operator.pod_templates import PORT_NAME
from fairlead_operator.reconciling.roles import WantedReplicas
from fairlead_operator.reconciling.specs import SpecInForce

_ALL_WARM: Mapping[str, float] = MappingProxyType({})


def pool_state(
    pool: dict[str, Any],
    pods: tuple[Pod, ...],
    in_force: SpecInForce,
    warming: Mapping[str, float] = _ALL_WARM,
    schedules: SchedulesInForce | None = None,
    scaling_decisions: tuple[ScalingDecisionRecord, ...] = (),
    expected: tuple[Outlook, float | None] = (Outlook.UNKNOWN, None),
    objectives: tuple[PriorityClass, ...] = (),
    leaving: frozenset[str] = frozenset(),
    canary: CanaryFacts | None = None,
) -> PoolState:
    """Return the state to send to the control API.

    The state contains the object's spec even if that spec is refused; `schedules` follow the spec in force. Conditions
    and desired numbers are taken from the status, because the new values of this round depend on the response.
    `warming` has the present share (0-1) of its full weight for each instance that warms. `leaving` names the instances
    that will be drained soon.
    """
    metadata, status = pool["metadata"], pool.get("status") or {}
    return PoolState(
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        resource_version=metadata["resourceVersion"],
        spec=pool.get("spec") or {},
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        changed_by=who_changed(pool),
        owners={name: owner for name in pool.get("spec") or {} if (owner := owner_of(metadata, name)) is not None},
        last_writer=spec_manager(metadata),
        problem=in_force.problem.message if in_force.problem is not None else None,
        schedules=schedules,
        desired=_desired(status) or (_none_of(pool.get("spec") or {}) if in_force.spec is None else {}),
        conditions=tuple(status.get("conditions") or ()),
        instances=tuple(pod.report(warming.get(pod.instance.id, 1.0), stays=pod.instance.id not in leaving) for pod in pods),
        scaling_decisions=scaling_decisions,
        outlook=expected[0],
        opens_at=expected[1],
        objectives=objectives,
        canary=canary,
    )


def present_outlook(
    spec: PoolSpec | None, pool: Mapping[str, Any], declared: tuple[WantedReplicas, ...], pods: tuple[Pod, ...], now: float
) -> tuple[Outlook, float | None]:
    """Return the outlook for routers while no instance accepts requests, such as the time until an instance does;
    Unknown without a spec in force.
    """
    if spec is None:
        return Outlook.UNKNOWN, None
    stuck = frozenset(pod.instance.id for pod in pods if pod.trouble is not None)
    number = {item.role: item.replicas for item in declared}
    return outlook(spec, number, _desired(pool.get("status") or {}), [pod.instance for pod in pods], stuck, now)


def _desired(status: Mapping[str, Any]) -> dict[str, int]:
    """Return the desired number of instances by role, from the status."""
    return {role["name"]: int(role["desired"]) for role in status.get("roles") or () if "desired" in role}


def _none_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return 0 as the desired number of each role, for a pool that never had a spec in force. Without these zeros, the
    API would show the numbers of the refused spec.
    """
    return {role["name"]: 0 for role in spec.get("roles") or ({"name": Role.BOTH.value},)}


def ring_anchors(state: PoolState, in_force: SpecInForce) -> int:
    """Return the number of anchors (points of instances on the hash rings) in the routing table that follows from this
    state, as a sum over all instances with an address.
    """
    each = in_force.spec.routing.anchors_per_instance if in_force.spec is not None else 0
    return sum(
        anchor_count(InstanceEntry(id=item.id, address=item.address, role=item.role, state=item.state, weight=item.weight, anchors=each))
        for item in state.instances
        if item.address is not None
    )


def last_ordinal(pool: dict[str, Any], pods: tuple[Pod, ...]) -> int:
    """Return the highest ordinal ever given in a pool: from its status, which covers deleted instances, and from its
    pods.

    `pods` must be read after `pool`. Otherwise the status could count a pod of another operator that `pods` does not
    contain.
    """
    return max((given_ordinal(pool), *(pod.instance.ordinal for pod in pods)))


def given_ordinal(pool: Mapping[str, Any]) -> int:
    """Return the highest ordinal ever given, by the status."""
    return int((pool.get("status") or {}).get("lastOrdinal") or 0)


def service_target(spec: PoolSpec | None, pods: tuple[Pod, ...]) -> int | str:
    """Return the target port of the pool's Service. This is the port's name if this name refers to the engine's port in
    every pod, or if no spec is in force. Otherwise it is the port number in the spec.
    """
    named = all(pod.shown.named == pod.engine.port for pod in pods if not pod.instance.terminating)
    return PORT_NAME if named or spec is None else spec.engine.port


def target_ports(spec: PoolSpec | None, pods: tuple[Pod, ...]) -> tuple[int, ...]:
    """Return the ports at which instances of the pool listen: first the port at which most instances take requests;
    last the port of the spec in force, at which new instances will listen.
    """
    found = Counter({pod.engine.port: 0 for pod in pods if pod.engine.port is not None})
    found.update(pod.engine.port for pod in pods if pod.instance.state in ACCEPTING and pod.engine.port is not None)
    wanted = (spec.engine.port,) if spec is not None else ()
    return tuple(dict.fromkeys((*(port for port, _ in found.most_common()), *wanted)))


def troubles_of(pods: tuple[Pod, ...], now: float) -> tuple[Trouble, ...]:
    """Return the problems that keep instances from running at this Unix time; instances that are being deleted are left
    out.
    """
    late = (pod for pod in pods if pod.is_leaderless and now - pod.instance.created_at >= LEADERLESS_SECONDS)
    leaderless = {pod.instance.id: no_leader(pod.instance.group) for pod in late}
    found = (pod.trouble or leaderless.get(pod.instance.id) for pod in pods if not pod.instance.terminating)
    return tuple(trouble for trouble in found if trouble is not None)


def selecting_nothing(spec: PoolSpec | None, pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """Return the selectors of those roles that select pods but have no instance."""
    having = {pod.instance.role for pod in pods if not pod.instance.terminating}
    roles = spec.roles if spec is not None else ()
    return tuple(str(role.selector) for role in roles if role.selector is not None and role.name not in having)


def is_busy(facts: PoolFacts, now: float) -> bool:
    """Return whether the pool must be polled because something is in progress that ends without a watch event: an
    instance warms, wakes up or drains, or was created less than a second ago. An adopted instance that drains on a
    person's request does not count.
    """
    return any(
        instance.state is InstanceState.WARMING
        or instance.waking
        or (instance.state is InstanceState.DRAINING and not (instance.adopted and instance.drained_on_request))
        or 0 <= now - instance.created_at < 1.0
        for instance in facts.instances
        if not instance.terminating
    )


def seconds_to_replacement(facts: PoolFacts, limits: ReplicaLimits, now: float) -> float:
    """Return the seconds until the first lost instance may be replaced; infinite if no instance is lost."""
    lost = (instance for instance in facts.instances if instance.state is InstanceState.LOST and not instance.terminating)
    return min((max(0.0, replaced_at(instance, limits) - now) for instance in lost), default=math.inf)
