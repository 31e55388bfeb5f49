"""KV memory against plain references: an LRU list for the DRAM tier, recounts of pinned, private and cached blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_model.kv_memory import KvMemory, leading_run
from fairlead_simulator.engine_model.trace_memory import DramTier
from fairlead_testing.examples import examples


def chain(session: int, length: int) -> tuple[int, ...]:
    """Return the blocks of a session: one that all sessions share, then its own."""
    return tuple(0 if depth == 0 else session * 1000 + depth for depth in range(length))


class ReferenceLru:
    """An LRU of blocks as a list, least recent first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.order: list[int] = []

    def insert(self, blocks: tuple[int, ...]) -> None:
        for block in reversed(blocks[: self.capacity]):
            if block in self.order:
                self.order.remove(block)
            self.order.append(block)
        del self.order[: max(0, len(self.order) - self.capacity)]

    def match(self, blocks: tuple[int, ...]) -> int:
        count = 0
        while count < len(blocks) and blocks[count] in self.order:
            count += 1
        return count


@pytest.mark.parametrize("block_tokens", [48, 1024])
def test_engine_blocks_that_do_not_divide_a_prefix_block_are_refused(block_tokens: int) -> None:
    with pytest.raises(ValueError, match=f"blocks of {block_tokens} tokens do not divide"):
        KvMemory(100, block_tokens, caching=True)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=60), st.integers(1, 20))
@examples(60)
def test_the_dram_tier_is_an_lru(accesses: list[tuple[int, int]], capacity: int) -> None:
    tier, reference = DramTier(capacity), ReferenceLru(capacity)
    for session, length in accesses:
        blocks = chain(session, length)
        assert tier.match(blocks, len(blocks)) == reference.match(blocks)
        tier.insert(blocks)
        reference.insert(blocks)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8), st.integers(0, 3)), max_size=50))
@examples(60)
def test_memory_counts_what_requests_hold_and_never_exceeds_its_capacity(steps: list[tuple[int, int, int]]) -> None:
    memory = KvMemory(capacity=80, block_tokens=128, caching=True)
    running: list[tuple[tuple[int, ...], int, int]] = []
    for session, length, extra in steps:
        blocks = chain(session, length)
        hits = memory.match(blocks, length)
        total = length * 4 + extra
        if memory.fits(blocks, hits, total, 0):
            memory.admit(blocks, hits, total)
            held = memory.publish(blocks, hits, length)
            running.append((blocks, held, total - held * 4))
        elif running:
            memory.release(*running.pop(0))
        assert memory.pinned == len({block for blocks, held, _ in running for block in blocks[:held]})
        assert memory.private == sum(private for _, _, private in running)
        assert memory.private + 4 * (memory.pinned + memory.cached) <= memory.capacity
    for one in running:
        memory.release(*one)
    assert (memory.pinned, memory.private, memory.usage) == (0, 0, 0.0)


def test_what_was_let_go_longest_ago_is_evicted_first_and_tails_before_heads() -> None:
    memory = KvMemory(capacity=16, block_tokens=512, caching=True)
    for session in (1, 2):
        blocks = chain(session, 6)
        memory.admit(blocks, 0, 6)
        held = memory.publish(blocks, 0, 6)
        memory.release(blocks, held, 6 - held)
    assert (memory.match(chain(1, 6), 6), memory.match(chain(2, 6), 6)) == (6, 6)
    memory.admit((), 0, 8)
    assert memory.match(chain(1, 6), 6) == 3, "eleven blocks were cached and room for eight was needed: three tails of the older go"
    assert memory.match(chain(2, 6), 6) == 6


def test_without_caching_nothing_is_left_behind() -> None:
    memory = KvMemory(capacity=16, block_tokens=512, caching=False)
    memory.admit(chain(1, 4), 0, 4)
    assert memory.publish(chain(1, 4), 0, 4) == 0
    memory.release(chain(1, 4), 0, 4)
    assert memory.match(chain(1, 4), 4) == 0
    assert memory.available == 16


def test_fetched_blocks_are_cached_and_make_room_for_themselves() -> None:
    memory = KvMemory(capacity=4, block_tokens=512, caching=True)
    memory.adopt(chain(1, 3))
    memory.adopt(chain(2, 3))
    assert memory.match(chain(2, 3), 3) == 3
    assert memory.cached == 4


def test_fetched_children_never_outlive_their_parents() -> None:
    memory = KvMemory(capacity=8, block_tokens=512, caching=True)
    memory.adopt(chain(1, 2))
    memory.adopt(chain(2, 4)[1:])  # something fresher
    memory.adopt(chain(1, 4))
    memory.admit((), 0, 3)
    kept = memory.match(chain(1, 4), 4)
    assert kept == 4
    memory.admit((), 0, 2)
    assert memory.match(chain(1, 4), 4) == 3


def test_a_leading_run_ends_at_the_limit() -> None:
    assert leading_run((1, 2, 3), 2, {1, 3}, {2}) == 2
    assert leading_run((1, 2, 3), 3, {1}, {2}) == 2
    assert leading_run((), 0, {1}) == 0
