"""Builds the pool's status document and the smallest patch that updates it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.conditions.facts import PoolFacts
from fairlead.conditions.pool_conditions import merge_conditions, pool_conditions
from fairlead.conditions.roles import count
from fairlead.instances import InstanceState
from fairlead.pool_states import TaskObservation
from fairlead.reconciling.observed import DesiredRole, ObservedInstance
from fairlead.schemas.writing import written
from fairlead.tables import SloFacts
from fairlead_operator.reconciling.roles import ScaleStep
from fairlead_operator.reconciling.rollouts import rollout_document
from fairlead_operator.reconciling.specs import SpecInForce

_TARGETS = frozenset({"ttft", "tpot", "percentile"})


def status_document(
    pool: Mapping[str, Any],
    in_force: SpecInForce,
    facts: PoolFacts,
    *,
    selector: str,
    steps: tuple[ScaleStep, ...],
    scaling: Mapping[str, Any],
    anchors: int,
    last_ordinal: int,
    now: str,
    slo: SloFacts | None,
    schedules: tuple[dict[str, Any], ...] = (),
    revisions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the whole status.

    `now` is RFC 3339; `steps` are the changes of the desired numbers since `pool` was read; `scaling` is
    `status.scaling`; `revisions` is made by `revisions_status`; `anchors` is the number of all instances' points on the
    hash rings; `last_ordinal` is the highest ordinal ever given; `slo` has the targets in force, which a schedule may
    have set. Fields about roles stay unchanged while no spec can be read.
    """
    old = pool.get("status") or {}
    generation, is_known = int(pool["metadata"].get("generation") or 0), in_force.spec is not None
    present = [instance for instance in facts.instances if not instance.terminating]
    serving = sum(1 for instance in present if instance.state is InstanceState.SERVING)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": list(merge_conditions(old.get("conditions") or (), pool_conditions(facts), generation, now)),
        "desired": sum(role.replicas for role, _ in facts.by_role) if is_known else old.get("desired", 0),
        "replicas": len(_present(facts.instances)),
        "serving": serving,
        "selector": selector,
        "lastOrdinal": last_ordinal,
        "roles": [_role(old, role, instances, steps, now) for role, instances in facts.by_role] if is_known else old.get("roles", []),
        "ring": _ring(old, facts, anchors),
        "slo": _slo(old.get("slo") or {}, facts, slo),
        **({"scaling": scaling} if scaling else {}),
        **revisions,
    }
    if schedules or "schedules" in old:
        status["schedules"] = list(schedules)
    if facts.rollout is not None:
        status["rollout"] = rollout_document(facts.rollout)
    if in_force.spec is not None:
        status["specInForce"] = {"generation": in_force.generation, "spec": in_force.document}
    return status


def revisions_status(current: str, facts: PoolFacts, revision: str, *, halted: bool) -> dict[str, str]:
    """Return the name of the revision that all instances last had, and of the revision of the spec in force, as in a
    StatefulSet's status.

    A pool without instances counts as having finished the rollout of any revision, unless the rollout is halted.
    """
    if facts.rollout is None and (not current or not halted or _present(facts.instances)):
        current = revision
    told = {"currentRevision": current, "updateRevision": revision}
    return {name: value for name, value in told.items() if value}


def _present(instances: Iterable[ObservedInstance]) -> list[ObservedInstance]:
    return [instance for instance in instances if instance.counts]


def _role(
    old: Mapping[str, Any], role: DesiredRole, instances: tuple[ObservedInstance, ...], steps: tuple[ScaleStep, ...], now: str
) -> dict[str, Any]:
    known: Mapping[str, Any] = next((item for item in old.get("roles") or () if item.get("name") == role.role.value), {})
    step = next((step for step in steps if step.role is role.role), None)
    last = {"at": now, "from": step.before, "to": step.after, "reason": step.reason} if step is not None else known.get("lastScale")
    return {
        "name": role.role.value,
        "desired": role.replicas,
        "ready": count(instances, InstanceState.SERVING),
        "updated": sum(1 for instance in _present(instances) if instance.spec_hash == role.spec_hash),
        "starting": count(instances, InstanceState.PENDING, InstanceState.STARTING, InstanceState.WARMING),
        "draining": count(instances, InstanceState.DRAINING),
        "lost": count(instances, InstanceState.LOST),
        **({"asleep": asleep} if (asleep := count(instances, InstanceState.ASLEEP)) or role.asleep else {}),
        **({"lastScale": last} if last else {}),
    }


def _slo(old: Mapping[str, Any], facts: PoolFacts, targets: SloFacts | None) -> dict[str, Any]:
    """Return `status.slo`: the targets in force, and the shares of requests within them. A share is left out if the
    condition SLOMet says that it is not known.
    """
    told = {name: value for name, value in written(targets).items() if name in _TARGETS} if targets is not None else {}
    seen = facts.last_heard.observations if facts.observations is None and facts.last_heard is not None else facts.observations
    if seen is None:
        is_asked = facts.api_problem is None  # the control API was asked a moment ago and may still respond
        return {**told, **{name: value for name, value in old.items() if is_asked and name not in _TARGETS}}
    shares = {"attainment": seen.slo_attainment, "ttftAttainment": seen.ttft_attainment, "tpotAttainment": seen.tpot_attainment}
    known = {name: round(share, 3) for name, share in shares.items() if share is not None and not seen.figures_behind_seconds}
    return {**told, **known, **({"tasks": [_tasks(one) for one in seen.tasks]} if seen.tasks else {})}


def _tasks(seen: TaskObservation) -> dict[str, Any]:
    attained = {"attainment": round(seen.in_time / seen.tasks, 3)} if seen.tasks else {}
    return {"name": seen.name, **attained, "tasks": seen.tasks, "brokenOff": seen.broken_off}


def _ring(old: Mapping[str, Any], facts: PoolFacts, anchors: int) -> dict[str, Any]:
    version = facts.observations.table_version if facts.observations is not None else (old.get("ring") or {}).get("version", 0)
    return {"version": version, "anchors": anchors}


def is_urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether the status changed in more than numbers and wording. If only numbers and wording changed, the
    write may wait for the next regular round.
    """
    return _essence(old) != _essence(new)


def _essence(status: Mapping[str, Any]) -> dict[str, Any]:
    essence = {name: value for name, value in status.items() if name not in {"slo", "scaling", "conditions"}}
    # a rollout that is paused has nothing else to tell
    essence["rollout"] = {name: value for name, value in (status.get("rollout") or {}).items() if name != "updatedAt"}
    essence["decisions"] = (status.get("scaling") or {}).get("decisions") or []
    essence["conditions"] = [
        {name: value for name, value in condition.items() if name != "message" or condition.get("type") == "Ready"}
        for condition in status.get("conditions") or []
    ]
    return essence
