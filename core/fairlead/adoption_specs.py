"""Pools that adopt running pods, and the rules of their specs. The roles of a pool that adopts pods select pods of
existing workloads. The roles may also scale these workloads.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from fairlead.rollout_specs import RegressionSpec, RolloutSpec
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead.schemas.shapes import Rule, document_name, shape_of, text

ADOPTED_BY_ANNOTATION = "fairlead.dev/adopted-by"
"""The annotation of an adopted pod: the uid of the pool that adopted it. At most one pool adopts a pod at a time."""

MOST_BY_DEFAULT = 64
"""The default of `roles[].maxReplicas`."""


class WorkloadKind(StrEnum):
    """A kind of workload that has a scale subresource and makes pods."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    LEADER_WORKER_SET = "LeaderWorkerSet"


def adopts(spec: Any) -> bool:
    """Return whether the pool adopts running pods instead of creating its own. It adopts pods if its roles have
    selectors. Either all roles of a pool have a selector or none of them has.
    """
    return any(role.selector is not None for role in spec.roles)


def is_scaled(spec: Any) -> bool:
    """Return whether Fairlead sets the number of instances. It does so for pods that the pool creates, and for
    workloads that the spec names as scale targets.
    """
    return not adopts(spec) or all(role.scale_target_ref is not None for role in spec.roles)


def _as_by_default(section: type[Any], path: str) -> str:
    """Return a CEL expression that is true while each field of the section at `path` has its default value. A field
    without a default value must be absent.
    """
    told = []
    for item in fields(section):
        shape, here = shape_of(item), f"{path}.{document_name(item)}"
        if shape.default is None:
            told.append(f"!has({here})")
        elif shape.of is not None:
            told.append(_as_by_default(shape.of, here))
        elif shape.kind == "duration":
            told.append(f"duration({here}) == duration('{shape.default}')")
        elif shape.kind == "boolean":
            told.append(here if shape.default else f"!{here}")
        else:
            told.append(f"{here} == {float(shape.default) if shape.kind == 'number' else shape.default}")
    return " && ".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTargetSpec:
    """The workload that owns the pods which a role selects. Fairlead scales this workload. The spec names the workload
    in the same way as an HPA names its target.
    """

    kind: WorkloadKind = text(
        "Kind of the workload.", WorkloadKind.DEPLOYMENT.value, enum=tuple(kind.value for kind in WorkloadKind), convert=WorkloadKind
    )
    name: str = text("Name of the workload, in the pool's namespace.", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)


OF_ROLES = (
    Rule(
        cel="!has(self.selector) || !has(self.template)",
        holds=lambda role: role.selector is None or role.template is None,
        field="template",
        message="roles[].template cannot be combined with roles[].selector: the selected pods have their workload's template; remove one",
    ),
    Rule(
        cel="!has(self.scaleTargetRef) || has(self.selector)",
        holds=lambda role: role.scale_target_ref is None or role.selector is not None,
        field="scaleTargetRef",
        message="roles[].scaleTargetRef needs roles[].selector: it names the workload of the selected pods; write both or neither",
    ),
    Rule(
        cel="!has(self.selector) || has(self.scaleTargetRef) || !has(self.replicas)",
        holds=lambda role: role.selector is None or role.scale_target_ref is not None or role.replicas is None,
        field="replicas",
        message="roles[].replicas beside roles[].selector needs roles[].scaleTargetRef; name the workload there, or remove roles[].replicas",
    ),
    Rule(
        cel=f"!has(self.selector) || has(self.scaleTargetRef) || (self.minReplicas == 0 && self.maxReplicas == {MOST_BY_DEFAULT})",
        holds=lambda role: (
            role.selector is None or role.scale_target_ref is not None or (role.min_replicas, role.max_replicas) == (0, MOST_BY_DEFAULT)
        ),
        field="minReplicas",
        message=(
            "minReplicas and maxReplicas beside roles[].selector need roles[].scaleTargetRef; name the workload "
            "there, or remove minReplicas and maxReplicas"
        ),
    ),
    Rule(
        cel="!has(self.scaleTargetRef) || self.minReplicas >= 1",
        holds=lambda role: role.scale_target_ref is None or role.min_replicas >= 1,
        field="minReplicas",
        message="minReplicas must be at least 1 beside roles[].scaleTargetRef, because the default 0 could remove all pods of the workload; write it",
    ),
    Rule(
        cel="!has(self.scaleTargetRef) || self.name == 'both' || has(self.replicas)",
        holds=lambda role: role.scale_target_ref is None or role.name == "both" or role.replicas is not None,
        field="replicas",
        message="roles[].replicas of prefill and decode must be written beside roles[].scaleTargetRef",
    ),
)

