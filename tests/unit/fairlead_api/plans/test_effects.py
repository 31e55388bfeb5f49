"""The expected effect of a change on instances, sessions, keys, first tokens and refusals."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.latency_cells import cell_of
from fairlead.pools import TableFacts, parse_spec
from fairlead.routing.knowledge.rings import HashRing
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_api.infra.errors import NotFound
from fairlead_api.plans.evidence import InstanceUse, PoolUse, Replay
from fairlead_api.plans.kinds.cordon import cordon_effect, uncordon_effect
from fairlead_api.plans.kinds.early_rejection import rejection_effect
from fairlead_api.plans.kinds.migrations import migrations_effect
from fairlead_api.plans.kinds.policy import policy_effect
from fairlead_api.plans.kinds.ring import ring_effect
from fairlead_api.plans.kinds.scale import scale_effect
from fairlead_api.plans.kinds.scaling import scaling_effect
from fairlead_api.plans.kinds.slo import slo_effect
from fairlead_api.plans.kinds.weight import weight_effect
from fairlead_api.plans.questions import limit_seconds


def facts(**routing: Any) -> TableFacts:
    document = {
        "model": "m",
        "slo": {"ttft": "1s"},
        "engine": {"prefillTokensPerSecond": 5000},
        "routing": {"policy": "dualmap", **routing},
    }
    return parse_spec(document).facts()


def a_use(*uses: tuple[str, str, int, int], rps: float | None = None) -> PoolUse:
    return PoolUse(
        facts=facts(),
        instances=[
            InstanceUse(id=name, state=InstanceState(state), bound_sessions=bound, cache_tokens=cached, in_flight=1)
            for name, state, bound, cached in uses
        ],
        attainment=1.0,
        requests_per_second=rps,
        miss_tokens_per_second=None if rps is None else rps * 1000,
    )


def test_victims_are_the_cheapest_and_heaviness_counts_their_sessions() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 1, 900), ("c", "Serving", 30, 10), ("d", "Starting", 0, 0))
    assert scale_effect(pool, Role.BOTH, 4, 2, BUILT_IN).victims == ["d", "c"]
    assert scale_effect(pool, Role.BOTH, 4, 3, BUILT_IN).victims == ["d"]
    assert (
        scale_effect(pool, Role.BOTH, 4, 3, BUILT_IN).heavy,
        scale_effect(pool, Role.BOTH, 4, 2, BUILT_IN).heavy,
        scale_effect(pool, Role.BOTH, 4, 0, BUILT_IN).heavy,
    ) == (False, True, True)
    assert scale_effect(pool, Role.BOTH, 4, 6, BUILT_IN).instances_added == 2
    assert scale_effect(pool, Role.BOTH, 4, 6, BUILT_IN).predicted_attainment is None
    assert (
        scale_effect(pool, Role.BOTH, 4, 2, BUILT_IN).requests_in_flight,
        scale_effect(pool, Role.BOTH, 4, 6, BUILT_IN).requests_in_flight,
    ) == (2, 0)


def test_new_instances_take_keys_and_the_sessions_that_every_request_places_by_them() -> None:
    pool = a_use(("a", "Serving", 100, 5000))
    effect = scale_effect(pool, Role.BOTH, 1, 4, BUILT_IN)
    assert 0.6 < effect.key_share_moved < 0.9
    assert (effect.sessions_moved, effect.heavy) == (round(100 * effect.key_share_moved), False)
    assert effect.warnings == [f"About {effect.sessions_moved} of 100 sessions follow their keys to new instances, and lose their cache."]
    bound = scale_effect(replace(pool, facts=facts(policy="fairlead")), Role.BOTH, 1, 4, BUILT_IN)
    assert (bound.key_share_moved, bound.sessions_moved, bound.warnings) == (0.0, 0, [])


def test_a_plan_of_very_many_instances_hashes_no_ring_of_them() -> None:
    """Hashing 4,096 instances takes a minute in which the process answers nobody. The keys that they take can be
    computed without it.
    """
    pool = a_use(("a", "Serving", 100, 5000), ("b", "Draining", 40, 900))
    with pytest.MonkeyPatch.context() as patched:
        for name in ("of", "of_anchors"):
            patched.setattr(HashRing, name, lambda *_: pytest.fail("a ring was hashed"))
        effect = scale_effect(pool, Role.BOTH, 1, 4096, BUILT_IN)
    assert effect.key_share_moved == pytest.approx(4095 / 4096)
    assert (effect.sessions_moved, effect.cache_tokens_lost) == (100, round(5000 * 4095 / 4096))
    assert scale_effect(a_use(), Role.BOTH, 0, 3, BUILT_IN).key_share_moved == 0.0, "nobody had the keys"


def test_sessions_move_while_somebody_is_left_to_take_them_and_are_lost_otherwise() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    half, none = scale_effect(pool, Role.BOTH, 2, 1, BUILT_IN), scale_effect(pool, Role.BOTH, 2, 0, BUILT_IN)
    assert (half.sessions_moved, half.sessions_lost) == (4, 0)
    assert (none.sessions_moved, none.sessions_lost) == (0, 14)
    assert any("14 of 14 sessions are lost" in warning for warning in none.warnings)


def test_what_requests_would_get_is_left_to_the_simulation() -> None:
    effect = scale_effect(a_use(("a", "Serving", 1, 1), rps=12), Role.BOTH, 4, 3, BUILT_IN)
    assert (effect.predicted_attainment, effect.prediction_basis) == (None, None)


def test_too_few_instances_are_warned_of_by_the_speed_that_was_seen_and_never_by_a_declared_one() -> None:
    declared = a_use(("a", "Serving", 1, 1), rps=12)
    assert declared.miss_tokens_per_second is not None
    seen = replace(declared, prefill_tokens_per_second=declared.miss_tokens_per_second / 2.5)
    assert "faster than" in scale_effect(seen, Role.BOTH, 4, 2, BUILT_IN).warnings[0]
    assert not any("faster than" in one for one in scale_effect(seen, Role.BOTH, 4, 3, BUILT_IN).warnings)
    assert not any("faster than" in one for one in scale_effect(declared, Role.BOTH, 4, 1, BUILT_IN).warnings)


def test_a_policy_that_keeps_homes_moves_nobody_and_one_that_does_not_moves_all() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    kept = policy_effect(pool, facts(policy="fairlead"), BUILT_IN)
    spread = policy_effect(pool, facts(policy="round-robin"), BUILT_IN)
    hashed = policy_effect(pool, facts(policy="cache-affinity"), BUILT_IN)
    assert (kept.sessions_moved, kept.heavy, "14 sessions keep their homes" in kept.notes[0]) == (0, False, True)
    for effect in (spread, hashed):
        assert (effect.sessions_moved, effect.cache_tokens_lost, effect.heavy) == (14, 1400, True)
    assert policy_effect(pool, facts(parameters={"candidates": 3}), BUILT_IN).sessions_moved == 0


def test_anchors_move_keys_and_only_sessions_of_a_policy_that_follows_them() -> None:
    pool = a_use(*((name, "Serving", 100, 1000) for name in "abcd"))
    followed = ring_effect(pool, facts(anchorsPerInstance=40), BUILT_IN)
    assert 0 < followed.key_share_moved < 0.75
    assert followed.sessions_moved == pytest.approx(400 * followed.key_share_moved, rel=0.2)
    assert followed.heavy
    free = replace(pool, facts=facts(policy="fairlead"))
    assert ring_effect(free, facts(policy="fairlead", anchorsPerInstance=40), BUILT_IN).sessions_moved == 0
    assert ring_effect(pool, facts(), BUILT_IN).key_share_moved == 0


def test_another_weight_moves_the_share_of_the_keys_that_it_stands_for() -> None:
    pool = a_use(*((name, "Serving", 100, 1000) for name in "abcd"))
    half, double = (weight_effect(pool, "a", 1.0, weight, BUILT_IN, stays=False) for weight in (0.5, 2.0))
    assert half.key_share_moved == pytest.approx(1 / 4 - 0.5 / 3.5, abs=0.06)
    assert double.key_share_moved == pytest.approx(2 / 5 - 1 / 4, abs=0.06)
    assert half.sessions_moved == pytest.approx(400 * half.key_share_moved, rel=0.2)
    assert (double.heavy, any("weight in the pool's template" in note for note in half.notes)) == (True, True)
    assert weight_effect(pool, "a", 1.0, 1.0, BUILT_IN, stays=True).key_share_moved == 0
    cordoned = a_use(("a", "Cordoned", 1, 1), ("b", "Serving", 1, 1))
    assert "has no keys now" in weight_effect(cordoned, "a", 1.0, 2.0, BUILT_IN, stays=True).notes[0]
    split = replace(pool, instances=[replace(one, role=Role.DECODE) for one in pool.instances])
    with pytest.raises(InvalidInput, match="a decode instance has no keys"):
        weight_effect(split, "a", 1.0, 2.0, BUILT_IN, stays=True)


def test_paused_migrations_move_nothing_and_say_what_they_cost() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    paused = migrations_effect(pool, facts(migrations="Paused"), BUILT_IN)
    assert (paused.sessions_moved, paused.heavy) == (0, False)
    assert "14 sessions stay in place" in paused.notes[0]
    assert paused.warnings == ["Nothing relieves an instance that becomes hot, until migrations are resumed."]
    assert "binds no sessions" in migrations_effect(pool, facts(policy="round-robin", migrations="Paused"), BUILT_IN).notes[0]
    assert migrations_effect(pool, facts(), BUILT_IN).warnings == []


def test_targets_are_held_against_recorded_latencies() -> None:
    pool = a_use(("a", "Serving", 10, 500))
    cells = {"default": {cell_of(0.4, 0.02): 744, cell_of(0.6, 0.02): 356, cell_of(0.4, 0.3): 100}}
    strict = slo_effect(pool, SloFacts(ttft_seconds=0.5), cells, None)
    assert strict.predicted_attainment == 0.62
    assert strict.prediction_basis == "from 1,200 requests of the past day, served as they were"
    assert (strict.warnings, strict.notes) == (["The goal of 90 % in time would have been missed: 62.0 % would have been in time."], [])
    assert slo_effect(pool, SloFacts(), {}, None).predicted_attainment is None


def test_a_target_between_two_steps_is_told_as_such_and_each_class_apart() -> None:
    cells = {"high": {cell_of(0.4, None): 90}, "low": {cell_of(0.6, None): 10}}
    effect = slo_effect(a_use(("a", "Serving", 10, 500)), SloFacts(ttft_seconds=0.62), cells, None)
    assert (effect.predicted_attainment, effect.warnings) == (0.9, [])
    assert "90.0 % to 100.0 % would have been in time" in effect.notes[0]
    assert effect.notes[1] == "By priority class: high 100.0 % of 90, low 0.0 % of 10."


def test_refusals_are_estimated_from_predicted_first_tokens() -> None:
    some = rejection_effect(EarlyRejectionFacts(mode="Predicted"), Replay(share=0.05, requests=400, seconds=1800))
    assert some.predicted_refusals == 0.05
    assert (len(some.warnings), len(some.notes)) == (1, 1)
    assert rejection_effect(EarlyRejectionFacts(mode="Disabled"), None).predicted_refusals is None
    spec = parse_spec({"model": "m", "slo": {"ttft": "2s"}, "earlyRejection": {"mode": "Load", "headroom": 1.5}})
    assert limit_seconds(spec.facts()) == 3.0
    assert limit_seconds(facts()) is None


def test_a_cordoned_instance_gives_its_keys_and_sessions_away_and_is_not_replaced() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900), ("c", "Draining", 9, 9))
    effect = cordon_effect(pool, "b", BUILT_IN)
    assert (effect.sessions_moved, effect.cache_tokens_lost, effect.requests_in_flight) == (4, 900, 1)
    assert 0.3 < effect.key_share_moved < 0.7
    assert "1 instance of role both goes on" in effect.notes[0]
    assert cordon_effect(pool, "c", BUILT_IN).sessions_moved == 0


def test_cordoning_the_last_instance_loses_its_sessions_and_is_heavy() -> None:
    effect = cordon_effect(a_use(("a", "Serving", 10, 500), ("b", "Cordoned", 4, 900)), "a", BUILT_IN)
    assert (effect.sessions_lost, effect.sessions_moved, effect.heavy) == (10, 0, True)
    assert "every new request will be refused" in effect.warnings[0]


def test_an_uncordoned_instance_takes_its_keys_back_with_sessions_that_follow_them() -> None:
    pool = a_use(("a", "Serving", 100, 500), ("b", "Cordoned", 0, 0))
    assert 30 < uncordon_effect(pool, "b", BUILT_IN).sessions_moved < 70
    assert uncordon_effect(replace(pool, facts=facts(policy="fairlead")), "b", BUILT_IN).sessions_moved == 0
    with pytest.raises(NotFound):
        uncordon_effect(pool, "z", BUILT_IN)


@pytest.mark.parametrize(
    ("scaling", "least", "told"),
    [
        ({"mode": "SLO", "zero": {"idleAfter": "20m"}}, 0, "Its last instances are removed after 20m without a request."),
        ({"mode": "SLO"}, 1, "Its last instances stay without requests: roles have a minReplicas above 0."),
        ({"mode": "Advise"}, 0, "Its instances stay without requests: only mode SLO removes the last ones."),
        ({"zero": {"heldRequests": 1}}, 0, "While its first instance starts, a router holds up to 1 request, each for up to 2m."),
    ],
)
def test_a_plan_of_scaling_says_what_becomes_of_an_idle_pool(scaling: dict[str, Any], least: int, told: str) -> None:
    spec = parse_spec({"model": "m", "roles": [{"name": "both", "minReplicas": least}], "scaling": scaling})
    effect = scaling_effect(spec)
    assert told in effect.notes
    assert effect.warnings == []


def test_holding_no_request_is_a_warning() -> None:
    effect = scaling_effect(parse_spec({"model": "m", "scaling": {"zero": {"holdFor": "0"}}}))
    assert "each request gets a 503" in effect.warnings[0]
    assert not any("holds up to" in note for note in effect.notes)


def test_a_role_is_scaled_by_itself_and_decoding_promises_no_first_token() -> None:
    uses = [
        InstanceUse(id=name, role=role, state=InstanceState.SERVING, bound_sessions=bound, cache_tokens=1, in_flight=0)
        for name, role, bound in (("p1", Role.PREFILL, 5), ("p2", Role.PREFILL, 6), ("d1", Role.DECODE, 0), ("d2", Role.DECODE, 0))
    ]
    pool = replace(a_use(rps=12), instances=uses)
    assert scale_effect(pool, Role.PREFILL, 2, 1, BUILT_IN).victims == ["p1"]
    assert scale_effect(pool, Role.DECODE, 2, 1, BUILT_IN).victims == ["d1"]
