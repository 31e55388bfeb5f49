"""What a restarted router recalls of the prefixes that instances hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.knowledge.prefix_memories import MOST_BLOCKS, keep, recall
from fairlead.routing.knowledge.prefixes import PrefixIndex
from fairlead_testing.builders.routing import entry, load_of, table

TABLE = table([entry("i0"), entry("i1")])
LOADS = {name: load_of(name) for name in ("i0", "i1")}
HOUR = 3600.0
PROMPTS = st.lists(st.tuples(st.sampled_from(["i0", "i1"]), st.lists(st.integers(0, 2**64 - 1), max_size=6)), max_size=12)


@given(PROMPTS, st.integers(1, 20))
def test_what_is_recalled_is_what_was_believed_also_in_what_would_be_given_up_first(
    prompts: list[tuple[str, list[int]]], capacity: int
) -> None:
    before, after = PrefixIndex(capacity), PrefixIndex(capacity)
    for instance, blocks in prompts:
        before.insert(instance, tuple(dict.fromkeys(blocks)))
    recalled = recall(after, TABLE, LOADS, keep(before, TABLE, LOADS, 10.0), 20.0)
    assert recalled == len(before.instances())
    for instance in before.instances():
        assert after.by_freshness(instance) == before.by_freshness(instance)


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "another pool of that name"},
        {"address": "10.0.0.9:1"},
        {"block_bytes": 1024},
        {"instance": "i9"},
        {"kept_at": -HOUR},
        {"kept_at": HOUR},
    ],
)
def test_what_holds_no_more_is_not_recalled(changes: dict[str, str | int | float]) -> None:
    before, after = PrefixIndex(10), PrefixIndex(10)
    before.insert("i0", (1, 2))
    memories = [replace(memory, **changes) for memory in keep(before, TABLE, LOADS, 0.0)]  # type: ignore[arg-type] # fields of several types
    assert recall(after, TABLE, LOADS, memories, 1.0) == 0
    assert after.instances() == ()


def test_what_is_seen_by_now_counts_more_than_what_was_kept() -> None:
    before, after = PrefixIndex(10), PrefixIndex(10)
    before.insert("i0", (1, 2))
    after.insert("i0", (3,))
    assert recall(after, TABLE, LOADS, keep(before, TABLE, LOADS, 0.0), 1.0) == 0
    assert after.held("i0") == {3}


def test_what_is_kept_of_a_pool_is_bounded_and_the_freshest_of_each_instance() -> None:
    before = PrefixIndex(MOST_BLOCKS)
    before.insert("i0", tuple(range(MOST_BLOCKS)))
    before.insert("i1", (1, 2))
    first, second = keep(before, TABLE, LOADS, 0.0)
    assert len(first.blocks) == 8 * MOST_BLOCKS // 2
    assert first.blocks[-8:] == (0).to_bytes(8, "little"), "the beginning of the last prompt is the freshest"
    assert len(second.blocks) == 16
