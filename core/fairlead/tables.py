"""The routing table: everything a router must know to serve one pool, immutable and versioned.

The control API builds a new version whenever its content changes; routers keep the last one they saw and go on
serving from it when the API is away. These dataclasses are the wire format itself: the API validates and serves
them, routers decode them.

What routers obey of a spec is declared here, and only here: the `…Facts` below are sections of the spec as well
(`fairlead.pools`), or the part of one that goes into the table. A field added to one of them is in the CRD, in every
table and in the pool's history of changes.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from dataclasses import dataclass
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.schemas.shapes import Rule, duration, free, number, text, truth, whole

POLICY_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""What a policy's name looks like.

Which policies there are is the operator's to say, as they may come from other packages.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """Namespace and name of an InferencePool; prints as `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @staticmethod
    def parse(text: str) -> "PoolKey":
        """`namespace/name` → key. Raises ValueError when there is no slash."""
        namespace, slash, name = text.partition("/")
        if not slash or not namespace or not name:
            raise ValueError(f"{text!r} is not namespace/name")
        return PoolKey(namespace=namespace, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEntry:
    """One instance in a table.

    `address` is host:port of its OpenAI API; `anchors` its ring points (0 unless accepting).
    """

    id: str
    address: str
    role: Role = Role.BOTH
    state: InstanceState
    weight: float = 1.0
    anchors: int = 160

    @property
    def accepting(self) -> bool:
        """Whether new requests may be placed here."""
        return self.state in ACCEPTING


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpecFacts:
    """What routers obey of `spec.engine` as it is written there."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledFacts:
    """What only a model of engines can say, so only the simulator fills it; `PoolSpec.facts` leaves the defaults,
    by which nothing is known.

    In a real pool decode steps are learnt from finished requests (`fairlead.routing.knowledge.estimators`, for the
    early rejection mode `Predicted`), and instances fetch nothing from each other.
    """

    decode_base_seconds: float = 0.0
    """A decode step takes this, and the next two for each context token and each request in it; all 0 = not known."""
    decode_seconds_per_context_token: float = 0.0
    decode_seconds_per_request: float = 0.0
    kv_bytes_per_token: int = 57_344
    kv_transfer_bytes_per_second: float = 0.0
    """Speed at which instances fetch KV blocks from each other; 0 = they cannot."""
    kv_transfer_latency_seconds: float = 0.0

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Time of one decode step over these requests; 0 when decode times are not known."""
        return (
            self.decode_base_seconds + self.decode_seconds_per_context_token * context_tokens + self.decode_seconds_per_request * requests
        )

    @property
    def decode_known(self) -> bool:
        """Whether anything is known of decode times."""
        return self.decode_base_seconds > 0 or self.decode_seconds_per_context_token > 0 or self.decode_seconds_per_request > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts(EngineSpecFacts):
    """What routing must know of the engines.

    Speeds are of one instance, already multiplied by a simulated engine's time scale.
    """

    block_tokens: int = 512
    """Tokens per routing block (`spec.routing.blockTokens`); prompts are compared in whole blocks."""
    metrics_path: str = "/metrics"
    """Path of the Prometheus metrics on the instance's address."""
    kv_usage_metric: str = "vllm:kv_cache_usage_perc"
    """Gauge with the used share (0-1) of the KV cache."""
    modelled: ModelledFacts = ModelledFacts()
    """Unknown in a real pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """`spec.routing.session`: how requests of one session are recognised, and how long a binding lives."""

    header: str = text(
        "Request header with the session's name.",
        "x-session-id",
        pattern="^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$",
        max_length=128,
        convert=str.lower,
    )
    ttl_seconds: float = duration("How long a binding outlives its session's last request.", "30m", minimum=1.0, maximum=30 * 86400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFacts:
    """`spec.slo`: latency targets."""

    ttft_seconds: float = duration("Time to first token.", "5s", minimum=0.001, maximum=3600.0)
    tpot_seconds: float = duration("Time per output token after the first.", "100ms", minimum=0.001, maximum=3600.0)
    percentile: float = number("Share of requests, in percent, that must meet the targets.", 90, minimum=1, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRejectionFacts:
    """`spec.earlyRejection`: refusing at arrival what cannot be served in time. The simulator also knows the
    mode `AfterPrefill`; see
    `fairlead.routing.admission.gates`.

    A load is a predicted latency over its SLO; a request is refused when it exceeds `headroom`.
    """

    mode: str = text(
        "Disabled: refuse nothing early; Load: refuse a request whose predicted TTFT is over the limit on every instance, whatever is decoded there; "
        "Predicted: also when decoding is predicted to miss slo.tpot at the time the request would begin to decode.",
        "Disabled",
        enum=("Disabled", "Load", "Predicted"),
    )
    headroom: float = number("Limits as multiples of slo.ttft and slo.tpot.", 1.0, minimum=0.01, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFacts:
    """What routers obey of `spec.routing`: the policy, its parameters (checked against the policy's schema) and
    queueing.
    """

    policy: str = text(
        "Routing policy by name. One that the operator does not know is refused in the pool's Ready condition.",
        "fairlead",
        pattern=POLICY_NAME,
        max_length=63,
    )
    parameters: dict[str, Any] = free("Parameters of the policy; checked against the policy's own schema (see the pool's Ready condition).")
    prefills_in_flight: int = whole(
        "Prefills a router sends to one instance at once; further requests wait in the router and may still move. 0 = no router queue.",
        1,
        minimum=0,
        maximum=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingTable:
    """One version of one pool's routing table. Versions of a pool only grow."""

    pool: PoolKey
    uid: str
    version: int
    generation: int
    model: str
    engine: EngineFacts
    routing: RoutingFacts
    session: SessionFacts
    slo: SloFacts
    early_rejection: EarlyRejectionFacts
    instances: tuple[InstanceEntry, ...]
