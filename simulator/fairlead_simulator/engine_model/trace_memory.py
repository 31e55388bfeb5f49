"""KV memory for requests whose prompts are given by a trace's block ids, with or without a cache in host memory. The
cache in host memory replaces the cache on the GPU (DualMap's engine) or extends it (vLLM's OffloadingConnector,
SGLang's HiCache).

One effect is left out: answers are not cached, because a trace does not contain the block ids of answers.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead_simulator.engine_model.block_caches import BlockCache, Eviction
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS, KvMemory, PrefixCacheWatcher, leading_run, tell_stored
from fairlead_simulator.engine_model.requests import EngineRequest


@dataclass(slots=True, kw_only=True, eq=False)
class TracedRequest(EngineRequest):
    """A request of a trace. `blocks` are the ids of the whole prefix blocks of its prompt."""

    blocks: tuple[int, ...]
    held: int = 0
    """Number of prefix blocks that are pinned for the request."""


class DramTier:
    """A prefix cache in host memory. It evicts the least recently used prefix block; no block is pinned."""

    __slots__ = ("_cache", "_watcher", "capacity", "evicted")

    def __init__(self, capacity: int, watcher: PrefixCacheWatcher | None = None) -> None:
        self._watcher = watcher
        self.capacity = capacity
        self.evicted = 0
        self._cache: OrderedDict[int, None] = OrderedDict()

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Return the number of leading prefix blocks that are cached, at most `limit`."""
        return leading_run(blocks, limit, self._cache)

    def insert(self, blocks: Sequence[int]) -> None:
        """Cache the blocks of a computed prompt. They become the most recently used blocks; among them, the first block
        of the prompt is evicted last.
        """
        cache = self._cache
        fitting = blocks[: self.capacity]
        if self._watcher is not None:
            tell_stored(self._watcher, fitting, self.match(fitting, len(fitting)))
        for block in reversed(fitting):
            if block in cache:
                cache.move_to_end(block)
            else:
                cache[block] = None
        evicted = [cache.popitem(last=False)[0] for _ in range(len(cache) - self.capacity)]
        self.evicted += len(evicted)
        if evicted and self._watcher is not None:
            self._watcher.removed(evicted)


class RankedDramTier:
    """A prefix cache in host memory that evicts by the rule `lfu` or `length-aware`. These rules may evict the middle
    of a prompt before its end. Only the blocks before the first evicted block of a prompt are useful.
    """

    __slots__ = ("_cache",)

    def __init__(self, capacity: int, eviction: Eviction) -> None:
        self._cache = BlockCache(capacity, eviction)

    @property
    def evicted(self) -> int:
        return self._cache.evicted

    def match(self, blocks: Sequence[int], limit: int) -> int:
        """Return the number of leading prefix blocks that are cached, at most `limit`."""
        cache = self._cache
        return next((place for place, block in enumerate(blocks[:limit]) if block not in cache), max(0, min(limit, len(blocks))))

    def insert(self, blocks: Sequence[int]) -> None:
        """Record a use of each block of a computed prompt, one after the other; blocks that were not cached are
        added.
        """
        for place, block in enumerate(blocks):
            self._cache.touch(block, place)


def _dram_tier(capacity: int, eviction: Eviction, watcher: PrefixCacheWatcher | None) -> DramTier | RankedDramTier:
    if eviction == "lru":
        return DramTier(capacity, watcher)
    if watcher is not None:
        raise ValueError(f"a tier evicted by {eviction} cannot be watched: events describe whole prefixes")
    return RankedDramTier(capacity, eviction)


