"""The keys that a change moves on the ring, compared with looking at every position of a small ring."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.routing.knowledge.ring_changes import expected_sessions, imbalance, moved_shares, moves_between
from fairlead.routing.knowledge.rings import HashRing, key_shares
from fairlead_testing.builders.routing import entries, entry

SIZE = 97
POINTS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from("ABCDE")), max_size=12)


@given(POINTS, POINTS)
def test_the_moved_arcs_are_what_a_look_at_every_position_finds(old: list[tuple[int, str]], new: list[tuple[int, str]]) -> None:
    before, after = HashRing(old, size=SIZE), HashRing(new, size=SIZE)
    counted = Counter(
        (was, now)
        for position in range(SIZE)
        if (was := before.owner_at(position)) != (now := after.owner_at(position)) and was is not None and now is not None
    )
    assert moves_between(before, after) == pytest.approx({owners: amount / SIZE for owners, amount in counted.items()})


@given(st.integers(1, 6), st.integers(0, 6), st.floats(0.1, 3.0))
def test_what_an_instance_gains_and_loses_is_the_difference_of_its_shares(count: int, other: int, weight: float) -> None:
    before = entries(count)
    after = [replace(before[0], weight=weight), *entries(max(1, other))[1:]]
    moves, old, new = moved_shares(before, after), key_shares(before), key_shares(after)
    for name in {*old, *new}:
        gained = sum(share for (_, target), share in moves.items() if target == name)
        lost = sum(share for (source, _), share in moves.items() if source == name)
        assert gained - lost == pytest.approx(new.get(name, 0.0) - old.get(name, 0.0))


def test_a_new_instance_takes_its_share_and_nothing_else_moves() -> None:
    moves, share = moved_shares(entries(4), entries(5)), key_shares(entries(5))["i04"]
    assert {target for _, target in moves} == {"i04"}
    assert sum(moves.values()) == pytest.approx(share)


def test_all_sessions_of_an_instance_that_leaves_are_expected_to_move_and_a_part_where_one_comes() -> None:
    four, bound = entries(4), {"i00": 40, "i01": 10, "i02": 0}
    gone = [replace(one, state=InstanceState.DRAINING) if one.id == "i00" else one for one in four]
    assert expected_sessions(moved_shares(four, gone), key_shares(four), bound) == pytest.approx(40)
    some = expected_sessions(moved_shares(four, entries(5)), key_shares(four), bound)
    assert 50 / 5 / 2 < some < 50 / 5 * 2


def test_without_anybody_before_or_after_nothing_changes_owner() -> None:
    assert moved_shares([], entries(3)) == moved_shares(entries(3), []) == {}


def test_imbalance_compares_with_what_the_anchors_stand_for() -> None:
    half = [entry("a"), entry("b", weight=0.5)]
    assert imbalance({"a": 2 / 3, "b": 1 / 3}, half) == pytest.approx(0.0)
    assert imbalance({"a": 0.5, "b": 0.5}, half) == pytest.approx(0.5)
    assert imbalance({}, []) is None
