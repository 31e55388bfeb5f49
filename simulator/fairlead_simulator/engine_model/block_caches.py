"""Eviction from a full prefix cache: Mooncake's three cache policies (Table 1 of its paper).

`lru` evicts the least recently used block. `lfu` evicts the block with the fewest uses; among blocks with equally many
uses, it evicts the least recently used. `length-aware` evicts the block with the fewest uses, too; among blocks with
equally many uses, it evicts the block nearest to the beginning of its prompt, because the paper says that the policy
favours "cache blocks occurring later in requests".

A block's uses are counted only while the block is cached. The block that is being added is never evicted.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Literal

Eviction = Literal["lru", "lfu", "length-aware"]

Rank = tuple[int, int, int]
"""A block's rank: the block with the lowest rank is evicted first. The last element is the time of the block's last
use. Two blocks never have the same last element, so all ranks differ.
"""

_RANKS: dict[Eviction, Callable[[int, int, int], Rank]] = {
    "lru": lambda touches, place, tick: (0, 0, tick),
    "lfu": lambda touches, place, tick: (touches, 0, tick),
    "length-aware": lambda touches, place, tick: (touches, place, tick),
}
_LEAST_TO_CLEAR = 1024


class BlockCache:
    """A cache of at most `capacity` blocks. A heap holds the blocks, with the next block to evict on top; a use of a
    block takes O(log n).
    """

    __slots__ = ("_heap", "_rank", "_ranks", "_tick", "_touches", "capacity", "evicted")

    def __init__(self, capacity: int, eviction: Eviction) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._rank = _RANKS[eviction]
        self._ranks: dict[int, Rank] = {}
        self._touches: dict[int, int] = {}
        self._heap: list[tuple[Rank, int]] = []
        """Heap of pairs (rank, block). When a block's rank changes, the old pair remains in the heap until it reaches
        the top. The heap is rebuilt without old pairs if it has more than 2 n + 1,024 pairs for n cached blocks.
        """
        self._tick = 0

    def __contains__(self, block: object) -> bool:
        return block in self._ranks

    def __len__(self) -> int:
        return len(self._ranks)

    def touch(self, block: int, place: int) -> bool:
        """Record a use of the block at index `place` of a prompt, and return whether the block was cached before.
        Afterwards the block is cached, unless the cache's capacity is 0.
        """
        was_here = block in self._ranks
        if not was_here and len(self._ranks) >= self.capacity:
            if not self.capacity:
                return False
            self._give_one_up()
        self._tick += 1
        touches = self._touches[block] = self._touches.get(block, 0) + 1
        rank = self._ranks[block] = self._rank(touches, place, self._tick)
        heappush(self._heap, (rank, block))
        if len(self._heap) > _LEAST_TO_CLEAR + 2 * len(self._ranks):
            self._heap = [(known, one) for one, known in self._ranks.items()]
            heapify(self._heap)
        return was_here

    def _give_one_up(self) -> None:
        while True:
            rank, block = heappop(self._heap)
            if self._ranks.get(block) == rank:
                del self._ranks[block], self._touches[block]
                self.evicted += 1
                return


def hit_share(prompts: Sequence[Sequence[int]], capacity: int, eviction: Eviction) -> float:
    """Return the hit rate of a single cache: the share (0-1) of the blocks of these prompts that are cached when they
    are used; 0 without blocks. The prompts are used one after the other.

    As in Mooncake's Table 1, each block counts separately: a block may be a hit even if the blocks before it are not
    cached.
    """
    cache = BlockCache(capacity, eviction)
    used = hits = 0
    for blocks in prompts:
        for place, block in enumerate(blocks):
            used += 1
            hits += cache.touch(block, place)
    return hits / used if used else 0.0
