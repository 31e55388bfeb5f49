"""KV memory of one instance: the blocks of running requests, and the prefix cache in the remaining memory.

Prefixes are identified by the trace's block ids (512 tokens each); memory is counted in the engine's blocks, which are
smaller. A prefix block is pinned while a running request uses it, and otherwise cached. When running requests need
room, cached blocks are evicted in the order in which they were released, the last block of a prompt first. A request
holds all leading blocks of its prompt, so a memory that holds a block also holds all blocks before it.
"""

from collections.abc import Container, Sequence
from itertools import islice
from typing import Protocol

PREFIX_BLOCK_TOKENS = 512


class PrefixCacheWatcher(Protocol):
    """An observer that is notified when prefix blocks become reusable, and when they no longer are."""

    def stored(self, parent: int | None, blocks: Sequence[int]) -> None:
        """Record that consecutive blocks of a prompt were stored after the block `parent` (None: at the beginning of
        the prompt).
        """

    def removed(self, blocks: Sequence[int]) -> None:
        """Record that blocks were evicted, in this order."""


def tell_stored(watcher: PrefixCacheWatcher, blocks: Sequence[int], first: int) -> None:
    """Report to the watcher that the blocks of a prompt from index `first` on are stored, if there are any."""
    if first < len(blocks):
        watcher.stored(blocks[first - 1] if first else None, blocks[first:])


def leading_run(blocks: Sequence[int], limit: int, known: Container[int], also: Container[int] = ()) -> int:
    """Return the number of leading blocks that are in `known` or `also`, at most `limit`. They are found by bisection,
    because each of the two holds only whole prefixes.
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
    """A memory of `capacity` engine blocks of `block_tokens` tokens each. Raises ValueError if a prefix block is not a
    multiple of an engine block.

    With `caching` off, blocks are freed when their request ends (a cache in host memory is used instead).
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
        """Number of engine blocks of running requests that no other request can use."""
        self.evicted = 0
        self._pinned: set[int] = set()
        self._shared: dict[int, int] = {}
        """For pinned blocks with several users: the number of requests that use the block, minus one."""
        self._idle: dict[int, None] = {}
        """Cached blocks that no request uses, in the order of their release. A plain dict, because blocks are added and
        removed many at a time, for which it is faster than an OrderedDict.
        """

    @property
    def pinned(self) -> int:
        """Number of prefix blocks that running requests use."""
        return len(self._pinned)

    @property
    def available(self) -> int:
        """Number of engine blocks that could be allocated now, if necessary by evicting cached blocks."""
        return self.capacity - self.private - len(self._pinned) * self.per_prefix_block

    @property
    def cached(self) -> int:
        """Number of prefix blocks that no request is using."""
        return len(self._idle)

    @property
    def usage(self) -> float:
        """Share of the capacity that running requests hold, 0 to 1, as engines report it."""
        return 1.0 - self.available / self.capacity

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Return the number of leading prefix blocks that are in memory, at most `limit`."""
        return leading_run(blocks, limit, self._idle, self._pinned)

    def fits(self, blocks: Sequence[int], hits: int, total: int, reserve: int) -> bool:
        """Return whether a request of `total` engine blocks fits while `reserve` blocks stay free; `hits` of its prefix
        blocks are already in memory.
        """
        available = self.available - reserve
        if total <= available:
            return True
        in_use = sum(1 for block in blocks[:hits] if block in self._pinned)
        return total - in_use * self.per_prefix_block <= available

    def admit(self, blocks: Sequence[int], hits: int, total: int) -> None:
        """Pin the `hits` prefix blocks that are in memory, and allocate the other engine blocks of the request; `total`
        is the number of all its engine blocks.
        """
        for block in blocks[:hits]:
            self._pin(block)
        self.allocate(total - hits * self.per_prefix_block)

    def allocate(self, count: int) -> None:
        """Take engine blocks for a running request; the caller has checked that the blocks are available."""
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
        """Let other requests use the prefix blocks with indexes from `held` to `full`, which a prefill has computed.
        Return the number of prefix blocks that the request now holds.
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
        """Cache blocks fetched from another instance, evicting older blocks."""
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
        """Release the blocks of a request that left: its prefix blocks become cached, to be evicted last block first;
        its private blocks become free.
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
