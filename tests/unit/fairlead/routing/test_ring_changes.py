"""The keys that move when instances are added or removed: in each pair only the changed instance is replaced, even if
both rings name the same instance.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.routing.knowledge.rings import CandidateRings, DualRing, HashRing, Key
from fairlead_testing.builders.routing import entries, entry
from fairlead_testing.examples import examples

FIRST = [(100, "A"), (400, "B"), (700, "C")]
KEYS: list[Key] = [(1, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(600)]


def colliding(position: int = 150, other: int = 50) -> tuple[DualRing, DualRing, int, int]:
    """Return the rings of A, B and C before and after D is added, and a key for which both rings name B in both
    cases.
    """
    second = [(200, "B"), (500, "C"), (800, "A")]
    before = DualRing(HashRing(FIRST, size=1000), HashRing(second, size=1000))
    after = DualRing(HashRing([*FIRST, (900, "D")], size=1000), HashRing([*second, (950, "D")], size=1000))
    return before, after, position, other


def test_a_colliding_pair_is_completed_clockwise_and_keeps_when_an_instance_comes_elsewhere() -> None:
    before, after, position, other = colliding()
    assert before.pair_at(position, other) == ("B", "C")
    assert after.pair_at(position, other) == ("B", "C")


def test_a_colliding_pair_takes_the_new_instance_only_where_it_comes_between() -> None:
    before, _, position, other = colliding()
    between = DualRing(HashRing(FIRST, size=1000), HashRing([(200, "B"), (300, "D"), (500, "C"), (800, "A")], size=1000))
    assert before.pair_at(position, other) == ("B", "C")
    assert between.pair_at(position, other) == ("B", "D")


def moved_members(before: CandidateRings, after: CandidateRings, concerned: str) -> list[Key]:
    """Return the keys in whose pair an instance other than `concerned` was added or removed."""
    found: list[Key] = []
    for key in KEYS:
        old, new = set(before.candidates(key)), set(after.candidates(key))
        left, came = old - new, new - old
        if len(left) > 1 or len(came) > 1 or (left and concerned not in left | came):
            found.append(key)
    return found


@examples(25)
@given(st.integers(3, 9), st.data())
def test_a_coming_or_leaving_instance_changes_one_member_of_a_pair_at_most(count: int, data: st.DataObject) -> None:
    concerned = data.draw(st.integers(0, count - 1))
    everyone = entries(count)
    without = [replace(one, state=InstanceState.DRAINING) if index == concerned else one for index, one in enumerate(everyone)]
    full, lesser = CandidateRings.of(everyone), CandidateRings.of(without)
    name = everyone[concerned].id
    assert moved_members(full, lesser, name) == []
    assert moved_members(lesser, full, name) == []
    share = sum(set(full.candidates(key)) != set(lesser.candidates(key)) for key in KEYS) / len(KEYS)
    assert share < 2 * 2 / count, "a pair has two members of n"


def test_the_papers_second_choice_by_index_moves_keys_that_concern_nobody_who_came() -> None:
    before, after = CandidateRings.of(entries(8), 2, "paper"), CandidateRings.of([entry("h"), *entries(8)], 2, "paper")
    assert moved_members(before, after, "h"), "which is why it is not the default"
    assert moved_members(CandidateRings.of(entries(8)), CandidateRings.of([entry("h"), *entries(8)]), "h") == []


@pytest.mark.parametrize("count", [2, 3, 8])
def test_pairs_do_not_depend_on_the_order_of_the_table(count: int) -> None:
    forwards, backwards = CandidateRings.of(entries(count)), CandidateRings.of(tuple(reversed(entries(count))))
    assert [forwards.candidates(key) for key in KEYS[:200]] == [backwards.candidates(key) for key in KEYS[:200]]
