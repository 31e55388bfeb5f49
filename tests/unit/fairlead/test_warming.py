"""New instances get their keys in steps while other instances have full caches."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import RecordState
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, Warming
from fairlead.reconciling.warming import weights
from fairlead.routing.knowledge.rings import key_shares
from fairlead.tables import InstanceEntry
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted

S = InstanceState
START = 1000.0


def warming_pool(role: Role = Role.BOTH, *, seconds: float = 20.0, first: float = 0.2) -> DesiredPool:
    return DesiredPool(roles=(replace(wanted(3, role=role), warming=Warming(seconds=seconds, first_weight=first)),))


NEW = instance("new", S.WARMING, since=START)
SEASONED = (instance("a", since=0.0), instance("b", since=0.0))


@pytest.mark.parametrize(("after", "weight"), [(0, 0.2), (4.9, 0.2), (5, 0.4), (10, 0.6), (15, 0.8), (19.9, 0.8), (-3, 0.2)])
def test_the_weight_rises_in_four_steps(after: float, weight: float) -> None:
    assert weights(warming_pool(), (*SEASONED, NEW), START + after) == {"new": pytest.approx(weight)}


def test_the_full_weight_is_reached_at_the_end_and_then_it_serves() -> None:
    observed, observations = (*SEASONED, NEW), answer(seen("a"), seen("b"), seen("new"))
    assert next_actions(warming_pool(), observed, observations, START + 19) == ()
    assert weights(warming_pool(), observed, START + 20) == {}
    assert next_actions(warming_pool(), observed, observations, START + 20) == (
        RecordState(instance="new", before=S.WARMING, state=S.SERVING, reason="TableAcknowledged"),
    )


def test_instances_that_start_together_have_their_whole_weight_at_once() -> None:
    fresh = (instance("a", since=START - 2), NEW)
    assert weights(warming_pool(), fresh, START + 1) == {}
    assert weights(warming_pool(), (NEW,), START + 1) == {}


def test_a_decoding_instance_has_nothing_to_warm() -> None:
    decoding = tuple(replace(one, role=Role.DECODE) for one in (*SEASONED, NEW))
    assert weights(warming_pool(Role.DECODE), decoding, START) == {}


def test_a_flipped_instance_warms_beside_those_of_its_new_role() -> None:
    prefill = tuple(replace(one, role=Role.PREFILL) for one in SEASONED)
    assert weights(warming_pool(Role.PREFILL), (*prefill, replace(NEW, role=Role.PREFILL)), START) == {"new": pytest.approx(0.2)}


def test_no_duration_means_no_warming() -> None:
    assert weights(warming_pool(seconds=0.0), (*SEASONED, NEW), START) == {}
    assert weights(warming_pool(seconds=0.0), (*SEASONED, NEW), START - 500) == {}, "nor after the clock went back"


def test_the_share_of_keys_follows_the_weight() -> None:
    shares = []
    for weight in (0.25, 0.4375, 0.625, 0.8125, 1.0):
        old = [InstanceEntry(id=f"old{number}", address="x:1", state=S.SERVING) for number in range(3)]
        new = InstanceEntry(id="new", address="x:1", state=S.WARMING, weight=weight)
        shares.append(key_shares([*old, new])["new"])
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.25 / 3.25, abs=0.03)
    assert shares[-1] == pytest.approx(0.25, abs=0.04)


def test_an_engine_that_was_not_restarted_since_it_had_its_full_weight_has_it_again_at_once() -> None:
    back = replace(NEW, restarts=2, warmed_restarts=2)
    assert weights(warming_pool(), (*SEASONED, back), START) == {}
    for restarted in (replace(back, restarts=3), replace(back, warmed_restarts=None)):
        assert weights(warming_pool(), (*SEASONED, restarted), START) == {"new": pytest.approx(0.2)}
