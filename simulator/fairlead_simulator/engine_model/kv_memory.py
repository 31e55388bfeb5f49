"""KV memory of one instance: the blocks of running requests, and the prefix cache in the remaining memory.

Prefixes are identified by the trace's block ids, of 512 tokens each (prefix blocks). Memory is counted in the engine's
own blocks, which are smaller (engine blocks). A prefix block is pinned while a running request uses it; otherwise it is
only cached. When running requests need room, cached blocks are evicted in the order in which they were released. The
blocks of one prompt are released from the last to the first. A request holds all leading blocks of its prompt, so a
memory that holds a block also holds all blocks before it.
"""

from collections.abc import Container, Sequence
from itertools import islice
from typing import Protocol

PREFIX_BLOCK_TOKENS = 512


class PrefixCacheWatcher(Protocol):
    """An observer that is notified when prefix blocks become reusable and when they are evicted."""

    def stored(self, parent: int | None, blocks: Sequence[int]) -> None:
        """Record that consecutive blocks of a prompt were stored after the block `parent` (None: at the beginning of
        the prompt).
        """

    def removed(self, blocks: Sequence[int]) -> None:
        """Record that blocks were evicted, in this order."""


def tell_stored(watcher: PrefixCacheWatcher, blocks: Sequence[int], first: int) -> None:
    """Report to the watcher that a prompt's blocks from index `first` on were stored. Does nothing if there are no such
    blocks.
    """
    if first < len(blocks):
        watcher.stored(blocks[first - 1] if first else None, blocks[first:])


def leading_run(blocks: Sequence[int], limit: int, known: Container[int], also: Container[int] = ()) -> int:
    """Return the number of leading blocks, at most `limit`, that are all cached: each is in `known` or in `also`. The
    number is found by bisection, which is correct because a block is cached only if all blocks before it are cached.
    """
    if limit < 1 or (blocks[0] not in known and blocks[0] not in also):
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) >> 1
        block = blocks[middle - 1]
        if block in known or block in also:
            low = middle
        else:
            high = middle - 1
    return low


