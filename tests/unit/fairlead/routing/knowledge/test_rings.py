import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from fairlead.instances import InstanceState
from fairlead.routing.knowledge import rings
from fairlead.routing.knowledge.rings import FULL_CIRCLE, SALTS, CandidateRings, DualRing, HashRing, Key, anchor_count, key_shares
from fairlead_testing.builders.routing import entries, entry
from fairlead_testing.examples import examples

WORKED = [(100, "A"), (300, "B"), (600, "C"), (900, "D")]
KEYS: list[Key] = [(2, number * 0x9E3779B97F4A7C15 % (1 << 64)) for number in range(2000)]


def test_the_worked_example_maps_each_position_to_the_anchor_at_or_after_it() -> None:
    ring = HashRing(WORKED, size=1000)
    positions = [50, 100, 101, 300, 301, 600, 601, 900, 901]
    assert [ring.owner_at(position) for position in positions] == ["A", "A", "B", "B", "C", "C", "D", "D", "A"]


def test_the_worked_example_moves_exactly_the_keys_301_to_450_to_a_new_instance() -> None:
    before, after = HashRing(WORKED, size=1000), HashRing([*WORKED, (450, "E")], size=1000)
    assert [after.owner_at(position) for position in (301, 400, 450, 451)] == ["E", "E", "E", "C"]
    moved = [position for position in range(1000) if before.owner_at(position) != after.owner_at(position)]
    assert moved == list(range(301, 451))
    again = HashRing([point for point in [*WORKED, (450, "E")] if point[1] != "E"], size=1000)
    assert all(again.owner_at(position) == before.owner_at(position) for position in range(1000))


def test_shares_of_the_worked_example_are_its_arcs() -> None:
    assert HashRing(WORKED, size=1000).shares() == pytest.approx({"A": 0.2, "B": 0.2, "C": 0.3, "D": 0.3})


@given(anchors=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(min_value=0, max_value=40)), salt=st.sampled_from(SALTS))
def test_a_ring_of_anchors_is_that_of_their_hashes(anchors: dict[str, int], salt: int) -> None:
    ring = HashRing.of_anchors(anchors.items(), salt)
    by_hand = HashRing(
        ((xxh3_64_intdigest(f"{name}#{number}".encode(), salt), name) for name, count in anchors.items() for number in range(count)),
        salt=salt,
    )
    assert (ring.instances, ring.positions) == (by_hand.instances, by_hand.positions)
    assert [ring.owner(key) for key in KEYS[:50]] == [by_hand.owner(key) for key in KEYS[:50]]
    assert ring.shares() == by_hand.shares()
    assert sum(ring.shares().values()) == pytest.approx(1.0 if any(anchors.values()) else 0.0)


def test_of_two_anchors_at_one_position_the_smaller_id_owns_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "_positions_of", lambda *_: [FULL_CIRCLE // 2])
    ring = HashRing.of_anchors([("b", 1), ("a", 1)])
    assert ring.owner_at(0) == "a"
    assert ring.shares() == {"a": 1.0, "b": 0.0}


def test_an_empty_ring_owns_nothing() -> None:
    assert HashRing(()).owner((1, 5)) is None
    assert [CandidateRings.of((), count).candidates((1, 5)) for count in (1, 2, 3)] == [(), (), ()]
    assert HashRing(()).shares() == {}


def test_one_instance_is_the_only_candidate() -> None:
    assert [CandidateRings.of(entries(1), count).candidates((1, 5)) for count in (1, 2, 3)] == [("i00",)] * 3


def test_only_accepting_instances_with_weight_have_anchors() -> None:
    draining = entry("d", InstanceState.DRAINING)
    assert [anchor_count(one) for one in (entry("a"), entry("b", weight=0.5), entry("c", weight=0.0), draining)] == [160, 80, 0, 0]
    assert anchor_count(entry("e", weight=0.001)) == 1


def test_160_anchors_spread_eight_instances_evenly() -> None:
    shares = key_shares(entries(8))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares.values()) < 1.25 / 8
    assert min(shares.values()) > 0.75 / 8


def test_shares_follow_every_change_of_anchors_and_nothing_else() -> None:
    pool = entries(4)
    before = key_shares(pool)
    assert key_shares([replace(one, address="10.0.0.9:1") for one in pool]) is before
    heavier = key_shares([replace(pool[0], weight=2.0), *pool[1:]])
    assert heavier[pool[0].id] > before[pool[0].id]
    assert list(key_shares([replace(pool[0], state=InstanceState.DRAINING), *pool[1:]])) == [one.id for one in pool[1:]]
    assert key_shares(pool) == before


@examples(25)
@given(st.lists(st.floats(0.25, 4.0), min_size=2, max_size=8))
def test_keys_are_shared_out_by_weight(weights: list[float]) -> None:
    pool = [replace(one, weight=weight) for one, weight in zip(entries(len(weights)), weights, strict=True)]
    anchors = [anchor_count(one) for one in pool]
    for share, count in zip(key_shares(pool).values(), anchors, strict=True):
        fair = count / sum(anchors)
        assert abs(share - fair) < 5 * fair / count**0.5, "as far as chance places so many anchors"


