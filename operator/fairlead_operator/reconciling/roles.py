"""The desired numbers of instances of a pool's roles, the source of each number, and its changes; also the
InferencePoolRole objects. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fairlead.conditions.roles import count
from fairlead.instances import InstanceState, Role
from fairlead.pool_roles import role_object_name
from fairlead.pools import PoolSpec
from fairlead.reconciling.devices import SharedDevices
from fairlead.reconciling.observed import (
    DesiredPool,
    DesiredRole,
    ObservedInstance,
    PodHealth,
    RoleChange,
    RolloutBounds,
    Warming,
    Workload,
)
from fairlead.role_specs import RoleSpec
from fairlead.scaling.specs import RatioSpec
from fairlead.scaling.targets import NONE_STANDING
from fairlead_operator.applying.ownership import is_orphan, is_owned
from fairlead_operator.observing.field_managers import spec_manager
from fairlead_operator.pod_templates import SELECTED_HASH, spec_hash
from fairlead_operator.pool_identity import PoolIdentity

_NO_WORKLOADS: Mapping[Role, Workload | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReplicas:
    """The desired number of instances of a role, and the source of the number as words, such as `spec.replicas set by
    kubectl`.

    `least` is the lower bound in force: the role's own bound, or that of a schedule's open window.
    """

    role: Role
    replicas: int
    least: int
    reason: str
    beyond: bool = False
    """Whether the requested number was outside of the role's own bounds; `reason` then names the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleObject:
    """An InferencePoolRole object of the pool: its number of instances, and who wrote the number."""

    document: Mapping[str, Any]
    replicas: int
    manager: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStep:
    """A change of a role's desired number of instances since the status was written."""

    role: Role
    before: int
    after: int
    reason: str

    @property
    def event(self) -> str:
        """The reason code of the event about this step."""
        return "ScalingUp" if self.after > self.before else "ScalingDown"

    @property
    def message(self) -> str:
        """The message of the event about this step. Example: `Prefill instances wanted: 2 → 4 (roles[prefill].replicas
        set by kubectl)`.
        """
        noun = "Instances" if self.role is Role.BOTH else f"{self.role.value.capitalize()} instances"
        return f"{noun} wanted: {self.before} → {self.after} ({self.reason})"

    def figure(self, replicas: int) -> dict[str, Any]:
        """Return a number of the role's instances in the form in which the pool's history stores it."""
        return {"replicas": replicas} if self.role is Role.BOTH else {"role": self.role.value, "replicas": replicas}


def wanted_replicas(
    spec: PoolSpec | None,
    pool: Mapping[str, Any],
    objects: Mapping[Role, RoleObject],
    instances: Sequence[ObservedInstance] = (),
    standing: Mapping[Role, int] = NONE_STANDING,
) -> tuple[WantedReplicas, ...]:
    """Return the number of instances of every role before any bounds of schedules. The number is declared by the pool
    or by the role's object. For a role that selects its pods, it is the number of pods, at least one. `standing` has
    the present numbers of the roles whose number is missing in the status.
    """
    if spec is None:
        return ()
    return tuple(
        _declared(spec, role, pool, objects.get(role.name), standing) if is_declared(role) else _selected(role, instances)
        for role in spec.roles
    )


def is_declared(role: RoleSpec) -> bool:
    """Return whether somebody declares the number of instances of a role. A role that only selects pods has no declared
    number; it has as many instances as pods.
    """
    return role.selector is None or role.scale_target_ref is not None


def _selected(role: RoleSpec, instances: Sequence[ObservedInstance]) -> WantedReplicas:
    there = [one for one in instances if one.adopted and one.role is role.name and one.spec_hash == SELECTED_HASH]
    number = sum(1 for one in there if not one.terminating and one.health is not PodHealth.FAILED)
    return WantedReplicas(role=role.name, replicas=max(1, number), least=0, reason=f"pods with {role.selector}")


def _declared(
    spec: PoolSpec, role: RoleSpec, pool: Mapping[str, Any], found: RoleObject | None, standing: Mapping[Role, int]
) -> WantedReplicas:
    if role.name is Role.BOTH:
        manager = spec_manager(pool["metadata"], "replicas")
        return WantedReplicas(role=role.name, replicas=spec.replicas, least=role.least, reason=f"spec.replicas set by {manager}")
    if role.replicas is not None:
        manager = spec_manager(pool["metadata"], "roles", role.name.value, "replicas")
        reason = f"roles[{role.name}].replicas set by {manager}"
        return WantedReplicas(role=role.name, replicas=role.replicas, least=role.least, reason=reason)
    if found is None:
        # The object is new, or somebody deleted it: what was wanted before goes on.
        known = next((item.get("desired") for item in (pool.get("status") or {}).get("roles") or () if item["name"] == role.name), None)
        number = min(max(standing.get(role.name, 0) if known is None else known, role.least), role.max_replicas)
        return WantedReplicas(role=role.name, replicas=number, least=role.least, reason="its InferencePoolRole is made now")
    reason, beyond = f"replicas of its InferencePoolRole set by {found.manager}", True
    if found.replicas < role.least:
        reason = f"{found.replicas} {reason}; roles[{role.name}].minReplicas makes it {role.least}"
    elif found.replicas > role.max_replicas:
        reason = f"{found.replicas} {reason}; roles[{role.name}].maxReplicas makes it {role.max_replicas}"
    else:
        beyond = False
    return WantedReplicas(role=role.name, replicas=found.replicas, least=role.least, reason=reason, beyond=beyond)


