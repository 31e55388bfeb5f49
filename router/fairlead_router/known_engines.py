"""What the engines of one pool said last, and what of it is not as the pool's spec says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from fairlead.reports.engines import EngineTrouble, TroubledEngine
from fairlead.tables import PoolKey
from fairlead_router.engine_pages import EnginePage

CACHE_SIZE_STEP = 0.05
"""A cache size that is nearer than this to the one in use changes nothing."""


class KnownEngines:
    """The engines of one pool by instance. One that does not answer has no usage and no page."""

    __slots__ = ("_cache_sizes", "_pool", "cache_tokens", "kv_usage", "pages", "troubles")

    def __init__(self, pool: PoolKey) -> None:
        self._pool = pool
        self.kv_usage: dict[str, float] = {}
        self.pages: dict[str, EnginePage] = {}
        """What each engine's metrics said last."""
        self.troubles: defaultdict[str, dict[EngineTrouble, str]] = defaultdict(dict)
        """By instance: what is not as the spec says, in words."""
        self.cache_tokens: int | None = None
        """The size of KV caches that routing goes by, where engines told theirs: the smallest."""
        self._cache_sizes: dict[str, int] = {}

    def keep_only(self, instances: Set[str]) -> None:
        """Forget all other instances."""
        for kept in (self.kv_usage, self.pages, self._cache_sizes, self.troubles):
            for gone in kept.keys() - instances:
                del kept[gone]

    def learn_cache_size(self, instance: str, tokens: int, declared: int) -> bool:
        """An engine told how many tokens its KV cache holds. Returns whether `cache_tokens` changed."""
        self._cache_sizes[instance] = tokens
        smallest = min(self._cache_sizes.values())
        in_use = declared if self.cache_tokens is None else self.cache_tokens
        if abs(smallest / in_use - 1) <= CACHE_SIZE_STEP:
            return False
        self.cache_tokens = smallest
        return True

    def troubled(self) -> tuple[TroubledEngine, ...]:
        """What is not as the spec says, by instance."""
        return tuple(
            TroubledEngine(pool=self._pool, instance=instance, trouble=trouble, words=words)
            for instance, found in sorted(self.troubles.items())
            for trouble, words in sorted(found.items())
        )