@examples(25)
@given(st.integers(2, 8), st.floats(0.1, 4.0), st.floats(0.1, 4.0), st.data())
def test_another_weight_moves_only_keys_of_that_instance_and_no_more_than_it_must(
    count: int, before: float, after: float, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, count - 1))
    pools = [[replace(one, weight=weight) if n == place else one for n, one in enumerate(entries(count))] for weight in (before, after)]
    old, new = (HashRing.of(pool) for pool in pools)
    name, moved = f"i{place:02d}", [key for key in KEYS if old.owner(key) != new.owner(key)]
    winners, losers = {new.owner(key) for key in moved}, {old.owner(key) for key in moved}
    grows = anchor_count(pools[1][place]) >= anchor_count(pools[0][place])
    assert (winners if grows else losers) <= {name}, "all that moves goes to the one that grew, or leaves the one that shrank"
    assert name not in (losers if grows else winners)


@examples(15)
@given(st.integers(1, 9))
def test_adding_an_instance_moves_only_keys_to_it_and_removing_it_restores_the_map(count: int) -> None:
    before, after = HashRing.of(entries(count)), HashRing.of(entries(count + 1))
    new = f"i{count:02d}"
    moved = [key for key in KEYS if before.owner(key) != after.owner(key)]
    assert {after.owner(key) for key in moved} <= {new}
    assert len(moved) < 2.0 * len(KEYS) / (count + 1)


@examples(20)
@given(st.integers(2, 9), st.integers(1, 4), st.data())
def test_candidates_are_distinct_and_losing_another_instance_keeps_them(count: int, wanted: int, data: st.DataObject) -> None:
    everyone = entries(count)
    gone = data.draw(st.integers(0, count - 1))
    before = CandidateRings.of(everyone, wanted)
    after = CandidateRings.of(
        [replace(one, state=InstanceState.LOST) if index == gone else one for index, one in enumerate(everyone)], wanted
    )
    for key in KEYS[:400]:
        candidates = before.candidates(key)
        assert len(set(candidates)) == len(candidates) == min(wanted, count)
        if f"i{gone:02d}" not in candidates:
            assert after.candidates(key) == candidates


@examples(20)
@given(st.integers(2, 9), st.integers(1, 4))
def test_a_new_instance_takes_the_place_of_at_most_one_candidate(count: int, wanted: int) -> None:
    before, after = CandidateRings.of(entries(count), wanted), CandidateRings.of(entries(count + 1), wanted)
    for key in KEYS[:400]:
        old, new = before.candidates(key), after.candidates(key)
        assert new == old or (f"i{count:02d}" in new and len(set(old) - set(new)) <= 1)


@examples(20)
@given(st.integers(1, 9), st.sampled_from(["distinct", "paper"]))
def test_the_dual_ring_names_the_first_two_candidates_of_any_number_of_rings(count: int, mode: str) -> None:
    dual, many = CandidateRings.of(entries(count), 2, mode), CandidateRings.of(entries(count), 4, mode)
    assert isinstance(dual, DualRing)
    assert [dual.candidates(key) for key in KEYS[:400]] == [many.candidates(key)[:2] for key in KEYS[:400]]


def test_one_candidate_is_the_owner_on_the_first_ring() -> None:
    single, ring = CandidateRings.of(entries(5), 1), HashRing.of(entries(5))
    assert all(single.candidates(key) == (ring.owner(key),) for key in KEYS[:200])


def test_the_second_choice_by_index_is_the_papers_equation_5() -> None:
    first, second = HashRing(WORKED, size=1000), HashRing([(500, "A"), (700, "C")], size=1000)
    assert DualRing(first, second, "paper").pair_at(50, 400) == ("A", "B")
    assert DualRing(first, second).pair_at(50, 400) == ("A", "C")
    assert DualRing(first, HashRing([(500, "D")], size=1000), "paper").pair_at(700, 1) == ("D", "A")


def test_candidates_are_the_same_in_another_process() -> None:
    code = (
        "from fairlead.routing.knowledge.rings import CandidateRings; from fairlead.tables import InstanceEntry; from fairlead.instances import InstanceState\n"
        "rings = CandidateRings.of([InstanceEntry(id=f'i{n:02d}', address='', state=InstanceState.SERVING) for n in range(8)], 4)\n"
        "print([rings.candidates((2, n)) for n in range(50)])"
    )
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment).stdout.strip()
    rings = CandidateRings.of(entries(8), 4)
    assert printed == str([rings.candidates((2, number)) for number in range(50)])


def test_the_less_loaded_of_two_choices_spreads_far_better_than_one_choice() -> None:
    instances, requests = 16, 1600
    names = [one.id for one in entries(instances)]
    rings = CandidateRings.of(entries(instances))
    one_choice, two_choices = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for key in KEYS[:requests]:
        first, second = rings.candidates(key)
        one_choice[first] += 1
        two_choices[min((first, second), key=lambda name: two_choices[name])] += 1
    mean = requests / instances
    assert max(two_choices.values()) - mean <= 6
    assert max(one_choice.values()) - mean > 3 * (max(two_choices.values()) - mean)
