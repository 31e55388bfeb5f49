"""The plugins that an `EndpointPickerConfig` may name, with llm-d's names of their types, and their equivalents in
Fairlead.

Names, parameters and defaults are taken from llm-d-router at ebab687 (2026-08-22), the successor of the endpoint picker
in the Gateway API Inference Extension. A file may also name plugins for work that Fairlead always does: reading
metrics, tokenizing, following KV events. If such a plugin has parameters that Fairlead ignores, a note says this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairlead.routing.choosing import filters, pickers
from fairlead.routing.choosing.scorers import loads, placements, prefixes
from fairlead.schemas.shapes import duration, text, truth, whole


class Part(StrEnum):
    """The role of a plugin in a profile."""

    FILTER = "filter"
    SCORER = "scorer"
    PICKER = "picker"
    HANDLER = "profile handler"
    SUPPLIED = "supplied by Fairlead"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    """The parameter class of plugins without parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateMatches:
    """The parameters of `approx-prefix-cache-producer` that Fairlead uses."""

    max_prefix_tokens_to_match: int = whole("Leading tokens of a prompt that are compared; 0 = all.", 131_072, minimum=0, maximum=10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreciseMatches:
    """The parameters of `precise-prefix-cache-producer` that Fairlead uses."""

    speculative_indexing: bool = truth("Whether an instance counts as holding a prompt's blocks from dispatch on.", False)
    speculative_ttl_seconds: float = duration(
        "Longest time after the prefill for which blocks count as held without a KV event.",
        "2s",
        minimum=0.0,
        maximum=60.0,
        document_name="speculativeTTL",
    )

    @property
    def expected_seconds(self) -> float:
        """Return the seconds for which a prompt's blocks are assumed to be cached before KV events confirm them; 0 =
        blocks without a KV event do not count.
        """
        return self.speculative_ttl_seconds if self.speculative_indexing else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightLoad:
    """The parameters of `inflight-load-producer` that Fairlead uses."""

    prefix_match_info_producer_name: str = text("The producer of the matches, by its name among the plugins.", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginType:
    """A type of plugin.

    `parameters` is the class that reads the plugin's parameters. `build` makes the part of a profile from these
    parameters and from the number of leading prompt tokens to compare (0 = all). `otherwise` maps each parameter of
    llm-d that Fairlead refuses to an explanation: the equivalent setting, or the reason why there is none. `unneeded`
    maps each parameter that only concerns llm-d's implementation to a sentence about Fairlead's implementation.
    """

    part: Part
    parameters: type[Any] = NoParameters
    build: Callable[[Any, int], Any] = lambda parameters, most_tokens: parameters
    otherwise: Mapping[str, str] = field(default_factory=dict)
    unneeded: Mapping[str, str] = field(default_factory=dict)


_LOAD_PRODUCER = {"inFlightLoadProducerName": "Fairlead counts the load of each instance once, for all plugins"}
_SESSIONS = {
    "sessionIdConfig": "spec.routing.session says which header names a session and how long one lives",
    "encodedEndpointHeaderConfig": "Fairlead does not trust addresses that clients send; use strategy session_id",
    "profileName": "a pool's sessions have one home, the instance that computes the prompt",
}
_BLOCKS = "the block size is that of the engines' KV events, else spec.routing.blockTokens"
_EVENTS = "routers find each engine's KV events by GET /kv_event_sources"
_MEMORY = "the index holds the blocks that engines report, or as many as spec.engine.kvCacheTokens allows"
_TOKENS = "routers ask the pool's own engines to tokenize"

PLUGIN_TYPES: Mapping[str, PluginType] = {
    "queue-scorer": PluginType(part=Part.SCORER, parameters=loads.QueueScorer),
    "kv-cache-utilization-scorer": PluginType(part=Part.SCORER, parameters=loads.KvCacheUtilizationScorer),
    "running-requests-size-scorer": PluginType(part=Part.SCORER, parameters=loads.RunningRequestsScorer),
    "active-request-scorer": PluginType(
        part=Part.SCORER,
        parameters=loads.ActiveRequestScorer,
        unneeded=_LOAD_PRODUCER | {"requestTimeout": "a request is counted until it ends"},
    ),
    "load-aware-scorer": PluginType(part=Part.SCORER, parameters=loads.LoadAwareScorer),
    "token-load-scorer": PluginType(part=Part.SCORER, parameters=loads.TokenLoadScorer, unneeded=_LOAD_PRODUCER),
    "prefix-cache-scorer": PluginType(part=Part.SCORER, parameters=prefixes.PrefixMatches, build=prefixes.PrefixCacheScorer),
    "precise-prefix-cache-scorer": PluginType(
        part=Part.SCORER,
        parameters=PreciseMatches,
        build=lambda parameters, most_tokens: prefixes.PrefixCacheScorer(prefixes.PrefixMatches()),
        unneeded={"tokenProcessorConfig": _BLOCKS, "indexerConfig": _MEMORY, "kvEventsConfig": _EVENTS},
    ),
    "no-hit-lru-scorer": PluginType(
        part=Part.SCORER,
        parameters=placements.ColdPlacement,
        build=lambda parameters, most_tokens: placements.NoHitLruScorer(parameters),
        otherwise=dict.fromkeys(("prefixPluginType", "prefixPluginName"), "llm-d never used it"),
    ),
    "session-affinity-scorer": PluginType(part=Part.SCORER, parameters=placements.SessionAffinityScorer, otherwise=_SESSIONS),
    "session-affinity-filter": PluginType(part=Part.FILTER, parameters=filters.SessionAffinityFilter, otherwise=_SESSIONS),
    "decode-filter": PluginType(part=Part.FILTER, parameters=filters.DecodeFilter),
    "prefill-filter": PluginType(part=Part.FILTER, parameters=filters.PrefillFilter),
    "utilization-filter": PluginType(part=Part.FILTER, parameters=filters.UtilizationFilter, unneeded=_LOAD_PRODUCER),
    "prefix-cache-affinity-filter": PluginType(
        part=Part.FILTER,
        parameters=filters.PrefixCacheAffinity,
        build=filters.PrefixCacheAffinityFilter,
        otherwise={"latencyPredictionInfoProducerName": "TTFTs come from peakPrefillThroughput alone"},
        unneeded=_LOAD_PRODUCER,
    ),
    "max-score-picker": PluginType(part=Part.PICKER, parameters=pickers.MaxScorePicker),
    "random-picker": PluginType(part=Part.PICKER, parameters=pickers.RandomPicker),
    "weighted-random-picker": PluginType(part=Part.PICKER, parameters=pickers.WeightedRandomPicker),
    "single-profile-handler": PluginType(part=Part.HANDLER),
    "approx-prefix-cache-producer": PluginType(
        part=Part.SUPPLIED,
        parameters=ApproximateMatches,
        otherwise={
            "maxPrefixBlocksToMatch": "write maxPrefixTokensToMatch",
            "blockSize": "llm-d counts this in characters; spec.routing.blockTokens is the block size in tokens",
        },
        unneeded={"autoTune": _BLOCKS, "blockSizeTokens": _BLOCKS, "lruCapacityPerServer": _MEMORY},
    ),
    "precise-prefix-cache-producer": PluginType(
        part=Part.SUPPLIED,
        parameters=PreciseMatches,
        unneeded={"tokenProcessorConfig": _BLOCKS, "indexerConfig": _MEMORY, "kvEventsConfig": _EVENTS},
    ),
    "inflight-load-producer": PluginType(
        part=Part.SUPPLIED,
        parameters=InFlightLoad,
        otherwise=dict.fromkeys(
            ("addEstimatedOutputTokens", "outputRatio", "maxEstimatedOutputTokens"),
            "Fairlead counts prompt tokens until the first token, and does not estimate output tokens",
        ),
    ),
    "token-producer": PluginType(part=Part.SUPPLIED, unneeded={"modelName": _TOKENS, "vllm": _TOKENS, "estimate": _TOKENS}),
    "metrics-data-source": PluginType(part=Part.SUPPLIED),
    "core-metrics-extractor": PluginType(part=Part.SUPPLIED),
    "endpoint-notification-source": PluginType(part=Part.SUPPLIED),
}

NOT_OFFERED: Mapping[str, str] = {
    "lora-affinity-scorer": "routers do not know which adapters an engine has loaded",
    "context-length-aware": "routers do not know the labels of pods",
    "label-selector-filter": "routers do not know the labels of pods",
    "by-label": "routers do not know the labels of pods",
    "by-label-selector": "routers do not know the labels of pods",
    "latency-scorer": "no latency predictor serves plugins",
    "slo-headroom-tier-filter": "no latency predictor serves plugins",
    "predicted-latency-producer": "no latency predictor serves plugins",
    "utilization-detector": "spec.earlyRejection decides which requests are refused",
    "concurrency-detector": "spec.earlyRejection decides which requests are refused",
    "probabilistic-admitter": "spec.earlyRejection decides which requests are refused",
    "latency-slo-admitter": "spec.earlyRejection decides which requests are refused",
    "data-parallel-profile-handler": "a pool's instances are found by the operator; use single-profile-handler",
    "disagg-profile-handler": "an EndpointPickerConfig chooses where a prompt is computed; the pool's roles decide where it decodes",
    "pd-profile-handler": "an EndpointPickerConfig chooses where a prompt is computed; the pool's roles decide where it decodes",
    "prefix-based-pd-decider": "the pool's roles decide which requests are divided",
    "always-disagg-pd-decider": "the pool's roles decide which requests are divided",
    "encode-filter": "a pool has no instances that only encode",
}
"""Types of llm-d's plugins that Fairlead lacks but users may try → why each is refused."""