_OWN = "self.roles.all(role, !has(role.selector))"
"""CEL expression that is true if the pool does not adopt pods."""
_SCALED = f"{_OWN} || self.roles.all(role, has(role.scaleTargetRef))"
"""CEL expression that is true if Fairlead sets the pool's number of instances."""

OF_POOLS = (
    Rule(
        cel=f"{_OWN} || self.roles.all(role, has(role.selector))",
        holds=lambda spec: len({role.selector is None for role in spec.roles}) == 1,
        field="roles",
        message="roles[].selector must be set in every role or in none",
    ),
    Rule(
        cel=f"{_SCALED} || self.roles.all(role, !has(role.scaleTargetRef))",
        holds=lambda spec: len({role.scale_target_ref is None for role in spec.roles}) == 1,
        field="roles",
        message="roles[].scaleTargetRef must be set in every role or in none",
    ),
    Rule(
        cel=f"{_SCALED} || self.replicas == 1",
        holds=lambda spec: is_scaled(spec) or spec.replicas == 1,
        field="replicas",
        message="replicas beside roles[].selector needs roles[].scaleTargetRef; name the workload there, or remove replicas",
    ),
    Rule(
        cel=f"{_OWN} || !has(self.engine.simulated)",
        holds=lambda spec: not adopts(spec) or spec.engine.simulated is None,
        field="engine",
        message=(
            "engine.simulated cannot stand beside roles[].selector: simulated engines run only in pods that the pool creates; remove it"
        ),
    ),
    Rule(
        cel=f"{_OWN} || self.ratio.mode == 'Fixed'",
        holds=lambda spec: not adopts(spec) or spec.ratio.mode is RatioMode.FIXED,
        field="ratio",
        message="ratio.mode must be Fixed beside roles[].selector, because no instance can go from one workload to another",
    ),
    Rule(
        cel=f"{_SCALED} || self.scaling.mode == 'Fixed'",
        holds=lambda spec: is_scaled(spec) or spec.scaling.mode is ScalingMode.FIXED,
        field="scaling",
        message="scaling.mode must be Fixed beside roles[].selector without roles[].scaleTargetRef; write Fixed, or name the workload there",
    ),
    Rule(
        cel=f"{_OWN} || !has(self.scaling.schedules) || self.scaling.schedules.all(schedule, !has(schedule.ratio))",
        holds=lambda spec: not adopts(spec) or all(one.ratio is None for one in spec.scaling.schedules),
        field="scaling",
        message="scaling.schedules[].ratio cannot stand beside roles[].selector, because no instance can go from one workload to another",
    ),
    Rule(
        cel=f"{_SCALED} || !has(self.scaling.schedules) || self.scaling.schedules.all(schedule, "
        "!has(schedule.roles) || schedule.roles.size() == 0)",
        holds=lambda spec: is_scaled(spec) or not any(one.roles for one in spec.scaling.schedules),
        field="scaling",
        message="scaling.schedules[].roles beside roles[].selector needs roles[].scaleTargetRef",
    ),
    Rule(
        cel=f"{_OWN} || ({_as_by_default(RolloutSpec, 'self.rollout')})",
        holds=lambda spec: not adopts(spec) or spec.rollout == RolloutSpec(regression=RegressionSpec()),
        field="rollout",
        message="rollout cannot stand beside roles[].selector: the workload replaces its pods by its own rules; remove it",
    ),
)
