"""The change that a request asks for, as a merge patch of the object, checked as a whole pool. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from fairlead.errors import InvalidInput, UnknownName
from fairlead.instance_marks import CORDONED_ANNOTATION, DRAIN_ANNOTATION, WEIGHT_ANNOTATION
from fairlead.instances import LEAST_WEIGHT, MAX_REPLICAS, MOST_WEIGHT, Role
from fairlead.pools import PoolSpec, parse_spec
from fairlead.routing.contracts.catalogues import POLICY_FIELD, PolicyCatalogue
from fairlead_api.plans.merge_patches import merged, replacing
from fairlead_api.plans.schedule_changes import schedule_patch
from fairlead_client.resources.plans import PlanKind, PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a pool's spec, and its fields that a kind of plan may change."""

    name: str
    fields: tuple[str, ...]


SECTIONS: Mapping[PlanKind, Section] = MappingProxyType(
    {
        PlanKind.POLICY: Section(name="routing", fields=("policy", "parameters", "prefillsInFlight")),
        PlanKind.SLO: Section(name="slo", fields=("ttft", "tpot", "percentile")),
        PlanKind.EARLY_REJECTION: Section(name="earlyRejection", fields=("mode", "headroom")),
        PlanKind.RING: Section(name="routing", fields=("anchorsPerInstance",)),
        PlanKind.MIGRATIONS: Section(name="routing", fields=("migrations",)),
        PlanKind.SCALING: Section(name="scaling", fields=("mode", "targetLoad", "zero")),
        PlanKind.RATIO: Section(name="ratio", fields=("mode", "method", "band", "cooldown")),
        PlanKind.ROLLOUT: Section(name="rollout", fields=("paused", "maxSurge", "maxUnavailable", "progressDeadline")),
    }
)


MARKS: Mapping[PlanKind, tuple[str, str | None]] = MappingProxyType(
    {
        PlanKind.CORDON: (CORDONED_ANNOTATION, "true"),
        PlanKind.UNCORDON: (CORDONED_ANNOTATION, None),
        PlanKind.DRAIN: (DRAIN_ANNOTATION, "true"),
        PlanKind.UNDRAIN: (DRAIN_ANNOTATION, None),
    }
)
"""The annotation of an instance's pod that a kind of plan sets or takes off."""

TAKES: Mapping[PlanKind, tuple[str, ...]] = MappingProxyType(
    {
        PlanKind.SCALE: ("replicas", "role"),
        **dict.fromkeys(MARKS, ("instance",)),
        PlanKind.ROLLBACK: ("revision", "role"),
        PlanKind.REVERT: ("revision",),
        PlanKind.SCHEDULE: ("fields",),
        PlanKind.ENGINES: ("fields",),
        PlanKind.DELETE: (),
        PlanKind.MOVE: ("session", "instance"),
        PlanKind.UNPIN: ("session",),
        PlanKind.WEIGHT: ("instance", "fields"),
        **dict.fromkeys(SECTIONS, ("fields",)),
    }
)
"""What a request of each kind may say."""


_SIMULATED = frozenset({PlanKind.SCALE, PlanKind.SLO})
"""Kinds of which advice knows a change by a simulation."""
_NEED_NOTHING = frozenset({PlanKind.ROLLBACK, PlanKind.DELETE})


def check_shape(request: PlanRequest) -> None:
    """Raises InvalidInput for a request that says what its kind does not take, or not what it needs."""
    takes = TAKES[request.kind]
    for name in ("replicas", "role", "instance", "fields", "revision", "session", "simulation"):
        value = getattr(request, name)
        if value is not None and name not in takes and (name != "simulation" or request.kind not in _SIMULATED):
            raise InvalidInput(name, value, f"remove it; a plan of kind {request.kind} takes {' and '.join(takes) or 'nothing'}")
    if request.kind not in _NEED_NOTHING and not getattr(request, takes[0]) and request.replicas != 0:
        section = SECTIONS.get(request.kind)
        remedy = (
            f"write at least one of {', '.join(section.fields)}"
            if section is not None
            else f"write it; a plan of kind {request.kind} needs it"
        )
        raise InvalidInput(takes[0], getattr(request, takes[0]), remedy)
    if request.kind is PlanKind.MOVE and not request.instance:
        raise InvalidInput("instance", request.instance, "write the instance that the session is to live at")


