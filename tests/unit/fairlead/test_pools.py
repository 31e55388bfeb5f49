"""Reading an InferencePool's spec."""

from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import PoolSpec, parse_spec
from fairlead.tables import ModelledFacts

TEMPLATE = {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v1"}]}}
PREFILL_DECODE = [{"name": "prefill"}, {"name": "decode"}]


def test_a_spec_of_one_line_gets_every_default() -> None:
    spec = parse_spec({"model": "m"})
    assert spec == PoolSpec(model="m")
    assert (spec.replicas, spec.roles[0].name, spec.roles[0].min_replicas, spec.roles[0].max_replicas) == (1, Role.BOTH, 0, 64)
    assert (spec.engine.type, spec.engine.port, spec.routing.policy, spec.early_rejection.mode) == (
        "simulated",
        8000,
        "fairlead",
        "Disabled",
    )
    assert (spec.slo.ttft_seconds, spec.slo.tpot_seconds, spec.drain.timeout_seconds, spec.routing.session.ttl_seconds) == (
        5,
        0.1,
        120,
        1800,
    )


def test_durations_become_seconds() -> None:
    spec = parse_spec({"model": "m", "slo": {"ttft": "1m30s", "tpot": "50ms"}, "engine": {"simulated": {"decodeStep": "25ms"}}})
    assert spec.slo.ttft_seconds == 90
    assert spec.slo.tpot_seconds == pytest.approx(0.05)
    assert spec.simulated is not None
    assert spec.simulated.decode_step_seconds == pytest.approx(0.025)


def test_the_facts_for_routers_carry_the_scaled_prefill_speed() -> None:
    document = {
        "model": "m",
        "engine": {"prefillTokensPerSecond": 1000, "simulated": {"timeScale": 10}},
        "routing": {
            "policy": "ear",
            "parameters": {"a": 1},
            "blockTokens": 128,
            "anchorsPerInstance": 7,
            "session": {"header": "X-Session"},
        },
        "earlyRejection": {"mode": "Load", "headroom": 0.5},
    }
    facts = parse_spec(document).facts()
    assert facts.engine.prefill_tokens_per_second == 10_000
    assert (facts.engine.block_tokens, facts.anchors_per_instance) == (128, 7)
    assert (facts.routing.policy, facts.routing.parameters) == ("ear", {"a": 1})
    assert facts.session.header == "x-session"
    assert facts.engine.modelled == ModelledFacts(), "what only the simulator can say is unknown in a pool"
    assert (facts.early_rejection.mode, facts.early_rejection.headroom) == ("Load", 0.5)


def test_a_real_engine_is_not_simulated_and_keeps_its_template() -> None:
    spec = parse_spec({"model": "m", "engine": {"type": "vllm"}, "roles": [{"name": "both", "template": TEMPLATE}]})
    assert spec.simulated is None
    assert spec.roles[0].template == TEMPLATE


def test_a_pool_of_sglang_reads_sglangs_gauge_unless_another_is_named() -> None:
    document: dict[str, Any] = {"model": "m", "engine": {"type": "sglang"}, "roles": [{"name": "both", "template": TEMPLATE}]}
    assert parse_spec(document).facts().engine.kv_usage_metric == "sglang:token_usage"
    document["engine"]["metrics"] = {"kvUsage": "my:usage"}
    assert parse_spec(document).facts().engine.kv_usage_metric == "my:usage"
    assert parse_spec({"model": "m"}).facts().engine.kv_usage_metric == "vllm:kv_cache_usage_perc"


BALANCED = {"name": "day", "cron": "0 8 * * *", "duration": "10h", "ratio": {"mode": "Auto"}}
"""A schedule for a pool of prefill and decode."""
MARKED = {"labels": {"fairlead.dev/pool": "chat"}}
"""The metadata of a template that was copied from a pod."""
WASTEFUL = {"name": "day", "cron": "0 8 * * *", "duration": "10h", "earlyRejection": {"mode": "AfterPrefill"}}
"""A second schedule for a pool of prefill and decode."""


@pytest.mark.parametrize(
    ("document", "field", "remedy"),
    [
        ({}, "spec.model", "it is required"),
        ({"model": 7}, "spec.model", "write text"),
        ({"model": "two words"}, "spec.model", "matches"),
        ({"model": "m\n"}, "spec.model", "matches"),
        ({"model": "m", "replica": 3}, "spec.replica", "remove it; the fields of spec are model, adapters, replicas"),
        ({"model": "m", "replicas": "3"}, "spec.replicas", "whole number"),
        ({"model": "m", "replicas": True}, "spec.replicas", "whole number"),
        ({"model": "m", "replicas": 2.5}, "spec.replicas", "whole number"),
        ({"model": "m", "replicas": float("inf")}, "spec.replicas", "whole number"),
        ({"model": "m", "replicas": -1}, "spec.replicas", "a whole number from 0 to 4096"),
        ({"model": "m", "replicas": 65}, "spec.replicas", "lower replicas or raise maxReplicas"),
        (
            {"model": "m", "replicas": 1, "roles": [{"name": "both", "minReplicas": 2}]},
            "spec.replicas",
            "raise replicas or lower minReplicas",
        ),
        (
            {"model": "m", "roles": [{"name": "both", "minReplicas": 2, "maxReplicas": 1}]},
            "spec.roles[0].minReplicas",
            "minReplicas must not be greater than maxReplicas",
        ),
        ({"model": "m", "roles": []}, "spec.roles", "list of 1 to 2"),
        ({"model": "m", "roles": [{"name": "encode"}]}, "spec.roles[0].name", "one of both, prefill, decode"),
        ({"model": "m", "roles": [{"name": "prefill"}]}, "spec.roles", "exactly both, or exactly prefill and decode"),
        ({"model": "m", "roles": [{"name": "both"}, {"name": "decode"}]}, "spec.roles", "exactly both, or exactly prefill and decode"),
        ({"model": "m", "roles": [{"name": "both", "replicas": 2}]}, "spec.roles[0].replicas", "write spec.replicas for the role both"),
        ({"model": "m", "replicas": 2, "roles": PREFILL_DECODE}, "spec.replicas", "write roles[].replicas for prefill and decode"),
        (
            {"model": "m", "roles": [{"name": "prefill", "replicas": 1, "minReplicas": 2}, {"name": "decode"}]},
            "spec.roles[0].replicas",
            "raise replicas or lower minReplicas",
        ),
        (
            {"model": "m", "roles": [{"name": "prefill"}, {"name": "decode", "replicas": 3, "maxReplicas": 2}]},
            "spec.roles[1].replicas",
            "lower replicas or raise maxReplicas",
        ),
        ({"model": "m", "roles": [{"name": "prefill"}, {"name": "decode", "replicas": 0}]}, "spec.roles[1].replicas", "from 1 to 4096"),
        ({"model": "m", "roles": [{"name": "prefill", "maxReplicas": 0}, {"name": "decode"}]}, "spec.roles[0].maxReplicas", "at least 1"),
        ({"model": "m", "engine": {"type": "trtllm"}}, "spec.engine.type", "one of simulated, vllm, sglang"),
        (
            {"model": "m", "engine": {"type": "sglang"}, "roles": [{**role, "template": TEMPLATE} for role in PREFILL_DECODE]},
            "spec.roles",
            "engine.type sglang takes only the role both, because its handover from prefill to decode is not supported; "
            "leave roles prefill and decode out, or use engine.type vllm",
        ),
        (
            {"model": "m", "engine": {"type": "sglang"}},
            "spec.roles",
            "roles[].template or selector is required unless engine.type is simulated or the role's maxReplicas is 0",
        ),
        (
            {"model": "m", "engine": {"type": "vllm"}},
            "spec.roles",
            "roles[].template or selector is required unless engine.type is simulated or the role's maxReplicas is 0",
        ),
        (
            {"model": "m", "engine": {"type": "vllm", "simulated": {}}, "roles": [{"name": "both", "template": TEMPLATE}]},
            "spec.engine.simulated",
            "remove it",
        ),
        (
            {"model": "m", "roles": [{"name": "both", "template": {"spec": {"containers": [{"name": "engine"}]}}}]},
            "spec.roles[0].template.spec.containers[0].image",
            "it is required",
        ),
        ({"model": "m", "roles": [{"name": "both", "template": {"spec": {}}}]}, "spec.roles[0].template.spec.containers", "it is required"),
        (
            {
                "model": "m",
                "roles": [{"name": "both", "template": {**TEMPLATE, "metadata": {"annotations": {"prometheus.io/port": 8000}}}}],
            },
            "spec.roles[0].template.metadata.annotations.prometheus.io/port",
            "in quotes",
        ),
        (
            {
                "model": "m",
                "roles": [{"name": "both", "nodes": 2, "template": TEMPLATE, "workerTemplate": {**TEMPLATE, "metadata": MARKED}}],
            },
            "spec.roles[0].workerTemplate.metadata.labels",
            "remove them",
        ),
        ({"model": "m", "slo": {"ttft": 5}}, "spec.slo.ttft", "with a unit"),
        ({"model": "m", "slo": {"ttft": "5 s"}}, "spec.slo.ttft", "with a unit"),
        ({"model": "m", "slo": {"ttft": "0s"}}, "spec.slo.ttft", "a duration from 1ms to 1h"),
        ({"model": "m", "slo": {"percentile": 0}}, "spec.slo.percentile", "a number from 1 to 100"),
        ({"model": "m", "slo": {"percentile": float("nan")}}, "spec.slo.percentile", "a number from 1 to 100"),
        ({"model": "m", "slo": "fast"}, "spec.slo", "object with fields"),
        ({"model": "m", "routing": {"policy": "Fastest!"}}, "spec.routing.policy", "a-z0-9"),
        ({"model": "m", "routing": {"parameters": [1]}}, "spec.routing.parameters", "write an object"),
        ({"model": "m", "earlyRejection": {"mode": "load"}}, "spec.earlyRejection.mode", "one of Disabled, Load"),
        ({"model": "m", "earlyRejection": {"mode": "Off"}}, "spec.earlyRejection.mode", "one of Disabled, Load"),
        ({"model": "m", "earlyRejection": {"mode": False}}, "spec.earlyRejection.mode", "one of Disabled, Load"),
        ({"model": "m", "scaling": {"schedules": [BALANCED]}}, "spec.scaling.schedules[0].ratio", "needs the roles prefill and decode"),
        ({"model": "m", "earlyRejection": {"mode": "AfterPrefill"}}, "spec.earlyRejection", "needs the roles prefill and decode"),
        (
            {"model": "m", "scaling": {"schedules": [WASTEFUL]}},
            "spec.scaling.schedules[0].earlyRejection",
            "needs the roles prefill and decode",
        ),
        ({"model": "m", "engine": {"passClientCredentials": "yes"}}, "spec.engine.passClientCredentials", "true or false"),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(document: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_spec(document)
    assert refused.value.field == field
    assert remedy in refused.value.remedy
    assert "\n" not in str(refused.value)
