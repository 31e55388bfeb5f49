"""Mooncake's cache policies: the order of eviction, and the hit ratios of the published trace."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.block_caches import BlockCache, Eviction, hit_share
from fairlead_simulator.engine_model.trace_memory import RankedDramTier
from fairlead_simulator.traces.rows import read_trace

CONVERSATION_TRACE = os.environ.get("FAIRLEAD_CONVERSATION_TRACE")
"""Mooncake's conversation trace, which is not part of this repository."""

SIZES = (1_000_000, 100_000, 50_000, 30_000, 10_000, 1_000)
RECORDED = {
    "lru": (0.366, 0.364, 0.355, 0.326, 0.211, 0.044),
    "lfu": (0.366, 0.363, 0.344, 0.276, 0.132, 0.048),
    "length-aware": (0.366, 0.317, 0.224, 0.171, 0.100, 0.047),
}


def left(eviction: Eviction, capacity: int, *prompts: Sequence[int]) -> set[int]:
    """Return the blocks that are cached after these prompts."""
    cache = BlockCache(capacity, eviction)
    for blocks in prompts:
        for place, block in enumerate(blocks):
            cache.touch(block, place)
    return {block for blocks in prompts for block in blocks if block in cache}


def test_lru_gives_up_what_was_used_longest_ago_and_the_others_what_was_used_least() -> None:
    """Block 2 was used three times, and longest ago when 6 comes."""
    prompts = ((1, 2), (3, 2), (3, 2), (4, 5, 6))
    assert left("lru", 3, *prompts) == {4, 5, 6}
    assert 2 in left("lfu", 3, *prompts) and 2 in left("length-aware", 3, *prompts)


def test_of_blocks_used_as_often_length_aware_gives_up_the_beginning_of_a_prompt_and_lfu_the_oldest() -> None:
    """Blocks 1, 2, 3 in their places 0, 1, 2; then 10 in place 0 needs room, and after it 11 in place 1."""
    assert left("lfu", 3, (1, 2, 3), (10, 11)) == {3, 10, 11}
    assert left("length-aware", 3, (1, 2, 3), (10, 11)) == {2, 3, 11}, "10 came in place 0, and goes before 2 and 3"


def test_how_often_a_block_was_used_is_forgotten_when_it_goes() -> None:
    assert left("lfu", 2, (1, 1, 1), (2, 3), (1,)) == {1, 3}
    assert left("lfu", 1, (1, 1, 1), (2,)) == {2}, "the block that comes is never the one to go"


class ByTheWords:
    """The same policy, implemented by examining every block each time."""

    def __init__(self, capacity: int, eviction: Eviction) -> None:
        self.capacity, self.eviction = capacity, eviction
        self.touched: dict[int, list[tuple[int, int]]] = {}

    def touch(self, block: int, place: int, tick: int) -> bool:
        hit = block in self.touched
        if not hit and len(self.touched) >= self.capacity:
            if not self.capacity:
                return False
            del self.touched[min(self.touched, key=self.worth)]
        self.touched.setdefault(block, []).append((place, tick))
        return hit

    def worth(self, block: int) -> tuple[int, ...]:
        touches = self.touched[block]
        place, tick = touches[-1]
        return {"lru": (tick,), "lfu": (len(touches), tick), "length-aware": (len(touches), place, tick)}[self.eviction]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=200), st.integers(0, 9), st.sampled_from(get_args(Eviction)))
def test_the_heap_gives_up_what_a_look_at_every_block_would(uses: list[tuple[int, int]], capacity: int, eviction: Eviction) -> None:
    cache, slow = BlockCache(capacity, eviction), ByTheWords(capacity, eviction)
    for tick, (block, place) in enumerate(uses):
        assert cache.touch(block, place) == slow.touch(block, place, tick)
        assert {one for one in range(13) if one in cache} == slow.touched.keys()
    assert len(cache) <= capacity


def test_a_long_life_does_not_fill_the_heap() -> None:
    cache = BlockCache(10, "lfu")
    for number in range(100_000):
        cache.touch(number % 12, 0)
    assert len(cache._heap) < 5_000 and cache.evicted > 10_000


def test_only_leading_blocks_of_a_tier_are_of_use() -> None:
    tier = RankedDramTier(3, "length-aware")
    tier.insert((1, 2, 3))
    tier.insert((10,))
    assert tier.match((1, 2, 3), 3) == 0, "the first is gone, and what follows it is worth nothing without it"
    assert (tier.match((10, 2), 2), tier.match((10,), 0), tier.evicted) == (2, 0, 1)


@pytest.mark.skipif(CONVERSATION_TRACE is None, reason="FAIRLEAD_CONVERSATION_TRACE names no file with Mooncake's conversation trace")
@pytest.mark.parametrize("eviction", get_args(Eviction))
def test_hit_ratios_of_mooncakes_conversations_are_as_recorded(eviction: Eviction) -> None:
    prompts = [row.hash_ids for row in read_trace(Path(str(CONVERSATION_TRACE)))]
    assert tuple(round(hit_share(prompts, size, eviction), 3) for size in SIZES) == RECORDED[eviction]
