"""The InferencePool's spec, typed. The only source: the CRD is generated from these classes, and `parse_spec` reads documents by them.

Attribute names are the document's in snake_case; durations are in seconds and end in `_seconds`.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fairlead.instances import Role
from fairlead.schemas.reading import read
from fairlead.schemas.shapes import Rule, duration, free, listing, nested, number, text, truth, verbatim, whole
from fairlead.tables import EarlyRejectionFacts, EngineFacts, RoutingFacts, SessionFacts, SloFacts

GROUP = "fairlead.dev"
VERSION = "v1alpha1"
PLURAL = "inferencepools"
KIND = "InferencePool"

POLICY_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""What a policy's name looks like. Which policies there are is the operator's to say, as they may come from other packages."""

MAX_NAME = 52
"""Longest pool name: pod names and label values (at most 63 characters) are built from it."""

MAX_REPLICAS = 4096

POD_TEMPLATE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["spec"],
    "properties": {
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
                        },
                    },
                }
            },
        }
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """Bounds and pod template of one role's instances."""

    RULES: ClassVar = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            holds=lambda role: role.min_replicas <= role.max_replicas,
            field="minReplicas",
            message="minReplicas must not be greater than maxReplicas",
        ),
    )

    name: Role = text("Name of the role; an instance of role both prefills and decodes.", enum=(Role.BOTH.value,), convert=Role)
    min_replicas: int = whole("Never fewer instances than this while enough are healthy.", 0, maximum=MAX_REPLICAS)
    max_replicas: int = whole("Never more instances than this.", 64, maximum=MAX_REPLICAS)
    template: dict[str, Any] | None = verbatim(
        "Pod template of the instances, with the container `engine` (or the first) serving the OpenAI API. Optional for simulated engines.",
        POD_TEMPLATE_SCHEMA,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSpec:
    """Where the engine's own metrics are read."""

    path: str = text("Path of the Prometheus metrics on the engine's port.", "/metrics", pattern="^/", max_length=256)
    kv_usage: str = text(
        "Name of the gauge with the used share (0 to 1) of the KV cache.",
        "vllm:kv_cache_usage_perc",
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
class EngineSpec:
    """What runs in an instance, and the figures routing needs of it."""

    RULES: ClassVar = (
        Rule(
            cel="self.type == 'simulated' || !has(self.simulated)",
            holds=lambda engine: engine.type == "simulated" or engine.simulated is None,
            field="simulated",
            message="engine.simulated is only for engine.type simulated; remove it",
        ),
    )

    type: str = text(
        "Engine of the instances; cannot be changed later.",
        "simulated",
        enum=("simulated", "vllm"),
        rules=(Rule(cel="self == oldSelf", message="engine.type cannot be changed; make a new pool instead"),),
    )
    port: int = whole("Port of the engine's OpenAI API.", 8000, minimum=1, maximum=65535)
    bytes_per_token: int = whole("Bytes of prompt text the router takes as one token.", 4, minimum=1, maximum=64)
    prefill_tokens_per_second: float = number(
        "Prompt tokens one instance prefills per second, measured; turns pending tokens into a predicted TTFT.",
        6250,
        minimum=1,
        maximum=1e9,
    )
    kv_cache_tokens: int = whole("Tokens that fit into one instance's KV cache.", 1198372, minimum=1, maximum=10**12)
    pass_client_credentials: bool = truth(
        "Whether the router passes a client's Authorization, Cookie and X-Api-Key headers on to the engines; for engines started with --api-key.",
        False,
    )
    metrics: MetricsSpec = nested(MetricsSpec, "Where the engine's own metrics are read.")
    simulated: SimulatedSpec | None = nested(SimulatedSpec, "How the simulated engine behaves; only for type simulated.", optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """How requests of one session are recognised."""

    header: str = text("Request header with the session's name.", "x-session-id", pattern="^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$", max_length=128)
    ttl_seconds: float = duration("How long a binding outlives its session's last request.", "30m", minimum=1.0, maximum=30 * 86400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec:
    """How requests find their instance."""

    policy: str = text(
        "Routing policy by name. One that the operator does not know is refused in the pool's Ready condition.",
        "fairlead",
        pattern=POLICY_NAME,
        max_length=63,
    )
    parameters: dict[str, Any] = free("Parameters of the policy; checked against the policy's own schema (see the pool's Ready condition).")
    block_tokens: int = whole("Tokens per routing block; prompts are compared in whole blocks.", 512, minimum=1, maximum=65536)
    anchors_per_instance: int = whole("Points of one instance on each hash ring.", 160, minimum=1, maximum=4096)
    prefills_in_flight: int = whole(
        "Prefills a router sends to one instance at once; further requests wait in the router and may still move. 0 = no router queue.",
        1,
        minimum=0,
        maximum=1024,
    )
    session: SessionSpec = nested(SessionSpec, "How requests of one session are recognised, and how long a binding lives.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSpec:
    """Latency targets."""

    ttft_seconds: float = duration("Time to first token.", "5s", minimum=0.001, maximum=3600.0)
    tpot_seconds: float = duration("Time per output token after the first.", "100ms", minimum=0.001, maximum=3600.0)
    percentile: float = number("Share of requests, in percent, that must meet the targets.", 90, minimum=1, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRejectionSpec:
    """Refusing at arrival what cannot be served in time."""

    mode: str = text(
        "Disabled: refuse nothing early; Load: refuse a request whose predicted TTFT is over the limit on every instance; Predicted: also "
        "when decoding is predicted to miss slo.tpot at the time the request would begin to decode.",
        "Disabled",
        enum=("Disabled", "Load", "Predicted"),
    )
    headroom: float = number("Limits as multiples of slo.ttft and slo.tpot.", 1.0, minimum=0.01, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSpec:
    """How an instance is emptied before its pod is deleted."""

    timeout_seconds: float = duration("Longest time to wait for requests in flight.", "120s", minimum=0.0, maximum=86400.0)
    migrate_sessions: bool = truth("Whether live sessions are moved to other instances when draining starts.", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What of a spec goes into a RoutingTable. `anchors_per_instance` is for its instance entries."""

    model: str
    engine: EngineFacts
    routing: RoutingFacts
    session: SessionFacts
    slo: SloFacts
    early_rejection: EarlyRejectionFacts
    anchors_per_instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A whole, valid spec with all defaults applied."""

    RULES: ClassVar = (
        Rule(
            cel="self.roles.all(role, self.replicas >= role.minReplicas)",
            holds=lambda spec: all(spec.replicas >= role.min_replicas for role in spec.roles),
            field="replicas",
            message="replicas must not be less than roles[].minReplicas; raise replicas or lower minReplicas",
        ),
        Rule(
            cel="self.roles.all(role, self.replicas <= role.maxReplicas)",
            holds=lambda spec: all(spec.replicas <= role.max_replicas for role in spec.roles),
            field="replicas",
            message="replicas must not be greater than roles[].maxReplicas; lower replicas or raise maxReplicas",
        ),
        Rule(
            cel="self.engine.type == 'simulated' || self.roles.all(role, has(role.template))",
            holds=lambda spec: spec.engine.type == "simulated" or all(role.template is not None for role in spec.roles),
            field="roles",
            message="roles[].template is required unless engine.type is simulated",
        ),
    )

    model: str = text(
        "Model served, as clients name it in requests; cannot be changed later.",
        pattern=r"^\S+$",
        max_length=256,
        rules=(Rule(cel="self == oldSelf", message="model cannot be changed; make a new pool instead"),),
    )
    replicas: int = whole("Number of instances wanted.", 1, maximum=MAX_REPLICAS)
    roles: tuple[RoleSpec, ...] = listing(
        RoleSpec, "Roles of the pool's instances; today exactly one, both.", (RoleSpec(name=Role.BOTH),), key="name", max_items=1
    )
    engine: EngineSpec = nested(EngineSpec, "What runs in an instance, and the figures routing needs of it.")
    routing: RoutingSpec = nested(RoutingSpec, "How requests find their instance.")
    slo: SloSpec = nested(SloSpec, "Latency targets of the pool.")
    early_rejection: EarlyRejectionSpec = nested(EarlyRejectionSpec, "Refusing at arrival what cannot be served in time.")
    drain: DrainSpec = nested(DrainSpec, "How an instance is emptied before its pod is deleted.")

    @property
    def simulated(self) -> SimulatedSpec | None:
        """The simulated engine's settings with defaults; None for real engines."""
        return (self.engine.simulated or SimulatedSpec()) if self.engine.type == "simulated" else None

    def facts(self) -> TableFacts:
        """What routers must know; the prefill speed is multiplied by a simulated engine's time scale."""
        time_scale = self.simulated.time_scale if self.simulated else 1.0
        return TableFacts(
            model=self.model,
            engine=EngineFacts(
                type=self.engine.type,
                port=self.engine.port,
                block_tokens=self.routing.block_tokens,
                bytes_per_token=self.engine.bytes_per_token,
                prefill_tokens_per_second=self.engine.prefill_tokens_per_second * time_scale,
                kv_cache_tokens=self.engine.kv_cache_tokens,
                metrics_path=self.engine.metrics.path,
                kv_usage_metric=self.engine.metrics.kv_usage,
                pass_client_credentials=self.engine.pass_client_credentials,
            ),
            routing=RoutingFacts(
                policy=self.routing.policy,
                parameters=dict(self.routing.parameters),
                prefills_in_flight=self.routing.prefills_in_flight,
            ),
            session=SessionFacts(header=self.routing.session.header.lower(), ttl_seconds=self.routing.session.ttl_seconds),
            slo=SloFacts(ttft_seconds=self.slo.ttft_seconds, tpot_seconds=self.slo.tpot_seconds, percentile=self.slo.percentile),
            early_rejection=EarlyRejectionFacts(mode=self.early_rejection.mode, headroom=self.early_rejection.headroom),
            anchors_per_instance=self.routing.anchors_per_instance,
        )


def parse_spec(document: Mapping[str, Any]) -> PoolSpec:
    """Read the `spec` of an InferencePool (the part under `spec:`), with all defaults.

    Raises InvalidInput naming `spec.…`, the value and the remedy. It checks all the CRD does but transitions, so it can be trusted alone. Policies are
    checked by whoever has a catalogue of them.
    """
    return read(PoolSpec, document, "spec")
