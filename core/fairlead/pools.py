"""The typed spec of an InferencePool.

This is the only definition: the CRD is generated from these classes, and `parse_spec` reads documents by them.
Attribute names are the document's names in snake_case; durations are in seconds and their names end in `_seconds`.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from fairlead import adoption_specs
from fairlead.gateway_specs import ONE_INSTANCE_A_REQUEST, GatewaySpec
from fairlead.instances import Role
from fairlead.rollout_specs import RolloutSpec
from fairlead.scaling.specs import RATIO_NEEDS_ROLES, ZERO_TOGETHER, RatioSpec, ScalingSpec
from fairlead.schedules.specs import MAX_SCHEDULES, ScheduledRole, ScheduleSpec, overridden
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import Rule, duration, listing, nested, number, text, texts, verbatim, whole
from fairlead.schemas.writing import written
from fairlead.selectors import SelectorSpec
from fairlead.tables import (
    AFTER_PREFILL,
    KV_USAGE_METRICS,
    MAX_PRIORITY_CLASSES,
    EarlyRejectionFacts,
    EngineFacts,
    EngineSpecFacts,
    HoldingFacts,
    PriorityClass,
    RoutingFacts,
    SessionFacts,
    SloFacts,
)

Facts = TypeVar("Facts")

GROUP = "fairlead.dev"
VERSION = "v1alpha1"
PLURAL = "inferencepools"
KIND = "InferencePool"

MAX_NAME = 52
"""Longest pool name: pod names and label values (at most 63 characters) are built from it."""

MAX_REPLICAS = 4096
MAX_ADAPTERS = 256
NEEDS_PREFILL_ROLE = (
    "earlyRejection.mode AfterPrefill needs the roles prefill and decode; declare them in roles, or write Load or Predicted"
)


def adapter_names() -> Any:
    """The field `adapters` of a pool and of a file that serves one."""
    return texts(
        "LoRA adapters that every engine serves beside the model (--lora-modules of vLLM), as clients name them in requests. Only for engine.type vllm.",
        pattern=r"^\S+$",
        max_length=256,
        max_items=MAX_ADAPTERS,
        convert=str,
    )


_OBJECT: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""Copied where it is used, as YAML would write references to one object."""

