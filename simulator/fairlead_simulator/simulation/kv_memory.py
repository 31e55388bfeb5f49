"""KV memory of one instance: blocks of running requests, and the prefix cache in what they leave.

Prefixes are known by the trace's block ids (512 tokens each); memory is counted in the engine's own, smaller blocks. A prefix block is pinned
while a running request uses it and otherwise cached, in the order it was let go, tails before heads; what is cached is evicted from the
oldest on when running requests need room. Because a request holds its whole leading run, what is known is closed under prefixes.
"""

from collections import OrderedDict
from collections.abc import Sequence

PREFIX_BLOCK_TOKENS = 512


def leading_run(blocks: Sequence[int], limit: int, known: dict[int, int] | OrderedDict[int, None]) -> int:
    """How many of the first `limit` blocks are known; by bisection, as `known` is closed under prefixes."""
    if limit < 1 or blocks[0] not in known:
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) >> 1
        if blocks[middle - 1] in known:
            low = middle
        else:
            high = middle - 1
    return low


class KvMemory:
    """`capacity` engine blocks of `block_tokens`. With `caching` off nothing outlives its request (a DRAM tier caches instead)."""

    __slots__ = ("_idle", "_references", "caching", "capacity", "evicted", "per_prefix_block", "pinned", "private")

    def __init__(self, capacity: int, block_tokens: int, caching: bool) -> None:
        self.capacity = capacity
        self.per_prefix_block = PREFIX_BLOCK_TOKENS // block_tokens
        self.caching = caching
        self.private = 0
        """Engine blocks of running requests that no other request can use."""
        self.pinned = 0
        """Prefix blocks in use."""
        self.evicted = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Engine blocks that could be allocated now, by evicting what is only cached if need be."""
        return self.capacity - self.private - self.pinned * self.per_prefix_block

    @property
    def cached(self) -> int:
        """Prefix blocks no request is using."""
        return len(self._idle)

    @property
    def usage(self) -> float:
        """Share of the capacity held by running requests, 0-1, as engines report it."""
        return 1.0 - self.available / self.capacity

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Leading prefix blocks present, at most `limit`."""
        return leading_run(blocks, limit, self._references)

    def fits(self, blocks: Sequence[int], hits: int, total: int, reserve: int) -> bool:
        """Whether a request of `total` engine blocks, of which `hits` prefix blocks are present, fits beside a reserve."""
        available = self.available - reserve
        if total <= available:
            return True
        idle = sum(1 for block in blocks[:hits] if not self._references[block])
        return total - (hits - idle) * self.per_prefix_block <= available

    def admit(self, blocks: Sequence[int], hits: int, total: int) -> None:
        """Pin the hits and allocate the rest of `total` engine blocks."""
        references, idle = self._references, self._idle
        for block in blocks[:hits]:
            count = references[block]
            if count == 0:
                del idle[block]
                self.pinned += 1
            references[block] = count + 1
        self.allocate(total - hits * self.per_prefix_block)

    def allocate(self, count: int) -> None:
        """Take engine blocks for a running request; the caller made sure that they are available."""
        self.private += count
        excess = self.private + (self.pinned + len(self._idle)) * self.per_prefix_block - self.capacity
        if excess > 0:
            evicted = -(-excess // self.per_prefix_block)
            self.evicted += evicted
            oldest, references = self._idle.popitem, self._references
            for _ in range(evicted):
                del references[oldest(last=False)[0]]

    def publish(self, blocks: Sequence[int], held: int, full: int) -> int:
        """A prefill computed blocks `held` to `full`: others can use them from now on. Returns how many prefix blocks the request holds now."""
        if not self.caching or full <= held:
            return held
        references = self._references
        pinned = full - held
        for block in blocks[held:full]:
            if block not in references:
                references[block] = 1
                continue
            count = references[block]  # computed twice at the same time: one copy is let go
            if count == 0:
                del self._idle[block]
            else:
                pinned -= 1
            references[block] = count + 1
        self.pinned += pinned
        self.private -= (full - held) * self.per_prefix_block
        return full

    def adopt(self, blocks: Sequence[int]) -> None:
        """Blocks fetched from another instance become cached here, evicting what is older."""
        references, idle = self._references, self._idle
        for block in reversed(blocks):
            count = references.get(block)
            if count is None:
                references[block] = 0
                idle[block] = None
            elif count == 0:  # a parent must not be older than its children
                idle.move_to_end(block)
        self.allocate(0)

    def release(self, blocks: Sequence[int], held: int, private: int) -> None:
        """A request left: its prefix blocks become cached, tail first, its private ones free."""
        references, idle = self._references, self._idle
        before = len(idle)
        for block in reversed(blocks[:held]):
            count = references[block] - 1
            references[block] = count
            if count == 0:
                idle[block] = None
        self.pinned -= len(idle) - before
        self.private -= private


class DramTier:
    """A prefix cache in host memory: plain LRU over prefix blocks, nothing pinned."""

    __slots__ = ("_cache", "capacity", "evicted")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._cache: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Leading prefix blocks present, at most `limit`."""
        return leading_run(blocks, limit, self._cache)

    def insert(self, blocks: Sequence[int]) -> None:
        """A prompt was computed: its blocks are the freshest now, the first one freshest of all."""
        cache = self._cache
        for block in reversed(blocks[: self.capacity]):
            if block in cache:
                cache.move_to_end(block)
            else:
                cache[block] = None
        while len(cache) > self.capacity:
            cache.popitem(last=False)
            self.evicted += 1
