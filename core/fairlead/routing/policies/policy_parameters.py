"""Parameters of the policies that have their own, as data: reading a pool's spec must not load the policies themselves, nor numpy."""

from dataclasses import dataclass
from math import inf

from fairlead.routing.choosing.key_parameters import KeyParameters
from fairlead.routing.contracts.parameters import DISCIPLINES, QueueParameters, parameter

HEIMDALL_PRESETS = ("heimdall-abs", "heimdall-minmax")

THETAS = {
    "mooncake-theta2": 2.0,
    "mooncake-theta1.25": 1.25,
    "mooncake-theta1.5": 1.5,
    "mooncake-theta4": 4.0,
    "mooncake-cache-aware": inf,
}
"""Presets. `mooncake-cache-aware` never fetches: the paper's ablation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FairleadParameters(QueueParameters):
    """Parameters of `fairlead`."""

    queue_discipline: str = parameter("text", "deadline", "As for every policy, but `deadline` unless told otherwise.", choices=DISCIPLINES)
    in_flight_seconds: float = parameter(
        "number",
        0.07,
        "As for every policy, and only for requests that can still be in time: sent one by one, short prefills leave gaps between them.",
        minimum=0.0,
        maximum=60.0,
    )
    idle_affinity: float = parameter(
        "number", 1.0, "Seconds of waiting that a second of prefill is worth on an idle pool.", minimum=0.0, maximum=100.0
    )
    busy_affinity: float = parameter("number", 8.0, "The same on a busy pool.", minimum=0.0, maximum=100.0)
    busy_load: float = parameter(
        "number",
        0.5,
        "The pool is busy when its mean wait is this part of the TTFT target; affinity grows evenly until then.",
        minimum=0.001,
        maximum=100.0,
    )
    kv_seconds: float = parameter(
        "number",
        0.3,
        "Seconds of waiting that a full KV cache counts for against an empty one, so that small savings do not gather decodes on few instances.",
        minimum=0.0,
        maximum=60.0,
    )
    fetch: bool = parameter(
        "boolean", True, "Where engines can fetch KV blocks from each other, do so when that is predicted to be faster than computing them."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DualMapParameters(KeyParameters):
    """Parameters of `dualmap`."""

    slo_fraction: float | None = parameter(
        "number",
        None,
        "An instance is overloaded when its pending and this request's uncached tokens take longer than this part of the TTFT SLO; "
        "default 1.0 (paper) or 0.5 (code) by preset.",
        minimum=0.01,
        maximum=100.0,
    )
    candidates: int = parameter(
        "integer", 2, "Instances a key may go to, each from a ring of its own; 1 leaves neither choice nor migration.", minimum=1, maximum=4
    )
    second_choice: str = parameter(
        "text",
        "distinct",
        "Candidate when a ring names an instance already named: `distinct` the next other one clockwise, `paper` the next by index.",
        choices=("distinct", "paper"),
    )
    rebalance: bool = parameter("boolean", True, "Migrate queued requests within their pair when both candidates are overloaded.")
    bottleneck_seconds: float = parameter(
        "number", 3.0, "An instance with work and no first token for longer is taken as held up by decodes when rebalancing.", minimum=0.1
    )
    max_examined: int = parameter(
        "integer", 256, "Queued requests of one instance looked at per rebalancing run.", minimum=1, maximum=10_000
    )

    @property
    def overload_fraction(self) -> float:
        """`slo_fraction`, or the preset's."""
        if self.slo_fraction is not None:
            return self.slo_fraction
        return 0.5 if self.preset == "dualmap-code" else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarParameters(QueueParameters):
    """Parameters of `ear`."""

    hot_slo_fraction: float = parameter(
        "number",
        1.0,
        "A host is hot when its pending prompt tokens take longer than this part of the TTFT SLO.",
        minimum=0.01,
        maximum=100.0,
    )
    hot_tokens: int | None = parameter(
        "integer", None, "A host is hot above this many pending tokens; overrides hot_slo_fraction.", minimum=0
    )
    cooldown_seconds: float = parameter(
        "number", 30.0, "A session that moved stays at least this long before load may move it again.", minimum=0.0
    )
    cool_target: bool = parameter(
        "boolean",
        True,
        "Migrate only to a host that is not hot itself and would give the first token sooner, counting what must be fetched or recomputed "
        "there; false = to any host with less pending, as the EAR draft says.",
    )
    migrate: bool = parameter("boolean", True, "Migrate sessions off hot hosts; false = pure affinity.")
    fetch: bool = parameter(
        "boolean",
        True,
        "Where engines can fetch KV blocks from each other, a session that migrates takes its context along if that is predicted to be "
        "faster than computing it again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MooncakeParameters(QueueParameters):
    """Parameters of `mooncake`."""

    preset: str = parameter(
        "text", "mooncake-theta2", "Where theta comes from when it is not given; cache-aware never fetches.", choices=tuple(THETAS)
    )
    theta: float | None = parameter(
        "number",
        None,
        "The best match may be fetched by instances whose own is shorter by this factor or more; default by preset.",
        minimum=1.01,
        maximum=1e6,
    )
    transfer_rule: str = parameter(
        "text",
        "threshold",
        "Beyond theta an instance is judged with the fetch (`threshold`, Algorithm 1), or by the shorter of fetching and computing (`shorter`).",
        choices=("threshold", "shorter"),
    )

    @property
    def balancing_threshold(self) -> float:
        """`theta`, or the preset's."""
        return THETAS[self.preset] if self.theta is None else self.theta


@dataclass(frozen=True, slots=True, kw_only=True)
class HeimdallParameters(QueueParameters):
    """Parameters of `heimdall`."""

    preset: str = parameter(
        "text",
        "heimdall-abs",
        "How matched prefixes score: `heimdall-abs` matched share of the prompt's blocks, `heimdall-minmax` spread between the matching instances.",
        choices=HEIMDALL_PRESETS,
    )
    queue_weight: float = parameter("number", 2.0, "Weight of a short queue.", minimum=0.0, maximum=1000.0)
    kv_weight: float = parameter("number", 2.0, "Weight of a free KV cache.", minimum=0.0, maximum=1000.0)
    prefix_weight: float = parameter("number", 3.0, "Weight of the matched prefix.", minimum=0.0, maximum=1000.0)
    max_endpoints: int = parameter(
        "integer", 4, "Instances picked: the best, and in order those a failed request is tried on next.", minimum=1, maximum=16
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrebleParameters(QueueParameters):
    """Parameters of `preble`."""

    window_seconds: float = parameter("number", 180.0, "How far back recent work is looked at.", minimum=1.0, maximum=86_400.0)
    decode_tokens: int = parameter("integer", 45, "Output tokens a running request is taken to have.", minimum=0, maximum=100_000)
    decode_seconds: float = parameter("number", 0.15, "Seconds a running request is charged per output token.", minimum=0.0, maximum=60.0)
    rebalance_ratio: float = parameter(
        "number", 1.5, "Prefixes move while the busiest instance has more than this many times the work of the least busy.", minimum=1.01
    )
    rebalance_every: int = parameter(
        "integer", 50, "Requests per instance between two looks at the balance; 0 = never.", minimum=0, maximum=1_000_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheLoadParameters(QueueParameters):
    """Parameters of `prefix-cache-load`."""

    imbalance_requests: int = parameter(
        "integer", 8, "When the most and the fewest requests differ by more than this, the fewest win.", minimum=0, maximum=1_000_000
    )
    deviations: float = parameter(
        "number", 1.0, "A match counts only with at most mean + this many standard deviations of requests.", minimum=0.0, maximum=100.0
    )
    deviation: str = parameter(
        "text", "sample", "Standard deviation as the code has it (`sample`, over n - 1) or `population`.", choices=("sample", "population")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheThresholdParameters(QueueParameters):
    """Parameters of `prefix-cache-threshold`."""

    match_percent: float = parameter(
        "number",
        50.0,
        "The longest match wins when it covers more than this percentage of the prompt; 100 = never.",
        minimum=0.0,
        maximum=100.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoParameters(QueueParameters):
    """Parameters of `dynamo`."""

    match_weight: float = parameter("number", 1.0, "Weight of the cached share of the prompt (0-1).", minimum=0.0, maximum=100.0)
    load_weight: float = parameter(
        "number", 1.0, "Weight of the load: pending and decoding tokens as a share of the most loaded.", minimum=0.0, maximum=100.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLoadLinearParameters(QueueParameters):
    """Parameters of `cache-load-linear`."""

    cache_weight: float = parameter(
        "number",
        0.5,
        "Weight of the cached share of the prompt; the rest of 1 weighs how little is pending.",
        minimum=0.0,
        maximum=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPdParameters(QueueParameters):
    """Parameters of `static-pd`."""

    reserve_tokens: int = parameter(
        "integer", 512, "KV tokens a decode instance must have free beside the prompt, for the answer.", minimum=0, maximum=1_000_000
    )