def annotation_patch(request: PlanRequest) -> dict[str, Any]:
    """The merge patch of a pod's annotations that sets the kind's mark on the instance, or takes it off."""
    if request.kind is PlanKind.WEIGHT:
        weight = wanted_weight(request)
        return {WEIGHT_ANNOTATION: None if weight is None else f"{weight!r}".removesuffix(".0")}
    return dict([MARKS[request.kind]])


def wanted_weight(request: PlanRequest) -> float | None:
    """The weight that a request of kind `weight` asks for; None = none of its own. Raises InvalidInput."""
    fields = request.fields or {}
    for name, value in fields.items():
        if name != "weight":
            raise InvalidInput(f"fields.{name}", value, "remove it; a plan of kind weight takes weight")
    weight = fields.get("weight")
    if weight is None and "weight" in fields:
        return None
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidInput("fields.weight", weight, f"write a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, or null for 1")
    return float(weight)


def spec_patch(request: PlanRequest, spec: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The merge patch of the pool's spec that makes the change. Raises InvalidInput for a change that this pool cannot
    have.
    """
    check_shape(request)
    if request.kind is PlanKind.SCHEDULE:
        return schedule_patch(request.fields or {}, spec, now)
    section = SECTIONS.get(request.kind)
    if section is None:
        return _replicas(request, spec)
    wanted = dict(request.fields or {})
    for name, value in wanted.items():
        if name not in section.fields:
            raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind {request.kind} changes {', '.join(section.fields)}")
    parameters = wanted.get("parameters")
    if isinstance(parameters, Mapping):
        wanted["parameters"] = replacing((spec.get(section.name) or {}).get("parameters") or {}, parameters)
    return {section.name: wanted}


def scaled_by_its_object(request: PlanRequest, spec: Mapping[str, Any]) -> Role | None:
    """The role that the request scales, if not the pool but the role's InferencePoolRole declares its number."""
    for role in spec.get("roles") or []:
        if request.kind is PlanKind.SCALE and role.get("name") == request.role and role.get("replicas") is None:
            return None if request.role is Role.BOTH else request.role
    return None


def checked(spec: Mapping[str, Any], patch: Mapping[str, Any], policies: PolicyCatalogue) -> PoolSpec:
    """The whole spec after the patch, with its defaults.

    Raises InvalidInput, with the field of the spec, also for what only the operator would refuse: the Kubernetes API
    knows no policies and no parameters.
    """
    after = parse_spec(merged(spec, patch))
    try:
        policies.check_parameters(after.routing.policy, after.routing.parameters)
    except UnknownName as error:
        raise InvalidInput(POLICY_FIELD, error.name, f"choose one of {', '.join(sorted(error.known))}") from error
    policies.check_roles(after.routing.policy, [role.name for role in after.roles])
    return after


def replicas_of(spec: PoolSpec, role: Role | None) -> int:
    """The number of instances wanted of a role; of the only one if None."""
    found = next((one for one in spec.roles if one.name is role), spec.roles[0])
    if found.name is Role.BOTH:
        return spec.replicas
    return found.least if found.replicas is None else found.replicas


def _replicas(request: PlanRequest, spec: Mapping[str, Any]) -> dict[str, Any]:
    if request.replicas is None or not 0 <= request.replicas <= MAX_REPLICAS:
        raise InvalidInput("replicas", request.replicas, f"write 0 to {MAX_REPLICAS}")
    roles = spec.get("roles") or [{"name": Role.BOTH.value}]
    names = [role.get("name") for role in roles]
    role = Role.BOTH if request.role is None and Role.BOTH in names else request.role
    if role not in names:
        raise InvalidInput("role", request.role, f"write {' or '.join(names)}")
    if role is Role.BOTH:
        return {"replicas": request.replicas}
    if roles[names.index(role)].get("replicas") == request.replicas:
        raise InvalidInput(f"spec.roles[{names.index(role)}].replicas", request.replicas, "it is so already; write another value")
    return {"roles": [{**one, "replicas": request.replicas} if one.get("name") == role else one for one in roles]}
