"""The typed spec of an InferencePool.

This is the only definition: the CRD is generated from these classes, and `parse_spec` reads documents by them. Long
sections have a module each: `role_specs`, `engine_specs`, `routing_specs` and so on. Attribute names are the document's
names in snake_case; durations are in seconds and their names end in `_seconds`.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from fairlead import adoption_specs
from fairlead.costs.money import CURRENCY_PATTERN, PRICE_PATTERN, micros_of
from fairlead.engine_specs import EngineSpec, SimulatedSpec, adapter_names
from fairlead.forecasts.calendars import ForecastSpec
from fairlead.gateway_specs import GatewaySpec
from fairlead.instances import MAX_REPLICAS, Role
from fairlead.pool_rules import BETWEEN_SECTIONS
from fairlead.role_specs import RoleSpec
from fairlead.rollout_specs import RolloutSpec
from fairlead.routing_specs import RoutingSpec
from fairlead.scaling.specs import RatioSpec, ScalingSpec
from fairlead.schedules.specs import MAX_SCHEDULES, ScheduleSpec, overridden
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import Rule, duration, listing, nested, text, whole
from fairlead.tables import (
    KV_USAGE_METRICS,
    MAX_PRIORITY_CLASSES,
    EarlyRejectionFacts,
    EngineFacts,
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
"""Maximum length of a pool's name: pod names and label values (at most 63 characters) are built from it."""

MAX_NAME_OF_GROUPS = 43
"""Maximum length of the name of a pool whose instances span several nodes. The pods have the revision of a StatefulSet
as a label, and the revision is 20 characters longer than the pool's name.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """How an instance is emptied before its pod is deleted."""

    timeout_seconds: float = duration("Longest time to wait for requests in flight.", "120s", minimum=0.0, maximum=86400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSpec:
    """What the pool's instances cost."""

    currency: str = text("Currency of the prices, as ISO 4217 writes it, such as EUR.", pattern=CURRENCY_PATTERN)
    per_instance_hour: str = text(
        'Price of an hour of an instance, such as "2.50", below 10,000,000 and with at most six decimals; a role may have its own '
        "(roles[].costPerInstanceHour). A changed price applies from then on.",
        pattern=PRICE_PATTERN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScalingSpec(ScalingSpec):
    """The rules by which the number of instances changes automatically."""

    schedules: tuple[ScheduleSpec, ...] = listing(
        ScheduleSpec,
        "Windows in time that bound the replicas of roles and override slo, earlyRejection and ratio; where "
        "several are open, the last to open decides.",
        (),
        key="name",
        max_items=MAX_SCHEDULES,
    )
    forecast: ForecastSpec = nested(ForecastSpec, "Schedules that are proposed from the pool's recorded demand.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The part of a spec that goes into a RoutingTable. `anchors_per_instance` becomes part of the table's instance
    entries.
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

    RULES: ClassVar = BETWEEN_SECTIONS

    model: str = text(
        "Model served, as clients name it in requests; cannot be changed later.",
        pattern=r"^\S+$",
        max_length=256,
        rules=(Rule(cel="self == oldSelf", message="model cannot be changed; make a new pool instead"),),
    )
    adapters: tuple[str, ...] = adapter_names()
    replicas: int = whole("Desired number of instances of the role both.", 1, maximum=MAX_REPLICAS)
    roles: tuple[RoleSpec, ...] = listing(
        RoleSpec,
        "Roles of the pool's instances: both, or prefill and decode; cannot be changed later.",
        (RoleSpec(name=Role.BOTH),),
        key="name",
        max_items=2,
    )
    engine: EngineSpec = nested(EngineSpec, "The engine of an instance, and the figures that routing needs.")
    routing: RoutingSpec = nested(RoutingSpec, "How requests find their instance.")
    slo: SloFacts = nested(SloFacts, "Latency targets of the pool.")
    early_rejection: EarlyRejectionFacts = nested(
        EarlyRejectionFacts, "Refusal of requests at their arrival if they cannot be served in time."
    )
    priority_classes: tuple[PriorityClass, ...] = listing(
        PriorityClass,
        "Classes of requests: they decide which requests are sent first and refused last. Without classes, all requests are alike.",
        (),
        key="name",
        max_items=MAX_PRIORITY_CLASSES,
    )
    drain: DrainSpec = nested(DrainSpec, "How an instance is emptied before its pod is deleted.")
    scaling: PoolScalingSpec = nested(PoolScalingSpec, "How the number of instances of each role is found.")
    ratio: RatioSpec = nested(RatioSpec, "How many of the instances prefill and how many decode.")
    rollout: RolloutSpec = nested(RolloutSpec, "How instances are replaced after a change of their template or engine.")
    cost: CostSpec | None = nested(CostSpec, "The price of the instances. Without it, the pool has no cost.", optional=True)
    gateway: GatewaySpec | None = nested(
        GatewaySpec,
        "Lets Envoy-based gateways send to this pool, with the routers as their endpoint picker: by an "
        "InferencePool of inference.networking.k8s.io, which "
        "the operator makes.",
        optional=True,
    )

    @property
    def adopts(self) -> bool:
        """Whether the instances are running pods that the roles select; the operator then creates and deletes no
        pods.
        """
        return adoption_specs.adopts(self)

    @property
    def simulated(self) -> SimulatedSpec | None:
        """The simulated engine's settings with defaults; None for real engines."""
        return (self.engine.simulated or SimulatedSpec()) if self.engine.type == "simulated" else None

    def price_of(self, role: RoleSpec) -> tuple[int, str] | None:
        """Return the price of an hour of an instance of a role, in micro-units, and its currency; None without a
        price.
        """
        if self.cost is None:
            return None
        written = role.cost_per_instance_hour or self.cost.per_instance_hour
        return micros_of("spec.cost.perInstanceHour", written), self.cost.currency

    def ratios(self) -> Iterator[tuple[str, RatioSpec]]:
        """Yield the path and content of each `ratio` section: the pool's own section, and the section of each schedule
        that has one.
        """
        yield "ratio", self.ratio
        for place, schedule in enumerate(self.scaling.schedules):
            if schedule.ratio is not None:
                yield f"scaling.schedules[{place}].ratio", RatioSpec(**overridden(self.ratio, schedule.ratio))

    def facts(self) -> TableFacts:
        """Return the facts that routers must know; the prefill speed is multiplied by a simulated engine's time
        scale.
        """
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


def _part(of: type[Facts], section: object, **others: Any) -> Facts:
    """Build an object of type `of` from the attributes of `section` that have the names of its fields, and from
    `others`.
    """
    told = {item.name: getattr(section, item.name) for item in fields(of) if hasattr(section, item.name)}  # type: ignore[arg-type]  # facts are dataclasses
    return of(**{**told, **others})


def parse_spec(document: Mapping[str, Any]) -> PoolSpec:
    """Read the `spec` of an InferencePool (the part under `spec:`), with all defaults.

    Raises InvalidInput naming `spec.…`, the value and the remedy. It makes every check of the CRD except transition
    rules, so a caller needs no other check of the spec. The names and parameters of policies are checked by callers
    that have the catalogue of policies.
    """
    return read(PoolSpec, document, "spec")
