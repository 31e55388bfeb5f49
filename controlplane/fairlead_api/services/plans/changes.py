"""The change that a request asks for, as a merge patch of the object's spec, checked as a whole pool. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fairlead.errors import InvalidInput, UnknownName
from fairlead.pools import MAX_REPLICAS, PoolSpec, parse_spec
from fairlead.routing.contracts.catalogues import POLICY_FIELD, PolicyCatalogue
from fairlead_api.services.plans.merge_patches import merged, replacing
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
    }
)


def spec_patch(request: PlanRequest, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch of the pool's spec that makes the change. Raises InvalidInput for a request of another shape."""
    section = SECTIONS.get(request.kind)
    if section is None:
        return {"replicas": _replicas(request)}
    if request.replicas is not None:
        raise InvalidInput("replicas", request.replicas, f"remove it; a plan of kind {request.kind} takes fields")
    if not request.fields:
        raise InvalidInput("fields", request.fields, f"write at least one of {', '.join(section.fields)}")
    for name, value in request.fields.items():
        if name not in section.fields:
            raise InvalidInput(f"fields.{name}", value, f"remove it; a plan of kind {request.kind} changes {', '.join(section.fields)}")
    wanted = dict(request.fields)
    parameters = wanted.get("parameters")
    if isinstance(parameters, Mapping):
        wanted["parameters"] = replacing((spec.get(section.name) or {}).get("parameters") or {}, parameters)
    return {section.name: wanted}


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


def _replicas(request: PlanRequest) -> int:
    if request.fields is not None:
        raise InvalidInput("fields", request.fields, "remove it; a plan of kind scale takes replicas")
    if request.replicas is None or not 0 <= request.replicas <= MAX_REPLICAS:
        raise InvalidInput("replicas", request.replicas, f"write 0 to {MAX_REPLICAS}")
    return request.replicas
