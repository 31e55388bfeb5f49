"""The rules between the sections of an InferencePool's spec; rules within a section are in that section's module."""

from collections.abc import Iterator
from typing import Any

from fairlead import adoption_specs
from fairlead.gateway_specs import ONLY_ROUTERS_DIVIDE
from fairlead.instances import Role
from fairlead.scaling.specs import RATIO_NEEDS_ROLES, ZERO_TOGETHER
from fairlead.schedules.specs import ScheduledRole
from fairlead.schemas.shapes import Rule
from fairlead.schemas.writing import written
from fairlead.tables import AFTER_PREFILL, DEFAULT_CLASS

NEEDS_PREFILL_ROLE = (
    "earlyRejection.mode AfterPrefill needs the roles prefill and decode; declare them in roles, or write Load or Predicted"
)


def _scheduled_roles(spec: Any) -> Iterator[tuple[str, ScheduledRole]]:
    """Yield the roles in all schedules, each with its path below the spec."""
    for place, schedule in enumerate(spec.scaling.schedules):
        for row, bounds in enumerate(schedule.roles):
            yield f"scaling.schedules[{place}].roles[{row}]", bounds


def _scheduled_ratios(spec: Any) -> Iterator[tuple[str, object]]:
    """Yield each schedule's section `ratio`, with its path."""
    return (
        (f"scaling.schedules[{place}].ratio", written(schedule.ratio))
        for place, schedule in enumerate(spec.scaling.schedules)
        if schedule.ratio is not None
    )


def _scheduled_after_prefill(spec: Any) -> Iterator[tuple[str, object]]:
    """Yield `earlyRejection` of each schedule whose mode refuses requests after their prefill, with its path."""
    return (
        (f"scaling.schedules[{place}].earlyRejection", written(schedule.early_rejection))
        for place, schedule in enumerate(spec.scaling.schedules)
        if schedule.early_rejection is not None and schedule.early_rejection.mode == AFTER_PREFILL
    )


def _unknown_roles(spec: Any) -> Iterator[tuple[str, object]]:
    """Yield each role in a schedule that the pool does not have, with its path."""
    known = {role.name for role in spec.roles}
    return ((f"{path}.name", bounds.name.value) for path, bounds in _scheduled_roles(spec) if bounds.name not in known)


def _bounds_outside(spec: Any) -> Iterator[tuple[str, object]]:
    """Yield each bound that a schedule sets outside the role's own bounds, with its path."""
    of_role = {role.name: range(role.min_replicas, role.max_replicas + 1) for role in spec.roles}
    for path, bounds in _scheduled_roles(spec):
        given = (("replicas", bounds.replicas), ("minReplicas", bounds.min_replicas), ("maxReplicas", bounds.max_replicas))
        for name, replicas in given:
            if replicas is not None and bounds.name in of_role and replicas not in of_role[bounds.name]:
                yield f"{path}.{name}", replicas


def unknown_task_classes(spec: Any) -> Iterator[tuple[str, object]]:
    """Yield each entry of slo.task for a class that the spec does not declare, with its path."""
    known = {DEFAULT_CLASS, *(one.name for one in spec.priority_classes)}
    return ((f"slo.task[{place}].name", target.name) for place, target in enumerate(spec.slo.task) if target.name not in known)


UNKNOWN_TASK_CLASS = "slo.task[].name must be one of priorityClasses, or default"

