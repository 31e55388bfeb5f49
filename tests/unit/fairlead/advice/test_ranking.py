"""Findings are ranked by harm, independent of the order in which pools were examined."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fairlead.advice.advising import advise, rank
from fairlead.advice.findings import HarmUnit, Level
from fairlead.advice.situations import PoolSituation, SeenMoves
from fairlead.reports.rejections import RejectionReason
from fairlead.tables import SloFacts
from fairlead_testing.builders.situations import served, well, with_instance


@some.composite
def situations(draw: some.DrawFn) -> PoolSituation:
    pool = well(
        f"default/p{draw(some.integers(0, 10**6))}",
        slo=SloFacts(percentile=draw(some.floats(1, 100))),
        refused=draw(some.dictionaries(some.sampled_from([*RejectionReason]).map(str), some.integers(0, 10_000), max_size=3)),
        failed=draw(some.integers(0, 100)),
        moves=SeenMoves(known=draw(some.integers(0, 100)), net_seconds=draw(some.floats(-1e6, 1e6))),
        live_routers=draw(some.integers(0, 2)),
        unheard_seconds=draw(some.none() | some.floats(0, 1e6)),
    )
    for number in range(4):
        judged = draw(some.integers(0, 1000))
        found = served(judged, draw(some.integers(0, judged)), tokens=draw(some.integers(0, 10**6)), failed=draw(some.integers(0, 50)))
        pool = with_instance(pool, number, served=found, losses=draw(some.integers(0, 3)))
    return pool


@given(some.lists(situations(), max_size=4, unique_by=lambda one: one.pool), some.randoms(use_true_random=False))
def test_the_order_is_by_level_and_harm_and_does_not_depend_on_that_of_the_pools(pools: list[PoolSituation], order: random.Random) -> None:
    found = advise(pools)
    shuffled = list(pools)
    order.shuffle(shuffled)
    assert advise(shuffled) == found
    levels, units = list(Level), list(HarmUnit)
    for before, after in pairwise(found):
        places = [(levels.index(one.level), units.index(one.harm.unit)) for one in (before, after)]
        assert places == sorted(places)
        if places[0] == places[1]:
            assert before.harm.amount >= after.harm.amount


@given(situations())
def test_every_finding_has_a_place_of_its_own_a_sentence_and_some_harm(pool: PoolSituation) -> None:
    found = advise([pool])
    assert len({(one.pool, one.cause, one.subject) for one in found}) == len(found)
    for one in found:
        assert one.sentence.endswith(".")
        assert "nan" not in one.sentence
        assert one.harm.amount >= 0
        assert one.evidence.seconds > 0


def test_a_small_pool_that_breaks_its_objectives_comes_before_a_large_one_that_keeps_them() -> None:
    small = with_instance(well("default/small", instances=1), 0, served=served(10, 0))
    large = well("default/large", refused={RejectionReason.QUEUE_FULL.value: 20})
    found = advise([large, small])
    assert [one.pool for one in found] == ["default/small", "default/large"]
    assert found[0].harm.amount < found[1].harm.amount


@pytest.mark.parametrize("times", [2, 10])
def test_more_harm_of_the_same_kind_comes_first(times: int) -> None:
    less = well("default/less", refused={RejectionReason.QUEUE_FULL.value: 1000})
    more = replace(less, pool="default/more", refused={RejectionReason.QUEUE_FULL.value: 1000 * times})
    assert [one.pool for one in sorted(advise([less, more]), key=rank)] == ["default/more", "default/less"]
