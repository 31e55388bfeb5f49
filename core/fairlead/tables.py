"""The routing table: everything a router must know to serve one pool, immutable and versioned.

The control API builds a new version whenever the content changes. Routers keep the last version that they received, and
continue to use it while the API does not respond. These dataclasses are the wire format: the API validates and serves
them, routers decode them.

The spec fields that routers obey are declared here, and only here: each `…Facts` class below is a section of the spec
as well (`fairlead.pools`), or the part of a section that goes into the table. A field that is added to such a class
appears in the CRD, in every table and in the pool's history of changes.
"""

# ruff: noqa: RUF009 (the calls return dataclasses.field(...), which ruff knows only by name)

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from fairlead.capabilities import EngineCapability, declared
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.schemas.shapes import Rule, duration, free, listing, nested, number, text, truth, whole

POLICY_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Pattern of a policy's name.

The operator checks that the policy exists, as policies may come from other packages.
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
        """Parse `namespace/name`. Raises ValueError if there is no slash."""
        namespace, slash, name = text.partition("/")
        if not slash or not namespace or not name:
            raise ValueError(f"{text!r} is not namespace/name")
        return PoolKey(namespace=namespace, name=name)

    @staticmethod
    def named(text: str) -> "PoolKey":
        """Read a pool's name as people write it: `name` in the namespace `default`, or `namespace/name`. Raises
        ValueError with a remedy.
        """
        namespace, slash, name = text.rpartition("/")
        if not name or (slash and not namespace) or "/" in namespace:
            raise ValueError("write a pool's name, or namespace/name")
        return PoolKey(namespace=namespace or "default", name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEngine:
    """The engine of one instance whose template differs from the pool's present template; see `EngineFacts`.

    The engine's port is in the instance's address. All other facts are the pool's (docs/rollouts.md says why).
    """

    type: str
    metrics_path: str
    kv_usage_metric: str
    pass_client_credentials: bool
    prefill_tokens_per_second: float
    kv_cache_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEntry:
    """One instance in a routing table.

    `address` is host:port of its OpenAI API; `anchors` is the number of its ring points (0 unless it accepts requests).
    Instances with the same `revision` can hand KV blocks to each other; an empty revision is not known and matches all.
    If `engine` is None, the instance has the table's engine. If `stays` is False, the instance is known to be removed
    soon, so it takes requests but inherits no sessions.
    """

    id: str
    address: str
    role: Role = Role.BOTH
    state: InstanceState
    weight: float = 1.0
    anchors: int = 160
    revision: str = ""
    engine: InstanceEngine | None = None
    stays: bool = True

    def pairs_with(self, other: "InstanceEntry") -> bool:
        """Return whether one of the two instances can decode a prompt that the other instance prefilled. Engines of
        different revisions may have different layouts of KV blocks.
        """
        return not self.revision or not other.revision or self.revision == other.revision

    @property
    def accepting(self) -> bool:
        """Whether new requests may be placed on this instance."""
        return self.state in ACCEPTING


KV_USAGE_METRICS: Mapping[str, str] = MappingProxyType(
    {"simulated": "vllm:kv_cache_usage_perc", "vllm": "vllm:kv_cache_usage_perc", "sglang": "sglang:token_usage"}
)
"""Every `engine.type`, and its gauge with the used share (0-1) of the KV cache."""


NIXL = "Nixl"
SHARED_STORE = "SharedStore"
KV_TRANSFER_KINDS = (NIXL, "OffloadingP2P", SHARED_STORE)
"""Every known way in which engines hand KV blocks to each other. A spec that names `OffloadingP2P` is refused."""
MOVES_THAT_PAY = "Pays"
EVERY_MOVE = "Always"
WHEN_MOVED = (MOVES_THAT_PAY, EVERY_MOVE)
NO_COPIES = "Never"
COPIES_THAT_PAY = "Pays"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTransferFacts:
    """`spec.engine.kvTransfer`: how KV blocks get from one instance to another, and when a moving session's blocks are
    transferred.
    """

    RULES: ClassVar = (
        Rule(
            cel="self.kind != 'OffloadingP2P'",
            holds=lambda transfer: transfer.kind != "OffloadingP2P",
            field="kind",
            message="engine.kvTransfer.kind OffloadingP2P is not proven with real engines, and not supported; use Nixl, or remove kvTransfer",
        ),
        Rule(
            cel="(self.kind == 'SharedStore') == has(self.storeTokens)",
            holds=lambda transfer: (transfer.kind == SHARED_STORE) == (transfer.store_tokens is not None),
            field="storeTokens",
            message="engine.kvTransfer.storeTokens is required for kind SharedStore and only for it; write how many tokens the store holds, or remove it",
        ),
        Rule(
            cel="self.kind != 'SharedStore' || !has(self.storeTokens) || (self.when == 'Pays' && self.longest.matches('^(0|([0.]+(ms|s|m|h))+)$'))",
            holds=lambda transfer: (
                transfer.kind != SHARED_STORE
                or transfer.store_tokens is None
                or (transfer.when == MOVES_THAT_PAY and transfer.longest_seconds == 0)
            ),
            field="when",
            message="engine.kvTransfer.when and longest are not for kind SharedStore, whose engines load without being asked; remove them",
        ),
        Rule(
            cel="self.kind == 'SharedStore' || !has(self.storeMedium)",
            holds=lambda transfer: transfer.kind == SHARED_STORE or transfer.store_medium is None,
            field="storeMedium",
            message="engine.kvTransfer.storeMedium is only for kind SharedStore; remove it",
        ),
        Rule(
            cel="self.kind != 'SharedStore' || !has(self.storeTokens) || self.copies == 'Never'",
            holds=lambda transfer: transfer.kind != SHARED_STORE or transfer.store_tokens is None or transfer.copies == NO_COPIES,
            field="copies",
            message="engine.kvTransfer.copies is not for kind SharedStore, which holds every prefix for all engines; remove it",
        ),
    )

    kind: str = text(
        "Nixl: vLLM's NixlConnector with kv_role kv_both; the instance that holds a prompt computes one token of it and says where the blocks are; the "
        "other instance fetches them. SharedStore: all engines put what they compute into one store and load from it without being asked (LMCache, Mooncake "
        "Store, a file or object tier), so what it holds counts for every instance at the time that loading takes. OffloadingP2P (vLLM's "
        "OffloadingConnector with a p2p tier) is refused.",
        NIXL,
        enum=KV_TRANSFER_KINDS,
    )
    when: str = text(
        "Pays: a session that moves takes its KV blocks along if a transfer is predicted to be faster than "
        "computing them again. Always: it takes them along regardless of predictions.",
        MOVES_THAT_PAY,
        enum=WHEN_MOVED,
    )
    copies: str = text(
        "Pays: a prefix with which many sessions begin is copied to instances that lack it before the next such session arrives, if the computation that "
        "the copy is expected to save takes longer than the predicted transfer. Copies take at most the share of the time that routing.handOverBudget "
        "names, and are made only while one router decides for all. Never: sessions' blocks move only with the sessions.",
        NO_COPIES,
        enum=(NO_COPIES, COPIES_THAT_PAY),
    )
    tokens_per_second: float | None = number(
        "Tokens whose KV blocks go from one instance to another, or out of the store, per second: a first guess, until routers have measured it.",
        None,
        minimum=1,
        maximum=1e9,
    )
    store_tokens: int | None = whole(
        "Tokens that the store of kind SharedStore holds: routers assume that the newest computed tokens that fit are in the store.",
        None,
        minimum=1,
        maximum=10**12,
    )
    store_medium: str | None = text(
        "Medium by which engines' KV events name the store; default: every medium with the locality REMOTE. Until an event names it, routers use "
        "the store is assumed to hold what they have seen computed.",
        None,
        pattern=r"^\S+$",
        max_length=64,
    )

    @property
    def is_store(self) -> bool:
        """Whether engines read one store; otherwise routers ask engines to hand blocks on."""
        return self.kind == SHARED_STORE

    longest_seconds: float = duration(
        "Maximum time that a request waits for its KV blocks; then the new instance computes them. 0s: the "
        "predicted time of computing them.",
        "0s",
        minimum=0.0,
        maximum=600.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The fields of `spec.engine` with the figures that routers use for calculations, for any type of engine."""

    bytes_per_token: int = whole(
        "Bytes of prompt text that routers take as one token, until they have measured it from the counts that engines report.",
        4,
        minimum=1,
        maximum=64,
    )
    prefill_tokens_per_second: float = number(
        "Prompt tokens that one instance prefills per second: a first guess, by which routers rank choices "
        "until they have measured it; it refuses no request, moves no session and scales nothing. For "
        "engine.type simulated it is the engine's speed.",
        6250,
        minimum=1,
        maximum=1e9,
    )
    kv_cache_tokens: int = whole(
        "Tokens that fit into one instance's KV cache; routers prefer the size that engines report.", 1198372, minimum=1, maximum=10**12
    )
    pass_client_credentials: bool = truth(
        "Whether the router passes a client's Authorization, Cookie and X-Api-Key headers on to the engines; "
        "for engines started with --api-key.",
        False,
    )
    canary: bool = truth(
        "Whether routers ask an engine that has been idle for half a minute for one token, to find a hanging "
        "engine before a client does. Not for engines that sleep or require credentials.",
        False,
    )
    pass_priority: bool = truth(
        "Whether routers give engines the priority of a request's class, in place of the client's. For vLLM started "
        "with --scheduling-policy priority, and SGLang started with --enable-priority-scheduling.",
        False,
    )
    kv_transfer: KvTransferFacts | None = nested(
        KvTransferFacts,
        "How sessions that move take their KV blocks along, from one instance that prefills to another. Declare it only if all engines that prefill are "
        "started with this transfer; without it, the context of a moved session is computed again.",
        optional=True,
    )

    @property
    def handing_on(self) -> KvTransferFacts | None:
        """`kv_transfer` if routers ask engines to hand blocks on, else None."""
        return None if self.kv_transfer is None or self.kv_transfer.is_store else self.kv_transfer

    @property
    def shared_store(self) -> KvTransferFacts | None:
        """`kv_transfer` if all engines read one store, else None."""
        return None if self.kv_transfer is None or not self.kv_transfer.is_store else self.kv_transfer

    @property
    def declared(self) -> EngineCapability:
        """The declared capability of an instance, used if no better figure is known."""
        return EngineCapability(
            prefill_tokens_per_second=declared(self.prefill_tokens_per_second),
            bytes_per_token=declared(self.bytes_per_token),
            kv_cache_tokens=declared(self.kv_cache_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpecFacts(EngineFigures):
    """The fields of `spec.engine` that routers obey, with the spec's names."""

    type: str = text(
        "Engine of the instances; cannot be changed later.",
        "simulated",
        enum=tuple(KV_USAGE_METRICS),
        rules=(Rule(cel="self == oldSelf", message="engine.type cannot be changed; make a new pool instead"),),
    )
    port: int = whole("Port of the engine's OpenAI API.", 8000, minimum=1, maximum=65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledFacts:
    """Facts that only a model of engines can give. Only the simulator sets them.

    `PoolSpec.facts` leaves the defaults, which mean unknown. In a real pool routers measure decode step times on
    finished requests (`fairlead.routing.knowledge.estimators`, for the early rejection mode `Predicted`), and transfer
    times of KV blocks if `kv_transfer` is declared.
    """

    decode_base_seconds: float = 0.0
    """Base time of a decode step. The next two fields are the additional times per context token and per request. If
    all three are 0, the times are not known.
    """
    decode_seconds_per_context_token: float = 0.0
    decode_seconds_per_request: float = 0.0
    kv_bytes_per_token: int = 57_344
    kv_transfer_bytes_per_second: float = 0.0
    """Speed at which instances fetch KV blocks from each other; 0 = they cannot."""
    kv_transfer_latency_seconds: float = 0.0
    copies_prefixes: bool = False
    """Whether prefixes that many sessions share are copied to instances before such sessions arrive, as with
    `kv_transfer.copies`.
    """

    def decode_seconds(self, context_tokens: float, requests: float) -> float:
        """Return the time of one decode step over these requests; 0 if decode times are not known."""
        return (
            self.decode_base_seconds + self.decode_seconds_per_context_token * context_tokens + self.decode_seconds_per_request * requests
        )

    @property
    def decode_known(self) -> bool:
        """Whether decode times are known."""
        return self.decode_base_seconds > 0 or self.decode_seconds_per_context_token > 0 or self.decode_seconds_per_request > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts(EngineSpecFacts):
    """The facts about engines that routing needs.

    Speeds are per instance, already multiplied by a simulated engine's time scale.
    """

    block_tokens: int = 512
    """Tokens per routing block; prompts are compared in whole blocks. A router that has measured the bytes per token
    sets this number to the tokens in `block_bytes`.
    """
    block_bytes: int = 2048
    """Bytes of text per routing block: `spec.routing.blockTokens` times the declared bytes per token."""
    metrics_path: str = "/metrics"
    """Path of the Prometheus metrics on the instance's address."""
    kv_usage_metric: str = KV_USAGE_METRICS["vllm"]
    """Gauge with the used share (0-1) of the KV cache."""
    modelled: ModelledFacts = ModelledFacts()
    """Facts that only a simulated pool knows; a real pool keeps the defaults, which mean unknown."""

    @property
    def copies_prefixes(self) -> bool:
        """Whether prefixes that many sessions share are copied to instances before such sessions arrive."""
        return self.modelled.copies_prefixes or (self.handing_on is not None and self.handing_on.copies == COPIES_THAT_PAY)

    def of_instance(self) -> InstanceEngine:
        """Return the facts that may differ for one instance."""
        return InstanceEngine(**{item.name: getattr(self, item.name) for item in fields(InstanceEngine)})

    def at(self, instance: InstanceEngine | None) -> "EngineFacts":
        """Return the facts with the figures of `instance` in place of the pool's; None = unchanged."""
        return self if instance is None else replace(self, **{item.name: getattr(instance, item.name) for item in fields(instance)})


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


DEFAULT_CLASS = "default"
"""The priority class of requests that name no class of the pool."""
CLASS_NAME = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
MAX_PRIORITY_CLASSES = 8


def meets(share: float, percentile: float) -> bool:
    """Return whether a share (0-1) reaches a goal in percent. Rounding errors are tolerated: 309 of 375 reaches 82.4 %,
    although both numbers are inexact in floating point.
    """
    return share * 100 + 1e-9 >= percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """An entry of `spec.slo.task`: the longest time that whole tasks of a priority class may take, and the share of the
    tasks that must be in time.

    Routers do not use this target. The control API judges tasks when they are over, by the sums of their recorded
    turns.
    """

    RULES: ClassVar = (
        Rule(
            cel="has(self.turnTime) || has(self.wallTime)",
            holds=lambda target: target.turn_time_seconds is not None or target.wall_time_seconds is not None,
            field="turnTime",
            message="a target for tasks needs a time; write slo.task[].turnTime, wallTime, or both",
        ),
    )

    name: str = text(
        "Priority class of the tasks, one of priorityClasses, or `default`. A task has the class of its first turn.",
        pattern=CLASS_NAME,
        max_length=63,
    )
    turn_time_seconds: float | None = duration(
        "Longest time of all turns of a task together, each from its arrival to its end, in queues and in engines. The time "
        "between turns, in which tools run, does not count; turns at the same time all count.",
        None,
        minimum=0.001,
        maximum=30 * 86400.0,
    )
    wall_time_seconds: float | None = duration(
        "Longest time from the arrival of a task's first turn to the end of its last one, including the time in which tools run.",
        None,
        minimum=0.001,
        maximum=30 * 86400.0,
    )
    percentile: float = number("Share of tasks, in percent, that must meet the targets.", 90, minimum=1, maximum=100)
    idle_seconds: float = duration(
        "Time from the end of a task's last turn until the task is over and is judged. A further turn continues the task.",
        "10m",
        minimum=1.0,
        maximum=86400.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFacts:
    """`spec.slo`: latency targets of requests, and targets of whole tasks."""

    ttft_seconds: float = duration("Time to first token.", "5s", minimum=0.001, maximum=3600.0)
    tpot_seconds: float = duration("Time per output token after the first.", "100ms", minimum=0.001, maximum=3600.0)
    percentile: float = number("Share of requests, in percent, that must meet the targets.", 90, minimum=1, maximum=100)
    task: tuple[TaskTarget, ...] = listing(
        TaskTarget,
        "Targets of whole tasks of agents, by priority class (docs/agents.md). Without any, tasks are measured and not judged.",
        (),
        key="name",
        max_items=MAX_PRIORITY_CLASSES,
    )


AFTER_PREFILL = "AfterPrefill"
EARLY_REJECTION_MODES = ("Disabled", "Load", "Predicted", AFTER_PREFILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRejectionFacts:
    """`spec.earlyRejection`: refuses a request that cannot be served in time.

    A load is a predicted latency divided by its SLO; a request is refused when its load exceeds `headroom`. See
    `fairlead.routing.admission.gates`.
    """

    mode: str = text(
        "Disabled: refuse nothing early; Load: refuse a request when every instance is predicted to miss "
        "slo.ttft, or every decoding instance slo.tpot at its present load; Predicted: the same for slo.ttft, "
        "and slo.tpot at the load predicted for when the request begins to decode; AfterPrefill, with the "
        "roles prefill and decode: at arrival for slo.ttft only, and for slo.tpot only after the prompt has "
        "been computed, in vain. Times of decode steps are measured on finished requests.",
        "Disabled",
        enum=EARLY_REJECTION_MODES,
    )
    headroom: float = number("Limits as multiples of slo.ttft and slo.tpot.", 1.0, minimum=0.01, maximum=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingFacts:
    """The fields of `spec.scaling.zero` that routers obey: limits for requests that wait for a pool's
    first instance.
    """

    hold_for_seconds: float = duration(
        "How long a router holds a request while no instance serves but one is expected; then it answers 503. "
        "Should be longer than an instance takes to start.",
        "2m",
        minimum=0.0,
        maximum=1800.0,
    )
    held_requests: int = whole("Maximum number of requests that a router holds; further ones get 503.", 1024, maximum=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """An entry of `spec.priorityClasses`: a class of requests. A request's class determines whether it is served before
    other requests, and whether it is refused before them.

    `fairlead.priority_classes` describes pools without classes.
    """

    name: str = text(
        "Name of the class, as requests and API keys give it. Requests without a class are of the class "
        "`default`, which has priority 0 unless "
        "it is declared.",
        pattern=CLASS_NAME,
        max_length=63,
    )
    priority: int = whole("Waiting requests of a higher number are sent first, on every instance.", 0, minimum=-(2**31), maximum=2**31 - 1)
    share: float = number(
        "Share of the limits that requests of this class may use: the limits of earlyRejection (while no "
        "instance is idle), of a queue's length and of held requests. Waiting requests of lower priority do "
        "not count towards them.",
        1.0,
        minimum=0.01,
        maximum=1,
    )


class Outlook(StrEnum):
    """The expectation for a pool while none of its instances accepts requests."""

    UNKNOWN = "Unknown"
    """The pool's instances are lost, broken or cordoned; routers hold requests for a few seconds only."""
    COMING = "Coming"
    """An instance is starting, or will be started for the first request that a router holds."""
    CLOSED = "Closed"
    """No instance is desired, and a request does not change that."""


FAIR_TENANTS = "Tenants"
FAIRNESS_MODES = ("None", FAIR_TENANTS)
MIGRATIONS_PAUSED = "Paused"
MIGRATIONS_MODES = ("Enabled", MIGRATIONS_PAUSED)
ANSWERS_CONTINUE = "Enabled"
CONTINUING_MODES = (ANSWERS_CONTINUE, "Disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowPolicy:
    """An entry of `spec.routing.shadows`: a policy whose choices are only recorded and compared with the choices of the
    deciding policy.
    """

    policy: str = text("A policy by name, except one that learns from its own choices.", pattern=POLICY_NAME, max_length=63)
    parameters: dict[str, Any] = free("Parameters of that policy; checked against its own schema (see the pool's Ready condition).")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFacts:
    """The fields of `spec.routing` that routers obey: the policy, its parameters and queueing.

    The parameters are checked against the policy's schema.
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
    fairness: str = text(
        "None: requests of a priority class wait in one order, whoever sent them. Tenants: the tenant that "
        "has had less of an instance's time goes first, so that a tenant that sends much does not make others "
        "wait or be refused. A tenant is an API key, or what a trusted client names in "
        "x-llm-d-inference-fairness-id.",
        "None",
        enum=FAIRNESS_MODES,
    )
    migrations: str = text(
        "Enabled: the policy moves sessions and queued requests by its own rules. Paused: sessions and queued "
        "requests stay on their instance as long as it takes requests; they move only if it drains or is "
        "lost, or if a person moves them.",
        "Enabled",
        enum=MIGRATIONS_MODES,
    )
    continue_answers: str = text(
        "Enabled: a streamed answer that has begun goes on at another instance, in the same stream, when its "
        "engine dies, stalls or drains; the new instance recomputes the prompt and the text given so far. "
        "Disabled: such an answer ends with an error.",
        ANSWERS_CONTINUE,
        enum=CONTINUING_MODES,
    )
    hand_over_after_seconds: float = duration(
        "How long a draining instance keeps answers that it has begun; then they continue elsewhere, as far "
        "as continueAnswers allows. Answers that cannot continue elsewhere stay until they end, or until "
        "drain.timeout.",
        "5s",
        minimum=0.0,
        maximum=86400.0,
    )
    hand_over_budget: float = number(
        "Share of the pool's prefill throughput that may be spent on recomputing the last prompts of sessions "
        "elsewhere while their instance leaves, before their next turns come. Routers keep these prompts only "
        "in memory. 0: nothing is kept or recomputed.",
        0.2,
        minimum=0.0,
        maximum=1.0,
    )
    shadows: tuple[ShadowPolicy, ...] = listing(
        ShadowPolicy,
        "Policies that only advise: for a sample of the requests a router also asks these where they would send it, and "
        "records the answer with the decision (fairlead pools shadows). They decide nothing. Empty: no policy is asked.",
        (),
        key="policy",
        max_items=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryFacts:
    """The present step of a canary. The share `share` (0-1) of the sessions that are not bound yet is placed on
    `instances`, and all other sessions elsewhere. `step` names the step in the records of its requests.
    """

    step: str
    share: float
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingTable:
    """One version of one pool's routing table. Later tables of a pool have higher versions."""

    pool: PoolKey
    uid: str
    version: int
    generation: int
    model: str
    adapters: tuple[str, ...] = ()
    """LoRA adapters, which engines serve under their own names beside the model."""
    engine: EngineFacts
    routing: RoutingFacts
    session: SessionFacts
    slo: SloFacts
    slo_version: int | None = None
    """The version of the pool's SLO in `slo`; None from an API that does not send it."""
    early_rejection: EarlyRejectionFacts
    holding: HoldingFacts = HoldingFacts()
    priority_classes: tuple[PriorityClass, ...] = ()
    outlook: Outlook = Outlook.UNKNOWN
    opens_at: float | None = None
    """Time at which instances will be desired again (Unix seconds), if the outlook is Closed and this time is known."""
    canary: CanaryFacts | None = None
    """The canary of a rollout in progress; None = sessions go to any instance."""
    instances: tuple[InstanceEntry, ...]
