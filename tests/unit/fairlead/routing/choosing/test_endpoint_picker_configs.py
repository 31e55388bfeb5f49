"""EndpointPickerConfigs as in llm-d's samples: which run, with which notes, and which are refused with which
message.
"""

from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.routing.choosing.endpoint_picker_configs import DEFAULT_CONFIG, EndpointPickerPlan, read_endpoint_picker_config
from fairlead.routing.choosing.filters import DecodeFilter, UtilizationFilter
from fairlead.routing.choosing.pickers import MaxScorePicker, RandomPicker, WeightedRandomPicker
from fairlead.routing.choosing.scorers.loads import KvCacheUtilizationScorer, LoadAwareScorer, QueueScorer
from fairlead.routing.choosing.scorers.prefixes import PrefixCacheScorer


def config(*plugins: Any, profile: Any = None, **sections: Any) -> dict[str, Any]:
    """Return a file with these plugins (a type, or a whole entry) and a profile of (name, weight or None)."""
    document: dict[str, Any] = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": one} if isinstance(one, str) else one for one in plugins],
    }
    if profile is not None:
        named = [{"pluginRef": name} | ({} if weight is None else {"weight": weight}) for name, weight in profile]
        document["schedulingProfiles"] = [{"name": "default", "plugins": named}]
    return document | sections


def plan_of(document: dict[str, Any]) -> EndpointPickerPlan:
    return read_endpoint_picker_config(document, "config")


def scorers(plan: EndpointPickerPlan) -> list[tuple[type[Any], float]]:
    return [(type(one.scorer), one.weight) for one in plan.profile.scorers]


PRECISE = config(
    {"type": "token-producer", "parameters": {"modelName": "acme/model", "vllm": {"url": "http://localhost:8000"}}},
    "endpoint-notification-source",
    "metrics-data-source",
    "core-metrics-extractor",
    "single-profile-handler",
    "decode-filter",
    {"type": "precise-prefix-cache-producer", "parameters": {"tokenProcessorConfig": {"blockSize": 64}}},
    {"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "precise-prefix-cache-producer"}},
    "kv-cache-utilization-scorer",
    "queue-scorer",
    "max-score-picker",
    profile=[
        ("decode-filter", None),
        ("prefix-cache-scorer", 2.0),
        ("kv-cache-utilization-scorer", 1.0),
        ("queue-scorer", 1.0),
        ("max-score-picker", None),
    ],
    dataLayer={
        "sources": [
            {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]},
            {"pluginRef": "endpoint-notification-source", "extractors": [{"pluginRef": "precise-prefix-cache-producer"}]},
        ]
    },
)
"""A config with the structure of llm-d's sample for precise prefix caching."""


def test_the_precise_sample_runs_and_says_what_fairlead_does_by_itself() -> None:
    plan = plan_of(PRECISE)
    assert scorers(plan) == [(PrefixCacheScorer, 2.0), (KvCacheUtilizationScorer, 1.0), (QueueScorer, 1.0)]
    assert [type(one) for one in plan.profile.filters] == [DecodeFilter]
    assert plan.profile.picker == MaxScorePicker(max_num_of_endpoints=1)
    assert plan.notes == (
        "config.plugins[0].parameters.modelName is not needed: routers ask the pool's own engines to tokenize",
        "config.plugins[0].parameters.vllm is not needed: routers ask the pool's own engines to tokenize",
        "config.plugins[6].parameters.tokenProcessorConfig is not needed: the block size is that of the engines' KV events, "
        "else spec.routing.blockTokens",
    )


def test_the_sample_with_an_estimated_prefix_cache_runs() -> None:
    plan = plan_of(
        config(
            "single-profile-handler",
            "decode-filter",
            "prefix-cache-scorer",
            "load-aware-scorer",
            "max-score-picker",
            profile=[("decode-filter", None), ("prefix-cache-scorer", 1.0), ("load-aware-scorer", 1.0), ("max-score-picker", None)],
        )
    )
    assert scorers(plan) == [(PrefixCacheScorer, 1.0), (LoadAwareScorer, 1.0)]
    assert plan.notes == ()


def test_without_a_file_runs_what_llm_d_runs_without_one() -> None:
    plan = plan_of(dict(DEFAULT_CONFIG))
    assert scorers(plan) == [(QueueScorer, 2.0), (KvCacheUtilizationScorer, 2.0), (PrefixCacheScorer, 3.0)]
    assert plan.profile.picker == MaxScorePicker()


def test_without_profiles_all_plugins_run_with_weight_one() -> None:
    plan = plan_of(config("queue-scorer", "decode-filter", "random-picker"))
    assert scorers(plan) == [(QueueScorer, 1.0)]
    assert [type(one) for one in plan.profile.filters] == [DecodeFilter]
    assert isinstance(plan.profile.picker, RandomPicker)


def test_a_profile_without_a_picker_takes_the_files_only_one() -> None:
    plan = plan_of(
        config("queue-scorer", {"type": "weighted-random-picker", "parameters": {"maxNumOfEndpoints": 2}}, profile=[("queue-scorer", None)])
    )
    assert plan.profile.picker == WeightedRandomPicker(max_num_of_endpoints=2)


def test_plugins_are_referred_to_by_their_names() -> None:
    document = config(
        {"type": "queue-scorer", "name": "short"},
        {"type": "utilization-filter", "name": "busy", "parameters": {"conditions": [{"metric": "waiting-queue", "maxValue": 5}]}},
        profile=[("short", 4), ("busy", None)],
    )
    plan = plan_of(document)
    assert scorers(plan) == [(QueueScorer, 4.0)]
    assert isinstance(plan.profile.filters[0], UtilizationFilter)