def desired_roles(
    spec: PoolSpec | None, wanted: tuple[WantedReplicas, ...], workloads: Mapping[Role, Workload | None] = _NO_WORKLOADS
) -> tuple[DesiredRole, ...]:
    """Return the planner's input about every role, from the spec in force and the wanted numbers. `workloads` are the
    workloads that the roles scale.
    """
    if spec is None:
        return ()
    of = {item.role: item for item in wanted}
    return tuple(
        DesiredRole(
            role=role.name,
            replicas=of[role.name].replicas,
            min_replicas=of[role.name].least,
            max_replicas=role.most,
            spec_hash=spec_hash(spec, role.name),
            drain_timeout_seconds=spec.drain.timeout_seconds,
            rollout=RolloutBounds(max_surge=spec.rollout.max_surge, max_unavailable=spec.rollout.max_unavailable),
            warming=Warming(seconds=spec.routing.warming.duration_seconds, first_weight=spec.routing.warming.first_weight),
            nodes=role.spans,
            asleep=role.asleep,
            adopts=role.selector is not None,
            workload=workloads.get(role.name),
            replace_stalled_after_seconds=spec.engine.replace_stalled_after_seconds,
            prefill_speed=spec.facts().engine.declared.prefill_tokens_per_second,
        )
        for role in spec.roles
    )


def sharing(roles: tuple[DesiredRole, ...], devices: SharedDevices) -> tuple[DesiredRole, ...]:
    """Return the roles, with `devices` (the devices on which the pool takes turns) added to the role `BOTH`."""
    return tuple(replace(role, devices=devices) if role.role is Role.BOTH else role for role in roles)


def desired_pool(ratio: RatioSpec | None, roles: tuple[DesiredRole, ...]) -> DesiredPool | None:
    """Return the planner's input about the pool; None without a spec in force. The `ratio` section decides how an
    instance changes its role. If an instance has several nodes, it is always replaced, because a restart of its group
    would undo a change of its role.
    """
    if ratio is None:
        return None
    change = RoleChange.REPLACE if any(role.nodes > 1 for role in roles) else RoleChange(ratio.method.value)
    return DesiredPool(roles=roles, role_change=change)


def scale_steps(
    status: Mapping[str, Any], wanted: tuple[WantedReplicas, ...], standing: Mapping[Role, int] = NONE_STANDING
) -> tuple[ScaleStep, ...]:
    """Return a step for each role whose desired number differs from the number in the status or, if the status has
    none, from its number in `standing`. Roles without an earlier number are left out.
    """
    told = {role["name"]: role.get("desired") for role in status.get("roles") or ()}
    before = {role.value: number for role, number in standing.items()} | {
        name: number for name, number in told.items() if number is not None
    }
    return tuple(
        ScaleStep(role=item.role, before=known, after=item.replicas, reason=item.reason)
        for item in wanted
        if (known := before.get(item.role.value)) is not None and known != item.replicas
    )


def read_role_objects(documents: Iterable[Mapping[str, Any]], identity: PoolIdentity) -> dict[Role, RoleObject]:
    """Return the objects of the pool's roles; objects of another owner, or with another name than the operator gives,
    are left out.
    """
    found = {document["metadata"]["name"]: document for document in documents}
    objects = {}
    for role in (Role.PREFILL, Role.DECODE):
        document = found.get(role_object_name(identity.name, role))
        if document is None or not (is_owned(document["metadata"], identity.uid) or is_orphan(document["metadata"], identity)):
            continue
        manager = spec_manager(document["metadata"], "replicas")
        objects[role] = RoleObject(document=document, replicas=int(document["spec"]["replicas"]), manager=manager)
    return objects


def role_object_status(
    document: Mapping[str, Any], role: DesiredRole, declared: WantedReplicas, instances: tuple[ObservedInstance, ...], selector: str
) -> dict[str, Any]:
    """Return the status of a role's object.

    Its message is about the number that the object or the pool declares; the number that results from schedules is in
    the pool's status.
    """
    return {
        "observedGeneration": int(document["metadata"].get("generation") or 0),
        "replicas": sum(1 for instance in instances if instance.counts),
        "serving": count(instances, InstanceState.SERVING),
        "desired": role.replicas,
        "message": declared.reason,
        "selector": selector,
    }
