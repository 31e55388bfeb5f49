"""What the engines of one pool said last, and what of it is not as the pool's spec says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set

from fairlead.reports.engines import EngineTrouble, TroubledEngine
from fairlead.routing.knowledge.progress import EngineProgress
from fairlead.tables import PoolKey
from fairlead_router.engine_pages import EnginePage
from fairlead_router.model_cards import Card, aliases_of

CACHE_SIZE_STEP = 0.05
"""A cache size that is nearer than this to the one in use changes nothing."""


class KnownEngines:
    """The engines of one pool by instance. One that does not answer has no usage and no page."""

    __slots__ = ("_cache_sizes", "_pool", "aliases", "cache_tokens", "cards", "kv_usage", "lives", "pages", "troubles")

    def __init__(self, pool: PoolKey) -> None:
        self._pool = pool
        self.kv_usage: dict[str, float] = {}
        self.pages: dict[str, EnginePage] = {}
        """What each engine's metrics said last."""
        self.lives: dict[str, EngineProgress] = {}
        """How each engine's work goes on."""
        self.troubles: defaultdict[str, dict[EngineTrouble, str]] = defaultdict(dict)
        """By instance: what is not as the spec says, in words."""
        self.cache_tokens: int | None = None
        """The size of KV caches that routing goes by, where engines told theirs: the smallest."""
        self._cache_sizes: dict[str, int] = {}
        self.cards: dict[str, Mapping[str, Card]] = {}
        """What each engine said last of the models it serves, by their names."""
        self.aliases: frozenset[str] = frozenset()
        """Further names of the pool's model at its engines."""

    def keep_only(self, instances: Set[str], model: str) -> None:
        """Forget all other instances; the pool serves this model."""
        for kept in (self.kv_usage, self.pages, self.lives, self._cache_sizes, self.troubles, self.cards):
            for gone in kept.keys() - instances:
                del kept[gone]
        self.aliases = aliases_of(model, self.cards.values())

    def learn_cards(self, instance: str, cards: Mapping[str, Card], model: str) -> None:
        """An engine told which models it serves."""
        self.cards[instance] = cards
        self.aliases = aliases_of(model, self.cards.values())

    def learn_cache_size(self, instance: str, tokens: int, declared: int) -> bool:
        """An engine told how many tokens its KV cache holds. Returns whether `cache_tokens` changed."""
        self._cache_sizes[instance] = tokens
        smallest = min(self._cache_sizes.values())
        in_use = declared if self.cache_tokens is None else self.cache_tokens
        if abs(smallest / in_use - 1) <= CACHE_SIZE_STEP:
            return False
        self.cache_tokens = smallest
        return True

    def found(self, instance: str, trouble: EngineTrouble, words: str | None) -> None:
        """An instance has this trouble, in these words; None: it has not."""
        if words is not None:
            self.troubles[instance][trouble] = words
        elif instance in self.troubles:
            self.troubles[instance].pop(trouble, None)

    def troubled(self) -> tuple[TroubledEngine, ...]:
        """What is not as the spec says, by instance."""
        return tuple(
            TroubledEngine(pool=self._pool, instance=instance, trouble=trouble, words=words, seconds=self._seconds(instance, trouble))
            for instance, found in sorted(self.troubles.items())
            for trouble, words in sorted(found.items())
        )

    def _seconds(self, instance: str, trouble: EngineTrouble) -> float:
        life = self.lives.get(instance) if trouble is EngineTrouble.ENGINE_STALLED else None
        return 0.0 if life is None else life.stalled_seconds