BETWEEN_SECTIONS = (
    Rule(
        cel="self.roles.all(role, role.name == 'both') || (self.roles.size() == 2 && self.roles.all(role, role.name != 'both'))",
        holds=lambda spec: {role.name for role in spec.roles} in ({Role.BOTH}, {Role.PREFILL, Role.DECODE}),
        field="roles",
        message="roles must be exactly both, or exactly prefill and decode",
    ),
    Rule(
        cel="self.roles.all(role, oldSelf.roles.exists(old, old.name == role.name))",
        field="roles",
        message="roles cannot change between both and prefill with decode; make a new pool instead",
    ),
    Rule(
        cel="!has(self.rollout.canary) || self.roles.all(role, role.name == 'both' && !has(role.selector))",
        holds=lambda spec: spec.rollout.canary is None or all(role.name is Role.BOTH and role.selector is None for role in spec.roles),
        field="rollout.canary",
        message="rollout.canary is only for the role both without a selector; remove it, and replace instances one after the other",
    ),
    Rule(
        cel="self.roles.all(role, role.name == 'both') || self.replicas == 1",
        holds=lambda spec: spec.replicas == 1 or all(role.name is Role.BOTH for role in spec.roles),
        field="replicas",
        message="replicas is only for the role both; leave it out, and write roles[].replicas for prefill and decode",
    ),
    Rule(
        cel="self.roles.all(role, role.name != 'both' || self.replicas >= role.minReplicas)",
        holds=lambda spec: all(role.name is not Role.BOTH or spec.replicas >= role.min_replicas for role in spec.roles),
        field="replicas",
        message="replicas must not be less than roles[].minReplicas; raise replicas or lower minReplicas",
    ),
    Rule(
        cel="self.roles.all(role, role.name != 'both' || self.replicas <= role.maxReplicas)",
        holds=lambda spec: all(role.name is not Role.BOTH or spec.replicas <= role.max_replicas for role in spec.roles),
        field="replicas",
        message="replicas must not be greater than roles[].maxReplicas; lower replicas or raise maxReplicas",
    ),
    Rule(
        cel="self.engine.type == 'simulated' || self.roles.all(role, has(role.template) || has(role.selector) || role.maxReplicas == 0)",
        holds=lambda spec: (
            spec.engine.type == "simulated"
            or all(role.template is not None or role.selector is not None or role.max_replicas == 0 for role in spec.roles)
        ),
        field="roles",
        message="roles[].template or selector is required unless engine.type is simulated or the role's maxReplicas is 0",
    ),
    Rule(
        cel="self.engine.type != 'sglang' || self.roles.all(role, role.name == 'both')",
        holds=lambda spec: spec.engine.type != "sglang" or all(role.name is Role.BOTH for role in spec.roles),
        field="roles",
        message="engine.type sglang takes only the role both, because its handover from prefill to decode is not supported; "
        "leave roles prefill and decode out, or use engine.type vllm",
    ),
    Rule(
        cel="self.engine.type != 'sglang' || self.roles.all(role, !has(role.warm))",
        holds=lambda spec: spec.engine.type != "sglang" or all(role.warm is None for role in spec.roles),
        field="roles",
        message="roles[].warm is not for engine.type sglang, which has no endpoints for sleeping; remove it",
    ),
    Rule(
        cel="!self.roles.exists(role, has(role.warm) && has(role.warm.turns)) || self.rollout.maxSurge == 0",
        holds=lambda spec: spec.rollout.max_surge == 0 or all(role.turns is None for role in spec.roles),
        field="rollout.maxSurge",
        message="rollout.maxSurge must be 0 with roles[].warm.turns, as a successor needs the device of its predecessor; "
        "write 0, and maxUnavailable 1",
    ),
    Rule(
        cel="self.earlyRejection.mode != 'AfterPrefill' || self.roles.exists(role, role.name == 'prefill')",
        holds=lambda spec: spec.early_rejection.mode != AFTER_PREFILL or len(spec.roles) == 2,
        field="earlyRejection",
        message=NEEDS_PREFILL_ROLE,
    ),
    Rule(
        cel="!has(self.scaling.schedules) || self.roles.exists(role, role.name == 'prefill') || "
        "self.scaling.schedules.all(schedule, !has(schedule.earlyRejection) || !has(schedule.earlyRejection.mode) || "
        "schedule.earlyRejection.mode != 'AfterPrefill')",
        holds=lambda spec: len(spec.roles) == 2 or not list(_scheduled_after_prefill(spec)),
        fault=lambda spec: next(_scheduled_after_prefill(spec)),
        message=f"scaling.schedules[].{NEEDS_PREFILL_ROLE}",
    ),
    Rule(
        cel="has(self.cost) || self.roles.all(role, !has(role.costPerInstanceHour))",
        holds=lambda spec: spec.cost is not None or all(role.cost_per_instance_hour is None for role in spec.roles),
        field="cost",
        message="roles[].costPerInstanceHour needs cost with its currency; write cost.currency and cost.perInstanceHour",
    ),
    ZERO_TOGETHER,
    RATIO_NEEDS_ROLES,
    Rule(
        cel="!has(self.scaling.schedules) || self.scaling.schedules.all(schedule, !has(schedule.roles) || "
        "schedule.roles.all(bounds, self.roles.exists(role, role.name == bounds.name)))",
        holds=lambda spec: not list(_unknown_roles(spec)),
        fault=lambda spec: next(_unknown_roles(spec)),
        message="scaling.schedules[].roles[].name must be one of the pool's roles",
    ),
    Rule(
        cel="!has(self.scaling.schedules) || self.scaling.schedules.all(schedule, !has(schedule.roles) || "
        "schedule.roles.all(bounds, self.roles.all(role, role.name != bounds.name || ("
        + " && ".join(
            f"(!has(bounds.{name}) || (bounds.{name} >= role.minReplicas && bounds.{name} <= role.maxReplicas))"
            for name in ("replicas", "minReplicas", "maxReplicas")
        )
        + "))))",
        holds=lambda spec: not list(_bounds_outside(spec)),
        fault=lambda spec: next(_bounds_outside(spec)),
        message="the bounds in scaling.schedules[].roles must lie within the role's own minReplicas and maxReplicas in roles[]",
    ),
    Rule(
        cel="!has(self.scaling.schedules) || self.roles.exists(role, role.name == 'prefill') || "
        "self.scaling.schedules.all(schedule, !has(schedule.ratio))",
        holds=lambda spec: len(spec.roles) == 2 or not list(_scheduled_ratios(spec)),
        fault=lambda spec: next(_scheduled_ratios(spec)),
        message="scaling.schedules[].ratio needs the roles prefill and decode; remove it, or declare them in roles",
    ),
    Rule(
        cel="!has(self.adapters) || self.adapters.size() == 0 || self.engine.type == 'vllm'",
        holds=lambda spec: not spec.adapters or spec.engine.type == "vllm",
        field="adapters",
        message="adapters are only for engine.type vllm; remove adapters",
    ),
    Rule(
        cel="!has(self.slo.task) || has(self.gateway) || self.slo.task.all(task, task.name == 'default' || "
        "(has(self.priorityClasses) && self.priorityClasses.exists(one, one.name == task.name)))",
        # a pool with a gateway has further classes, from InferenceObjectives
        holds=lambda spec: spec.gateway is not None or not list(unknown_task_classes(spec)),
        fault=lambda spec: next(unknown_task_classes(spec)),
        message=UNKNOWN_TASK_CLASS,
    ),
    *adoption_specs.OF_POOLS,
    ONLY_ROUTERS_DIVIDE,
)