class TraceMemory(KvMemory):
    """A memory of `capacity` engine blocks. If `dram_tokens` is given, the prefix cache is in host memory of that size
    and evicts blocks by the rule `eviction`. `watcher` is notified of changes in the prefix cache, on the GPU or in
    host memory.

    If `host_tokens` is given, the prefix cache is on the GPU, and all computed blocks are also copied to a second cache
    in host memory, which has `host_tokens` tokens. `host_watcher` is notified of changes in the second cache. Blocks
    that the GPU lacks are loaded from host memory.
    """

    __slots__ = ("_block_tokens", "_watching", "dram", "host")

    def __init__(
        self,
        capacity: int,
        block_tokens: int,
        dram_tokens: int | None,
        eviction: Eviction = "lru",
        watcher: PrefixCacheWatcher | None = None,
        host_tokens: int = 0,
        host_watcher: PrefixCacheWatcher | None = None,
    ) -> None:
        if host_tokens and dram_tokens is not None:
            raise ValueError("a host cache needs a prefix cache on the GPU, and this engine has none")
        super().__init__(capacity, block_tokens, caching=dram_tokens is None, watcher=watcher)
        self._block_tokens = block_tokens
        self._watching = watcher
        self.host = DramTier(host_tokens // PREFIX_BLOCK_TOKENS, host_watcher) if host_tokens else None
        self.dram = None if dram_tokens is None else _dram_tier(dram_tokens // PREFIX_BLOCK_TOKENS, eviction, watcher)

    def hit_tokens(self, request: TracedRequest) -> int:
        """Return the number of leading tokens of the context that are cached. The last token always counts as not
        cached.
        """
        usable = min(len(request.blocks), (request.context_tokens - 1) // PREFIX_BLOCK_TOKENS)
        return self._held(request.blocks, usable) * PREFIX_BLOCK_TOKENS

    def _held(self, blocks: Sequence[int], limit: int) -> int:
        if self.dram is not None:
            return self.dram.match(blocks, limit)
        on_gpu = self.match(blocks, limit)
        return on_gpu if self.host is None else max(on_gpu, self.host.match(blocks, limit))

    def loaded_tokens(self, request: TracedRequest, hit_tokens: int) -> int:
        """Return the number of hit tokens that must be loaded from host memory because the GPU does not have them."""
        if self.dram is not None:
            return hit_tokens
        if self.host is None:
            return 0
        return hit_tokens - self.match(request.blocks, hit_tokens // PREFIX_BLOCK_TOKENS) * PREFIX_BLOCK_TOKENS

    def take_in(self, request: TracedRequest, hit_tokens: int, reserve: int) -> bool:
        """Give the request blocks for its context if the blocks fit, with `reserve` blocks left free. Return whether
        they fit.
        """
        pinned = hit_tokens // PREFIX_BLOCK_TOKENS if self.caching else 0
        total = self._blocks_for(request.context_tokens)
        if not self.fits(request.blocks, pinned, total, reserve):
            return False
        if self.host is not None and self._watching is not None:
            tell_stored(self._watching, request.blocks[:pinned], self.match(request.blocks, pinned))
        self.admit(request.blocks, pinned, total)
        request.held = pinned
        return True

    def computed(self, request: TracedRequest) -> None:
        """Let other requests hit the prompt's blocks from now on."""
        if self.dram is None:
            request.held = self.publish(request.blocks, request.held, len(request.blocks))
            if self.host is not None:
                self.host.insert(request.blocks)
        else:
            self.dram.insert(request.blocks)

    def let_go(self, request: TracedRequest, stored_tokens: int) -> None:
        """Release the blocks of a request that leaves with `stored_tokens` tokens in memory."""
        self.release(request.blocks, request.held, self._blocks_for(stored_tokens) - request.held * self.per_prefix_block)
        request.held = 0

    def holds(self, blocks: Sequence[int]) -> int:
        """Return the number of leading prefix blocks of a prompt that this instance has cached and other instances can
        fetch.
        """
        return self._held(blocks, len(blocks))

    def fetched(self, blocks: Sequence[int]) -> None:
        """Cache leading prefix blocks that were fetched from another instance."""
        if self.dram is None:
            self.adopt(blocks)
        else:
            self.dram.insert(blocks)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)
