"""The routing table: everything a router must know to serve one pool, immutable and versioned.

The control API builds a new version whenever its content changes; routers keep the last one they saw and go on serving from it when the
API is away. These dataclasses are the wire format itself: the API validates and serves them, routers decode them.
"""

from dataclasses import dataclass, field
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState, Role


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
    """One instance in a table. `address` is host:port of its OpenAI API; `anchors` its ring points (0 unless accepting)."""

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
class EngineFacts:
    """What routing must know of the engines. Speeds are of one instance, already multiplied by a simulated engine's time scale."""

    type: str
    port: int
    block_tokens: int = 512
    """Tokens per routing block; prompts are compared in whole blocks."""
    bytes_per_token: int = 4
    """Bytes of prompt text taken as one token, since the router does not tokenize."""
    prefill_tokens_per_second: float = 6250.0
    kv_cache_tokens: int = 1_198_372
    """KV cache capacity of one instance, in tokens."""
    metrics_path: str = "/metrics"
    """Path of the Prometheus metrics on the instance's address."""
    kv_usage_metric: str = "vllm:kv_cache_usage_perc"
    """Gauge with the used share (0-1) of the KV cache."""
    pass_client_credentials: bool = False
    """Whether a client's Authorization, Cookie and X-Api-Key headers go on to the engines."""
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
class SessionFacts:
    """How a request's session is named, and how long a binding outlives its last request."""

    header: str = "x-session-id"
    ttl_seconds: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFacts:
    """Latency targets. TTFT and TPOT in seconds; attainment is meant at `percentile` (0-100)."""

    ttft_seconds: float = 5.0
    tpot_seconds: float = 0.1
    percentile: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRejectionFacts:
    """Admission. `mode` is `Disabled`, `Load`, `Predicted` or (simulator only) `AfterPrefill`; see `fairlead.routing.admission.gates`.

    A load is a predicted latency over its SLO; a request is refused when it exceeds `headroom` x the cap of the request's priority class.
    """

    mode: str = "Disabled"
    headroom: float = 1.0
    class_caps: tuple[float, ...] = (1.0, 0.9, 0.8)
    """Caps of classes 0, 1, …; the last one holds for all further classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFacts:
    """Chosen policy, its parameters (checked against the policy's schema) and queueing."""

    policy: str = "fairlead"
    parameters: dict[str, Any] = field(default_factory=dict)
    prefills_in_flight: int = 1
    """Late binding: requests dispatched to one instance that have no first token yet; further ones wait in the router. 0 = no queueing."""


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
