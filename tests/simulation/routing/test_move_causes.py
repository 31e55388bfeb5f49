"""Every move of every policy has its own cause, and none is made for less than the least gain."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reports.bindings import GAINING, BindingReason
from fairlead.reports.moves import Move
from fairlead.routing.contracts.schedulers import SchedulerRecords
from fairlead.routing.explanations.explaining_moves import TRIGGERS
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import PoolKey, RoutingFacts
from fairlead_testing.builders.routing import entry, table
from fairlead_testing.examples import examples
from fairlead_testing.worlds.virtual_pool import VirtualPool, conversations

NONE: Mapping[str, Any] = MappingProxyType({})
SESSIONS = {
    "plugins": [{"type": "queue-scorer"}, {"type": "session-affinity-scorer", "parameters": {"strategy": "session_id"}}],
    "schedulingProfiles": [
        {"name": "default", "plugins": [{"pluginRef": "queue-scorer", "weight": 4}, {"pluginRef": "session-affinity-scorer"}]}
    ],
}
"""The policy's file, which routes by homes and leaves them for short queues."""

VARIANTS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *((name, NONE) for name in BUILT_IN.names if name != "endpoint-picker"),
    ("endpoint-picker", {"config": {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", **SESSIONS}}),
    ("dualmap", {"preset": "dualmap-paper"}),
    ("dualmap", {"preset": "dualmap-code"}),
    ("dualmap", {"candidates": 3}),
    ("dualmap", {"slo_fraction": 0.3}),
    ("ear", {"hot_tokens": 4_000, "cool_target": False, "cooldown_seconds": 1.0}),
    ("fairlead", {"least_gain_seconds": 0.0, "most_affinity": 1.0}),
)


def records(policy: str, parameters: Mapping[str, Any], seed: int, rate: float, queue_limit: int = 1024) -> SchedulerRecords:
    """Return the reports of a pool in which three of eight instances drain and four others start, under this load."""
    pool = table(8, policy=policy, parameters={**parameters, "queue_limit": queue_limit}, kv_cache_tokens=150_000)
    draining = tuple(
        replace(one, state=InstanceState.DRAINING, anchors=0) if index < 3 else one for index, one in enumerate(pool.instances)
    )
    grown = (*pool.instances[3:], *(entry(f"new{number}") for number in range(4)))
    tables = [(20.0, replace(pool, version=2, instances=draining)), (40.0, replace(pool, version=3, instances=grown))]
    scheduler = PoolScheduler(pool, "router-0", seed, sample_rate=0.05)
    VirtualPool(scheduler).run(conversations(500, rate, seed), tables)
    return scheduler.take_records(1e9, final=True)


def wrong_with(move: Move[PoolKey, float], slo_seconds: float) -> list[str]:
    """Return the contradictions to the cause of a move, by its own numbers and by the target."""
    found = cause_contradictions(move)
    stay = move.predicted_source_ttft_seconds
    if move.trigger is BindingReason.SLO and (stay is None or stay < slo_seconds):
        found.append(f"slo, but staying was predicted to take {stay} s")
    if move.trigger is BindingReason.COLD or move.trigger not in TRIGGERS:
        found.append("no cause at all")
    return [f"{move.id}: {one}" for one in found]


@examples(3)
@given(seed=st.integers(0, 10**6), rate=st.sampled_from([6.0, 12.0, 20.0]), queue_limit=st.sampled_from([4, 1024]))
@pytest.mark.parametrize(("policy", "parameters"), VARIANTS)
def test_every_move_has_the_cause_that_its_numbers_show(
    policy: str, parameters: Mapping[str, Any], seed: int, rate: float, queue_limit: int
) -> None:
    found = records(policy, parameters, seed, rate, queue_limit)
    assert [one for move in (*found.migrations, *found.reroutes) for one in wrong_with(move, 5.0)] == []


@examples(3)
@given(seed=st.integers(0, 10**6), rate=st.sampled_from([6.0, 14.0]), least=st.sampled_from([0.0, 0.05, 0.5]))
@pytest.mark.parametrize("policy", [name for name in BUILT_IN.names if "least_gain_seconds" in BUILT_IN.parameters(name)])
def test_nobody_leaves_a_home_that_could_take_the_request_for_less_than_the_least_gain(
    policy: str, seed: int, rate: float, least: float
) -> None:
    given_file = dict(VARIANTS)[policy] if policy == "endpoint-picker" else {}
    found = records(policy, {**given_file, "least_gain_seconds": least}, seed, rate)
    for move in found.migrations:
        if move.trigger in GAINING:
            assert move.benefit_seconds is not None
            assert move.benefit_seconds >= least
            assert move.least_gain_seconds == least


def test_every_policy_that_moves_homes_has_a_least_gain() -> None:
    files = dict(VARIANTS)["endpoint-picker"]
    for name in BUILT_IN.names:
        facts = RoutingFacts(policy=name, parameters=dict(files) if name == "endpoint-picker" else {})
        moves = BUILT_IN.keeps_homes(facts) and name != "sticky"  # which leaves none that takes requests
        assert ("least_gain_seconds" in BUILT_IN.parameters(name)) == moves, name


@pytest.mark.parametrize(("policy", "trigger"), [("dualmap", "prefix-equal"), ("fairlead", "prefix-outweighed"), ("ear", "hot-migration")])
def test_the_causes_that_a_policy_moves_by_are_found_in_its_record(policy: str, trigger: str) -> None:
    parameters = {"hot_tokens": 4_000} if policy == "ear" else {}
    assert any(move.trigger == trigger for move in records(policy, parameters, 1, 14.0).migrations)
