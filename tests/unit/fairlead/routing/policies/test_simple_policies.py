"""Round robin, least loaded and cache affinity: the baselines for all other policies."""

from fairlead.instances import InstanceState
from fairlead.routing.choosing.key_parameters import KeyParameters
from fairlead.routing.contracts.decisions import Decision, DecisionReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.policies.cache_affinity import CacheAffinity
from fairlead.routing.policies.least_loaded import LeastLoaded
from fairlead.routing.policies.round_robin import RoundRobin
from fairlead_testing.builders.routing import ScriptedView, entries, entry, load_of, request, table, view_over


def test_round_robin_takes_every_instance_in_turn() -> None:
    view = view_over([load_of(name) for name in ("a", "b", "c")])
    policy = RoundRobin(0)
    decisions = [policy.choose(request(f"r{number}"), view, 0.0) for number in range(6)]
    assert [one.instance for one in decisions] == ["a", "b", "c", "a", "b", "c"]
    assert (decisions[0].fallbacks, decisions[0].reason) == (("b", "c"), DecisionReason.ROUND_ROBIN)


def test_round_robin_skips_who_does_not_accept_and_goes_on_where_it_was() -> None:
    view = view_over([load_of(name) for name in ("a", "b", "c", "d")])
    policy = RoundRobin(0)
    assert policy.choose(request("r1"), view, 0.0).instance == "a"
    view.loads["b"] = InstanceLoad(entry=entry("b", InstanceState.DRAINING))
    view.loads["c"].broken_until = 9.0
    assert policy.choose(request("r2"), view, 1.0).instance == "d"
    assert policy.choose(request("r3"), view, 1.0).instance == "a"
    view.now = 9.0
    assert policy.choose(request("r4"), view, 9.0).instance == "c"


def test_least_loaded_counts_pending_prefill_tokens_and_no_hits() -> None:
    view = view_over([load_of("a", pending=500), load_of("b", pending=400, requests=50), load_of("c", pending=600)], {"c": 9_000})
    decision = LeastLoaded().choose(request("r", 10_000), view, 0.0)
    assert (decision.instance, decision.fallbacks, decision.reason) == ("b", ("a", "c"), DecisionReason.LEAST_LOADED)


def test_least_loaded_breaks_ties_by_running_decodes_then_by_who_waited_longest_for_a_turn() -> None:
    view = view_over([load_of("a", decode_tokens=9), load_of("b"), load_of("c")])
    policy = LeastLoaded()
    assert [policy.choose(request("r"), view, 0.0).instance for _ in range(4)] == ["b", "c", "b", "c"]


def affinity(asked: RoutingRequest, pending: int = 0, broken: tuple[str, ...] = ()) -> Decision:
    """Return the choice of cache affinity among eight instances, of which the owner of the prefix has this much to
    do.
    """
    pool = table(8, policy="cache-affinity")
    policy = CacheAffinity(KeyParameters())
    policy.table_changed(pool)
    (owner,) = policy.placements(asked)
    loads = {one.id: InstanceLoad(entry=one) for one in pool.instances}
    loads[owner].pending_prefill_tokens = pending
    for name in broken:
        loads[name].broken_until = 9.0
    return policy.choose(asked, ScriptedView(pool, loads), 0.0)


def test_cache_affinity_sends_a_prefix_to_its_owner_on_one_ring_whatever_its_load() -> None:
    asked = request("r", 2_048, blocks=(7, 8))
    owner = HashRing.of(entries(8)).owner((1, 7))
    assert affinity(asked).instance == affinity(asked, pending=10**6).instance == owner
    assert affinity(request("other", 4_096, blocks=(7, 9, 10))).instance == owner, "the key is the shared first block"


def test_cache_affinity_goes_on_clockwise_while_the_owner_is_broken() -> None:
    asked = request("r", 2_048, blocks=(7, 8))
    first, second, third = list(HashRing.of(entries(8)).walk((1, 7)))[:3]
    assert affinity(asked).fallbacks[:2] == (second, third)
    decision = affinity(asked, broken=(first, second))
    assert (decision.instance, decision.reason) == (third, DecisionReason.FALLBACK)