POD_TEMPLATE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["spec"],
    "properties": {
        "metadata": {**_OBJECT, "properties": {"labels": {**_OBJECT}, "annotations": {**_OBJECT}}},
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "required": ["name", "image"],
                        "properties": {
                            "name": {"type": "string", "minLength": 1},
                            "image": {"type": "string", "minLength": 1},
                            "ports": {"type": "array", "items": {**_OBJECT}},
                            "env": {"type": "array", "items": {**_OBJECT}},
                            "readinessProbe": {**_OBJECT},
                        },
                    },
                }
            },
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """Number, bounds and pod template of one role's instances."""

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda role: role.min_replicas <= role.max_replicas,
            field="minReplicas",
            message="minReplicas must not be greater than maxReplicas",
        ),
        Rule(
            cel="self.name != 'both' || !has(self.replicas)",
            holds=lambda role: role.name is not Role.BOTH or role.replicas is None,
            field="replicas",
            message="roles[].replicas is only for prefill and decode; write spec.replicas for the role both",
        ),
        Rule(
            cel="!has(self.replicas) || self.replicas >= self.minReplicas",
            holds=lambda role: role.replicas is None or role.replicas >= role.min_replicas,
            field="replicas",
            message="roles[].replicas must not be less than its minReplicas; raise replicas or lower minReplicas",
        ),
        Rule(
            cel="!has(self.replicas) || self.replicas <= self.maxReplicas",
            holds=lambda role: role.replicas is None or role.replicas <= role.max_replicas,
            field="replicas",
            message="roles[].replicas must not be greater than its maxReplicas; lower replicas or raise maxReplicas",
        ),
        Rule(
            cel="self.name == 'both' || self.maxReplicas >= 1",
            holds=lambda role: role.name is Role.BOTH or role.max_replicas >= 1,
            field="maxReplicas",
            message="maxReplicas of prefill and decode must be at least 1, because neither can serve without the other",
        ),
        *adoption_specs.OF_ROLES,
    )

    name: Role = text(
        "Name of the role; an instance of role both prefills and decodes.", enum=tuple(role.value for role in Role), convert=Role
    )
    replicas: int | None = whole("Number of instances wanted; only for prefill and decode.", None, minimum=1, maximum=MAX_REPLICAS)
    min_replicas: int = whole(
        "Never fewer instances than this while enough are healthy. Prefill and decode have at least one, even if this is 0, unless the whole pool "
        "is at zero. In scaling.mode SLO, 0 lets the pool go to zero after scaling.zero.idleAfter.",
        0,
        maximum=MAX_REPLICAS,
    )
    max_replicas: int = whole("Never more instances than this.", adoption_specs.MOST_BY_DEFAULT, maximum=MAX_REPLICAS)
    template: dict[str, Any] | None = verbatim(
        "Pod template of the instances, with the container `engine` (or the first) serving the OpenAI API. Optional for simulated engines, and for a role "
        "without instances (maxReplicas 0).",
        POD_TEMPLATE_SCHEMA,
    )
    selector: SelectorSpec | None = nested(
        SelectorSpec,
        "Labels of running pods that are the instances, instead of pods made from a template: those of a Deployment, StatefulSet or LeaderWorkerSet.",
        optional=True,
    )
    scale_target_ref: adoption_specs.ScaleTargetSpec | None = nested(
        adoption_specs.ScaleTargetSpec,
        "The workload of the selected pods, to be scaled to the number wanted of the role; without it the pods are only routed to.",
        optional=True,
    )

    @property
    def least(self) -> int:
        """The fewest instances that may be wanted: `minReplicas`, and at least one of prefill and decode."""
        return self.min_replicas if self.name is Role.BOTH else max(1, self.min_replicas)

    @property
    def most(self) -> int:
        """The most instances that may be wanted; nothing bounds how many pods there are that a role selects."""
        return self.max_replicas if self.selector is None or self.scale_target_ref is not None else MAX_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSpec:
    """How the engine's metrics are read."""

    path: str = text("Path of the Prometheus metrics on the engine's port.", "/metrics", pattern="^/", max_length=256)
    kv_usage: str | None = text(
        "Name of the gauge with the used share (0 to 1) of the KV cache; by default the one of engine.type.",
        None,
        pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$",
        max_length=256,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSpec:
    """How a simulated engine behaves."""

    time_scale: float = number("How many times faster than real the engine computes.", 1.0, minimum=0.001, maximum=10000)
    block_size: int = whole("Tokens per block of the engine's prefix cache.", 16, minimum=1, maximum=4096)
    decode_step_seconds: float = duration("Time of one decode step.", "20ms", minimum=0.0, maximum=60.0)
    max_running: int = whole("Requests computed at once.", 256, minimum=1, maximum=100000)
    max_waiting: int = whole("Requests that may wait inside the engine before it answers 503.", 1024, minimum=0, maximum=1000000)
    startup_seconds: float = duration("Time from start to ready, as if weights were loaded.", "1s", minimum=0.0, maximum=3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec(EngineSpecFacts):
    """The engine that runs in an instance, and the figures about it that routing needs."""

    RULES: ClassVar = (
        Rule(
            cel="self.type == 'simulated' || !has(self.simulated)",
            holds=lambda engine: engine.type == "simulated" or engine.simulated is None,
            field="simulated",
            message="engine.simulated is only for engine.type simulated; remove it",
        ),
    )

    metrics: MetricsSpec = nested(MetricsSpec, "Where the engine's own metrics are read.")
    simulated: SimulatedSpec | None = nested(SimulatedSpec, "How the simulated engine behaves; only for type simulated.", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingSpec:
    """How a new instance gets its part of the keys beside instances with full caches."""

    duration_seconds: float = duration(
        "Time from the first keys to the full weight, in four steps; 0s gives all at once.", "20s", minimum=0.0, maximum=3600.0
    )
    first_weight: float = number("Share of the full weight that it begins with.", 0.25, minimum=0.01, maximum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec(RoutingFacts):
    """How requests find their instance."""

    block_tokens: int = whole("Tokens per routing block; prompts are compared in whole blocks.", 512, minimum=1, maximum=65536)
    anchors_per_instance: int = whole("Points of one instance on each hash ring.", 160, minimum=1, maximum=4096)
    warming: WarmingSpec = nested(WarmingSpec, "How a new instance gets its part of the keys beside instances with full caches.")
    session: SessionFacts = nested(SessionFacts, "How requests of one session are recognised, and how long a binding lives.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """How an instance is emptied before its pod is deleted."""

    timeout_seconds: float = duration("Longest time to wait for requests in flight.", "120s", minimum=0.0, maximum=86400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScalingSpec(ScalingSpec):
    """What changes the number of instances without a person."""

    schedules: tuple[ScheduleSpec, ...] = listing(
        ScheduleSpec,
        "Windows in time that bound the replicas of roles and override slo, earlyRejection and ratio; where several are open, the last to open decides.",
        (),
        key="name",
        max_items=MAX_SCHEDULES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The part of a spec that goes into a RoutingTable.

    `anchors_per_instance` goes into the table's instance entries.
    """

    model: str
    engine: EngineFacts
    routing: RoutingFacts
    session: SessionFacts
    slo: SloFacts
    early_rejection: EarlyRejectionFacts
    anchors_per_instance: int
    adapters: tuple[str, ...] = ()
    holding: HoldingFacts = HoldingFacts()
    priority_classes: tuple[PriorityClass, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A whole, valid spec with all defaults applied."""

    RULES: ClassVar = (
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
            cel="self.engine.type == 'simulated' || "
            "self.roles.all(role, has(role.template) || has(role.selector) || role.maxReplicas == 0)",
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
        *adoption_specs.OF_POOLS,
        ONE_INSTANCE_A_REQUEST,
    )

    model: str = text(
        "Model served, as clients name it in requests; cannot be changed later.",
        pattern=r"^\S+$",
        max_length=256,
        rules=(Rule(cel="self == oldSelf", message="model cannot be changed; make a new pool instead"),),
    )
    adapters: tuple[str, ...] = adapter_names()
    replicas: int = whole("Number of instances wanted of the role both.", 1, maximum=MAX_REPLICAS)
    roles: tuple[RoleSpec, ...] = listing(
        RoleSpec,
        "Roles of the pool's instances: both, or prefill and decode; cannot be changed later.",
        (RoleSpec(name=Role.BOTH),),
        key="name",
        max_items=2,
    )
    engine: EngineSpec = nested(EngineSpec, "What runs in an instance, and the figures routing needs of it.")
    routing: RoutingSpec = nested(RoutingSpec, "How requests find their instance.")
    slo: SloFacts = nested(SloFacts, "Latency targets of the pool.")
    early_rejection: EarlyRejectionFacts = nested(EarlyRejectionFacts, "Refusing at arrival what cannot be served in time.")
    priority_classes: tuple[PriorityClass, ...] = listing(
        PriorityClass,
        "Classes of requests: which are sent first and refused last. Without any, all requests are alike.",
        (),
        key="name",
        max_items=MAX_PRIORITY_CLASSES,
    )
    drain: DrainSpec = nested(DrainSpec, "How an instance is emptied before its pod is deleted.")
    scaling: PoolScalingSpec = nested(PoolScalingSpec, "How the number of instances of each role is found.")
    ratio: RatioSpec = nested(RatioSpec, "How many of the instances prefill and how many decode.")
    rollout: RolloutSpec = nested(RolloutSpec, "How instances are replaced after a change of their template or engine.")
    gateway: GatewaySpec | None = nested(
        GatewaySpec,
        "Lets Envoy-based gateways send to this pool, with the routers as their endpoint picker: by an InferencePool of inference.networking.k8s.io, which "
        "the operator makes.",
        optional=True,
    )

    @property
    def adopts(self) -> bool:
        """Whether the instances are running pods that the roles select, and none is made or ended here."""
        return adoption_specs.adopts(self)

    @property
    def simulated(self) -> SimulatedSpec | None:
        """The simulated engine's settings with defaults; None for real engines."""
        return (self.engine.simulated or SimulatedSpec()) if self.engine.type == "simulated" else None

    def ratios(self) -> Iterator[tuple[str, RatioSpec]]:
        """How the ratio is kept without an open window, and in those of each schedule, with the sections' paths."""
        yield "ratio", self.ratio
        for place, schedule in enumerate(self.scaling.schedules):
            if schedule.ratio is not None:
                yield f"scaling.schedules[{place}].ratio", RatioSpec(**overridden(self.ratio, schedule.ratio))

    def facts(self) -> TableFacts:
        """The facts that routers must know; the prefill speed is multiplied by a simulated engine's time scale."""
        time_scale = self.simulated.time_scale if self.simulated else 1.0
        return TableFacts(
            model=self.model,
            engine=_part(
                EngineFacts,
                self.engine,
                prefill_tokens_per_second=self.engine.prefill_tokens_per_second * time_scale,
                block_tokens=self.routing.block_tokens,
                block_bytes=self.routing.block_tokens * self.engine.bytes_per_token,
                metrics_path=self.engine.metrics.path,
                kv_usage_metric=self.engine.metrics.kv_usage or KV_USAGE_METRICS[self.engine.type],
            ),
            routing=_part(RoutingFacts, self.routing),
            session=self.routing.session,
            slo=self.slo,
            early_rejection=self.early_rejection,
            anchors_per_instance=self.routing.anchors_per_instance,
            adapters=self.adapters,
            holding=_part(HoldingFacts, self.scaling.zero),
            priority_classes=self.priority_classes,
        )


def _scheduled_roles(spec: PoolSpec) -> Iterator[tuple[str, ScheduledRole]]:
    """The bounds of roles in all schedules, with their paths below the spec."""
    for place, schedule in enumerate(spec.scaling.schedules):
        for row, bounds in enumerate(schedule.roles):
            yield f"scaling.schedules[{place}].roles[{row}]", bounds


def _scheduled_ratios(spec: PoolSpec) -> Iterator[tuple[str, object]]:
    """Path and value of each schedule's section ratio."""
    return (
        (f"scaling.schedules[{place}].ratio", written(schedule.ratio))
        for place, schedule in enumerate(spec.scaling.schedules)
        if schedule.ratio is not None
    )


def _scheduled_after_prefill(spec: PoolSpec) -> Iterator[tuple[str, object]]:
    """Path and value of each schedule's section earlyRejection that refuses after the prefill."""
    return (
        (f"scaling.schedules[{place}].earlyRejection", written(schedule.early_rejection))
        for place, schedule in enumerate(spec.scaling.schedules)
        if schedule.early_rejection is not None and schedule.early_rejection.mode == AFTER_PREFILL
    )


def _unknown_roles(spec: PoolSpec) -> Iterator[tuple[str, object]]:
    """Path and name of each role in a schedule that the pool does not have."""
    known = {role.name for role in spec.roles}
    return ((f"{path}.name", bounds.name.value) for path, bounds in _scheduled_roles(spec) if bounds.name not in known)


def _bounds_outside(spec: PoolSpec) -> Iterator[tuple[str, object]]:
    """Path and value of each bound in a schedule that its role's own bounds do not allow."""
    of_role = {role.name: range(role.min_replicas, role.max_replicas + 1) for role in spec.roles}
    for path, bounds in _scheduled_roles(spec):
        given = (("replicas", bounds.replicas), ("minReplicas", bounds.min_replicas), ("maxReplicas", bounds.max_replicas))
        for name, replicas in given:
            if replicas is not None and bounds.name in of_role and replicas not in of_role[bounds.name]:
                yield f"{path}.{name}", replicas


def _part(of: type[Facts], section: object, **others: Any) -> Facts:
    """Build `of` from the fields of the same name in a section of the spec, and from `others`."""
    told = {item.name: getattr(section, item.name) for item in fields(of) if hasattr(section, item.name)}  # type: ignore[arg-type]  # facts are dataclasses
    return of(**{**told, **others})


def parse_spec(document: Mapping[str, Any]) -> PoolSpec:
    """Read the `spec` of an InferencePool (the part under `spec:`), with all defaults.

    Raises InvalidInput naming `spec.…`, the value and the remedy. It makes every check that the CRD
    makes except transition rules, so a caller needs no other check. Policies are checked by the caller
    that has the catalogue of them.
    """
    return read(PoolSpec, document, "spec")
