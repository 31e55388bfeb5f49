"""The content of a routing table."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport
from fairlead.pools import parse_spec
from fairlead.table_content import MirroredFacts, table_of
from fairlead.tables import PoolKey

POOL = PoolKey(namespace="n", name="p")


def report(name: str, state: InstanceState, address: str | None = "127.0.0.1:8000", weight: float = 1.0) -> InstanceReport:
    return InstanceReport(id=name, pod_uid="u", address=address, role=Role.BOTH, state=state, reason="r", weight=weight, created_at=0.0)


def test_a_table_holds_reachable_instances_and_anchors_only_for_accepting_ones() -> None:
    facts = parse_spec({"model": "m", "routing": {"anchorsPerInstance": 7}}).facts()
    states = [report(state.value, state) for state in InstanceState] + [report("bare", InstanceState.SERVING, None)]
    table = table_of(POOL, "u", 1, facts, states)
    assert {entry.id: entry.anchors for entry in table.instances} == {"Warming": 7, "Serving": 7, "Cordoned": 0, "Draining": 0}


def test_routers_reckon_with_the_engines_that_take_requests_and_know_each_that_is_another() -> None:
    declared = parse_spec({"model": "m", "engine": {"prefillTokensPerSecond": 1000, "kvCacheTokens": 500}}).facts()
    former = parse_spec({"model": "m", "engine": {"prefillTokensPerSecond": 3000, "kvCacheTokens": 100}}).facts().engine.of_instance()
    old = replace(report("old", InstanceState.SERVING), engine=former)
    table = table_of(POOL, "u", 1, declared, [old, report("new", InstanceState.SERVING), report("gone", InstanceState.LOST)])
    assert (table.engine.prefill_tokens_per_second, table.engine.kv_cache_tokens) == (2000, 300)
    assert {entry.id: entry.engine for entry in table.instances} == {"old": former, "new": None}
    drained = table_of(POOL, "u", 1, declared, [replace(old, state=InstanceState.DRAINING), report("new", InstanceState.SERVING)])
    assert drained.engine == declared.engine


@pytest.mark.parametrize("spec", [{"model": "m"}, {"model": "m", "slo": {"percentile": 99}, "routing": {"policy": "ear"}}])
def test_facts_are_written_the_same_after_they_were_stored(spec: dict[str, Any]) -> None:
    """A table has changed if its stored text differs: 90 and 90.0 would be two tables."""
    facts = MirroredFacts.of(parse_spec(spec))
    stored = msgspec.json.encode(facts)
    assert msgspec.json.encode(msgspec.json.decode(stored, type=MirroredFacts)) == stored