def test_a_file_that_goes_by_sessions_binds_them() -> None:
    session = {"type": "session-affinity-scorer", "parameters": {"strategy": "session_id"}}
    assert plan_of(config("queue-scorer", session)).keeps_homes
    assert not plan_of(config("queue-scorer")).keeps_homes


def test_the_older_api_version_is_read_too() -> None:
    assert scorers(plan_of(config("queue-scorer", apiVersion="inference.networking.x-k8s.io/v1alpha1"))) == [(QueueScorer, 1.0)]


SESSION = {"type": "session-affinity-scorer"}


@pytest.mark.parametrize(
    ("document", "field", "remedy"),
    [
        (config("magic-scorer"), "plugins[0].type", "the types of plugins are queue-scorer, kv-cache"),
        (config("latency-scorer"), "plugins[0].type", "Fairlead does not support it: no latency predictor"),
        (
            config("queue-scorer", {"type": "max-score-picker", "parameters": {"maxEndpoints": 2}}),
            "plugins[1].parameters.maxEndpoints",
            "remove it; max-score-picker: its parameters are maxNumOfEndpoints",
        ),
        (config({"type": "queue-scorer", "parameters": {"threshold": 1}}), "plugins[0].parameters.threshold", "queue-scorer: it has none"),
        (
            config({"type": "load-aware-scorer", "parameters": {"threshold": 0}}),
            "plugins[0].parameters.threshold",
            "write a whole number from 1",
        ),
        (
            config({"type": "max-score-picker", "parameters": {"maxNumOfEndpoints": "two"}}),
            "plugins[0].parameters.maxNumOfEndpoints",
            "write a whole number",
        ),
        (
            config({"type": "inflight-load-producer", "parameters": {"addEstimatedOutputTokens": True}}),
            "plugins[0].parameters.addEstimatedOutputTokens",
            "Fairlead counts prompt tokens until the first token",
        ),
        (config(SESSION), "plugins[0].parameters.strategy", "it is required"),
        (
            config(SESSION | {"parameters": {"strategy": "encoded_endpoint_header"}}),
            "plugins[0].parameters.strategy",
            "write one of session_id",
        ),
        (
            config(SESSION | {"parameters": {"strategy": "session_id", "sessionIdConfig": {}}}),
            "plugins[0].parameters.sessionIdConfig",
            "spec.routing.session says",
        ),
        (config({"type": "utilization-filter"}), "plugins[0].parameters.conditions", "it is required"),
        (
            config({"type": "utilization-filter", "parameters": {"conditions": [{"metric": "gpu", "maxValue": 1}]}}),
            "plugins[0].parameters.conditions[0].metric",
            "write one of active-requests",
        ),
        (
            config("queue-scorer", profile=[("kv-scorer", 1)]),
            "schedulingProfiles[0].plugins[0].pluginRef",
            "name a plugin of this file: queue-scorer",
        ),
        (config("queue-scorer", "decode-filter", profile=[("queue-scorer", 1)]), "plugins[1]", "no profile uses it"),
        (
            config("queue-scorer", "max-score-picker", profile=[("queue-scorer", 1), ("max-score-picker", 2)]),
            "schedulingProfiles[0].plugins[1].weight",
            "max-score-picker is a picker",
        ),
        (
            config("queue-scorer", "single-profile-handler", profile=[("queue-scorer", 1), ("single-profile-handler", None)]),
            "schedulingProfiles[0].plugins[1].pluginRef",
            "a profile names filters, scorers and one picker",
        ),
        (config("queue-scorer", "max-score-picker", "random-picker"), "schedulingProfiles", "name one picker"),
        (config("queue-scorer", {"type": "queue-scorer"}), "plugins", "give every item another reference"),
        (
            config({"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "mine"}}),
            "plugins[0].parameters.prefixMatchInfoProducerName",
            "name a plugin of this file",
        ),
        (
            config("queue-scorer", dataLayer={"sources": [{"pluginRef": "gone"}]}),
            "dataLayer.sources[0].pluginRef",
            "name a plugin of this file",
        ),
        (config("queue-scorer", dataLayer={"discovery": {"pluginRef": "file"}}), "dataLayer.discovery", "remove it"),
        (config("queue-scorer", flowControl={}), "flowControl", "spec.routing.prefillsInFlight"),
        (config("queue-scorer", featureGates=["flowControl"]), "featureGates", "Fairlead has no feature gates"),
        (config("queue-scorer", plugin=[]), "plugin", "remove it; the fields of config are apiVersion"),
        (config("queue-scorer", kind="Config"), "kind", "write one of EndpointPickerConfig"),
        (config("queue-scorer", apiVersion="v1"), "apiVersion", "write one of llm-d.ai/v1alpha1"),
        ({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}, "plugins", "it is required"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name_in_one_line(document: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan_of(document)
    assert refused.value.field == f"config.{field}"
    assert remedy in refused.value.remedy
    assert "\n" not in str(refused.value)


def test_two_profiles_are_refused_because_a_pools_roles_divide_its_work() -> None:
    both = config("queue-scorer", profile=[("queue-scorer", 1)])
    both["schedulingProfiles"].append({"name": "decode", "plugins": [{"pluginRef": "queue-scorer"}]})
    with pytest.raises(InvalidInput, match=r"schedulingProfiles: \['default', 'decode'\] cannot be used; write one profile"):
        plan_of(both)
