"""What a change would do: to instances, sessions, keys, first tokens and refusals."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead.pools import TableFacts, parse_spec
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.tables import EarlyRejectionFacts, SloFacts
from fairlead_api.services.plans.evidence import InstanceUse, PoolUse, Replay
from fairlead_api.services.plans.routing_effects import policy_effect, ring_effect
from fairlead_api.services.plans.scaling_effects import scale_effect
from fairlead_api.services.plans.target_effects import limit_seconds, rejection_effect, slo_effect


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
    assert scale_effect(pool, 4, 2).victims == ["d", "c"]
    assert scale_effect(pool, 4, 3).victims == ["d"]
    assert (scale_effect(pool, 4, 3).heavy, scale_effect(pool, 4, 2).heavy, scale_effect(pool, 4, 0).heavy) == (False, True, True)
    assert scale_effect(pool, 4, 6).instances_added == 2
    assert scale_effect(pool, 4, 6).predicted_attainment is None
    assert (scale_effect(pool, 4, 2).requests_in_flight, scale_effect(pool, 4, 6).requests_in_flight) == (2, 0)


def test_sessions_move_while_somebody_is_left_to_take_them_and_are_lost_otherwise() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    half, none = scale_effect(pool, 2, 1), scale_effect(pool, 2, 0)
    assert (half.sessions_moved, half.sessions_lost) == (4, 0)
    assert (none.sessions_moved, none.sessions_lost) == (0, 14)
    assert any("14 of 14 sessions are lost" in warning for warning in none.warnings)


def test_a_prediction_says_what_it_is_made_from_and_without_traffic_there_is_none() -> None:
    busy, quiet = scale_effect(a_use(("a", "Serving", 1, 1), rps=12), 4, 3), scale_effect(a_use(("a", "Serving", 1, 1)), 4, 3)
    assert busy.prediction_basis is not None and "12.0 requests/s" in busy.prediction_basis
    assert (quiet.predicted_attainment, quiet.prediction_basis) == (None, None)


def test_more_instances_never_predict_worse() -> None:
    pool = a_use(("a", "Serving", 1, 1), rps=12)
    found = [scale_effect(pool, 4, after).predicted_attainment or 0.0 for after in range(8)]
    assert found == sorted(found)
    assert found[0] == found[2] == 0.0
    assert found[7] > 0.9
    assert "faster than" in scale_effect(pool, 4, 2).warnings[0]


def test_a_policy_that_keeps_homes_moves_nobody_and_one_that_does_not_moves_all() -> None:
    pool = a_use(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    kept = policy_effect(pool, facts(policy="fairlead"), BUILT_IN)
    spread = policy_effect(pool, facts(policy="round-robin"), BUILT_IN)
    hashed = policy_effect(pool, facts(policy="cache-affinity"), BUILT_IN)
    assert (kept.sessions_moved, kept.heavy, "14 sessions keep their homes" in kept.warnings[0]) == (0, False, True)
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


def test_targets_are_held_against_recorded_first_tokens() -> None:
    pool = a_use(("a", "Serving", 10, 500))
    strict = slo_effect(pool, SloFacts(ttft_seconds=0.5), Replay(share=0.62, requests=1200, seconds=1800), None)
    assert strict.predicted_attainment == 0.62
    assert strict.prediction_basis == "from 1,200 first tokens of the last 30 minutes, served as they were"
    assert "62.0% were" in strict.warnings[0]
    assert slo_effect(pool, SloFacts(), None, None).predicted_attainment is None


def test_refusals_are_estimated_from_predicted_first_tokens() -> None:
    some = rejection_effect(EarlyRejectionFacts(mode="Predicted"), Replay(share=0.05, requests=400, seconds=1800))
    assert some.predicted_refusals == 0.05
    assert len(some.warnings) == 2
    assert rejection_effect(EarlyRejectionFacts(mode="Disabled"), None).predicted_refusals is None
    spec = parse_spec({"model": "m", "slo": {"ttft": "2s"}, "earlyRejection": {"mode": "Load", "headroom": 1.5}})
    assert limit_seconds(spec.facts()) == 3.0
    assert limit_seconds(facts()) is None
