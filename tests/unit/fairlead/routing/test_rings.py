import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.routing.rings import DualRing, HashRing, Key, anchor_count, key_shares
from routing_builders import entries, entry

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


def test_an_empty_ring_owns_nothing() -> None:
    assert HashRing(()).owner((1, 5)) is None
    assert DualRing.of(()).pair((1, 5)) == ()
    assert HashRing(()).shares() == {}


def test_one_instance_is_the_only_candidate() -> None:
    assert DualRing.of(entries(1)).pair((1, 5)) == ("i00",)


def test_only_accepting_instances_with_weight_have_anchors() -> None:
    draining = entry("d", InstanceState.DRAINING)
    assert [anchor_count(one) for one in (entry("a"), entry("b", weight=0.5), entry("c", weight=0.0), draining)] == [160, 80, 0, 0]
    assert anchor_count(entry("e", weight=0.001)) == 1


def test_160_anchors_spread_eight_instances_evenly() -> None:
    shares = key_shares(entries(8))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares.values()) < 1.25 / 8
    assert min(shares.values()) > 0.75 / 8


@settings(max_examples=15)
@given(st.integers(1, 9))
def test_adding_an_instance_moves_only_keys_to_it_and_removing_it_restores_the_map(count: int) -> None:
    before, after = HashRing.of(entries(count)), HashRing.of(entries(count + 1))
    new = f"i{count:02d}"
    moved = [key for key in KEYS if before.owner(key) != after.owner(key)]
    assert {after.owner(key) for key in moved} <= {new}
    assert len(moved) < 2.0 * len(KEYS) / (count + 1)


@settings(max_examples=15)
@given(st.integers(2, 9), st.data())
def test_pairs_are_distinct_and_losing_a_third_instance_keeps_them(count: int, data: st.DataObject) -> None:
    everyone = entries(count)
    gone = data.draw(st.integers(0, count - 1))
    before = DualRing.of(everyone)
    after = DualRing.of([replace(one, state=InstanceState.LOST) if index == gone else one for index, one in enumerate(everyone)])
    for key in KEYS[:400]:
        pair = before.pair(key)
        assert len(set(pair)) == 2
        if f"i{gone:02d}" not in pair:
            assert after.pair(key) == pair


def test_the_second_choice_by_index_is_the_papers_equation_5() -> None:
    first, second = HashRing(WORKED, size=1000), HashRing([(500, "A"), (700, "C")], size=1000)
    assert DualRing(first, second, "paper").pair_at(50, 400) == ("A", "B")
    assert DualRing(first, second).pair_at(50, 400) == ("A", "C")
    assert DualRing(first, HashRing([(500, "D")], size=1000), "paper").pair_at(700, 1) == ("D", "A")


def test_pairs_are_the_same_in_another_process() -> None:
    code = (
        "from fairlead.routing.rings import DualRing; from fairlead.tables import InstanceEntry; from fairlead.instances import InstanceState\n"
        "ring = DualRing.of([InstanceEntry(id=f'i{n:02d}', address='', state=InstanceState.SERVING) for n in range(8)])\n"
        "print([ring.pair((2, n)) for n in range(50)])"
    )
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment).stdout.strip()
    ring = DualRing.of(entries(8))
    assert printed == str([ring.pair((2, number)) for number in range(50)])


def test_the_less_loaded_of_two_choices_spreads_far_better_than_one_choice() -> None:
    instances, requests = 16, 1600
    names = [one.id for one in entries(instances)]
    ring = DualRing.of(entries(instances))
    one_choice, two_choices = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for key in KEYS[:requests]:
        first, second = ring.pair(key)
        one_choice[first] += 1
        two_choices[min((first, second), key=lambda name: two_choices[name])] += 1
    mean = requests / instances
    assert max(two_choices.values()) - mean <= 6
    assert max(one_choice.values()) - mean > 3 * (max(two_choices.values()) - mean)