class KvMemory:
    """A memory of `capacity` engine blocks of `block_tokens` tokens each. Raises ValueError unless a whole number of
    engine blocks fills a prefix block.

    If `caching` is False, the prefix cache is in host memory, so this memory frees a request's blocks when the request
    ends.
    """

    __slots__ = ("_idle", "_pinned", "_shared", "_watcher", "caching", "capacity", "evicted", "per_prefix_block", "private")

    def __init__(self, capacity: int, block_tokens: int, caching: bool, watcher: PrefixCacheWatcher | None = None) -> None:
        if PREFIX_BLOCK_TOKENS % block_tokens:  # prefix blocks would take less room than they have tokens, or none
            raise ValueError(f"engine blocks of {block_tokens} tokens do not divide a prefix block of {PREFIX_BLOCK_TOKENS}")
        self._watcher = watcher
        self.capacity = capacity
        self.per_prefix_block = PREFIX_BLOCK_TOKENS // block_tokens
        self.caching = caching
        self.private = 0
        """Number of engine blocks that each belong to a single running request and cannot be shared."""
        self.evicted = 0
        self._pinned: set[int] = set()
        self._shared: dict[int, int] = {}
        """Pinned block → number of requests that use it, minus one. Blocks that only one request uses are left out."""
        self._idle: dict[int, None] = {}
        """Cached blocks that no request uses, in the order of their release. It is a plain dict and not an OrderedDict,
        because blocks are added and removed many at a time, and a dict does this faster.
        """

    @property
    def pinned(self) -> int:
        """Number of prefix blocks that running requests use."""
        return len(self._pinned)

    @property
    def available(self) -> int:
        """Number of engine blocks that could be allocated now, including the blocks that eviction from the cache would
        free.
        """
        return self.capacity - self.private - len(self._pinned) * self.per_prefix_block

    @property
    def cached(self) -> int:
        """Number of cached prefix blocks that no request uses."""
        return len(self._idle)

    @property
    def usage(self) -> float:
        """Share of the capacity that running requests hold, 0 to 1, as engines report it."""
        return 1.0 - self.available / self.capacity

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Return the number of leading prefix blocks that are in memory, at most `limit`."""
        return leading_run(blocks, limit, self._idle, self._pinned)

    def fits(self, blocks: Sequence[int], hits: int, total: int, reserve: int) -> bool:
        """Return whether a request that needs `total` engine blocks fits, with `reserve` engine blocks left free. The
        first `hits` of its prefix blocks are already in memory.
        """
        available = self.available - reserve
        if total <= available:
            return True
        in_use = sum(1 for block in blocks[:hits] if block in self._pinned)
        return total - in_use * self.per_prefix_block <= available

    def admit(self, blocks: Sequence[int], hits: int, total: int) -> None:
        """Pin the request's first `hits` prefix blocks, which are already in memory, and allocate the rest of the
        `total` engine blocks that it needs.
        """
        for block in blocks[:hits]:
            self._pin(block)
        self.allocate(total - hits * self.per_prefix_block)

    def allocate(self, count: int) -> None:
        """Allocate `count` engine blocks to a running request, evicting cached blocks if necessary. The caller has
        checked that enough blocks are available.
        """
        self.private += count
        excess = self.private + (len(self._pinned) + len(self._idle)) * self.per_prefix_block - self.capacity
        if excess > 0:
            evicted = -(-excess // self.per_prefix_block)
            self.evicted += evicted
            idle = self._idle
            oldest = list(islice(idle, evicted))
            for block in oldest:
                del idle[block]
            if self._watcher is not None:
                self._watcher.removed(oldest)

    def publish(self, blocks: Sequence[int], held: int, full: int) -> int:
        """Let other requests use the prefix blocks with the indexes from `held` to `full` (excluded), which a prefill
        has computed. Return the number of prefix blocks that the request now holds.
        """
        if not self.caching or full <= held:
            return held
        new = blocks[held:full]
        if self._watcher is not None:
            tell_stored(self._watcher, blocks[:full], self.match(blocks, full))
        if self._pinned.isdisjoint(new) and self._idle.keys().isdisjoint(new):
            self._pinned.update(new)
        else:  # computed twice at the same time: one copy is let go
            for block in new:
                self._pin(block)
        self.private -= (full - held) * self.per_prefix_block
        return full

    def adopt(self, blocks: Sequence[int]) -> None:
        """Cache prefix blocks that were fetched from another instance, evicting older blocks if necessary."""
        idle = self._idle
        if self._watcher is not None:
            tell_stored(self._watcher, blocks, self.match(blocks, len(blocks)))
        for block in reversed(blocks):
            if block in self._pinned:
                continue
            idle.pop(block, None)  # a parent must not be older than its children
            idle[block] = None
        self.allocate(0)

    def release(self, blocks: Sequence[int], held: int, private: int) -> None:
        """Release the blocks of a request that left. Its first `held` prefix blocks stay cached or in use by other
        requests. The last block that no other request uses is evicted first. The request's `private` engine blocks
        become free.
        """
        shared = self._shared
        first = 0
        # Whoever uses a block uses all before it, so the shared ones come first.
        while first < held and blocks[first] in shared:
            block = blocks[first]
            if shared[block] == 1:
                del shared[block]
            else:
                shared[block] -= 1
            first += 1
        alone = blocks[first:held]
        self._pinned.difference_update(alone)
        self._idle.update(dict.fromkeys(reversed(alone)))
        self.private -= private

    def _pin(self, block: int) -> None:
        if block in self._pinned:
            self._shared[block] = self._shared.get(block, 0) + 1
            return
        self._idle.pop(block, None)
        self._pinned.add(block)
