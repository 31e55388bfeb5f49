"""The latest reports of a pool's engines, their troubles, and earlier measurements of the engines.

Measurements by other routers, or by an earlier process of this router, are used instead of values that this router has
not measured, as long as they are recent enough.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace

from fairlead.capabilities import UNKNOWN, Figure
from fairlead.plausibility import KV_BYTES_PER_TOKEN, shown
from fairlead.reports.engines import EngineMemory, EngineTrouble, TroubledEngine
from fairlead.routing.knowledge.engine_memories import believed, joined
from fairlead.routing.knowledge.progress import EngineProgress, Life
from fairlead.tables import InstanceEntry, PoolKey, RoutingTable
from fairlead.targets import Ranks, RanksSeen, instance_of, rank_of, target_of
from fairlead_router.engines.engine_pages import EngineFigures, EnginePage
from fairlead_router.engines.model_cards import Card, aliases_of

logger = logging.getLogger(__name__)

IMPLAUSIBLE_SECONDS = 120.0
"""Seconds for which an implausible report of an engine counts as a trouble of its instance. This is longer than the
interval at which any report is read.
"""
_LONGEST_WORDS = 200

CACHE_SIZE_STEP = 0.05
"""Minimum relative change of the cache size. If a newly reported size differs less from the size in use, it is ignored.
"""


class KnownEngines:
    """Facts about the engines of one pool, by instance. An engine that does not respond has no KV cache usage and no
    metrics page here. Other modules may read the attributes, but change them only by the methods.
    """

    __slots__ = (
        "_cache_sizes", "_fetched", "_implausible", "_pool", "_ranks",
        "aliases", "cache_tokens", "cards", "kv_usage", "lives", "pages", "told_ranks", "troubles",
    )  # fmt: skip

    def __init__(self, pool: PoolKey) -> None:
        self._pool = pool
        self.kv_usage: dict[str, float] = {}
        self.pages: dict[str, EnginePage] = {}
        """By instance: the last metrics page of the engine."""
        self.lives: dict[str, EngineProgress] = {}
        """By target: the progress of the engine or, if the engine has several data-parallel ranks, of the rank."""
        self.troubles: defaultdict[str, dict[EngineTrouble, str]] = defaultdict(dict)
        """By instance: its troubles, such as a difference from the pool's spec, each with a message."""
        self._implausible: defaultdict[str, dict[str, tuple[str, float]]] = defaultdict(dict)
        """By instance, and then by subject of the report: the message about the latest implausible report, and its
        time.
        """
        self.cache_tokens: int | None = None
        """Number of tokens that a KV cache holds, for routing: the smallest size that an engine reported. None if no
        engine has reported a size, or the sizes are close to the declared size. For an engine with several ranks, the
        size of one rank.
        """
        self._cache_sizes: dict[str, int] = {}
        self._fetched: dict[str, tuple[float, float]] = {}
        self._ranks: dict[tuple[str, str], RanksSeen] = {}
        """By instance and address: the data-parallel ranks of the engine. The address is needed because a new process
        of an instance, at another address, may have other ranks.
        """
        self.told_ranks: dict[tuple[str, str], Collection[int]] = {}
        """By instance and address: the rank indexes that the engine reported outside of its metrics page."""
        self.cards: dict[str, Mapping[str, Card]] = {}
        """By instance: the latest model cards of the engine, by model name."""
        self.aliases: frozenset[str] = frozenset()
        """Further names under which all engines of the pool serve its model."""

    def keep_only(self, instances: Set[str], model: str) -> None:
        """Forget all instances that are not among `instances`. `model` is the pool's model."""
        self._ranks = {key: seen for key, seen in self._ranks.items() if key[0] in instances}
        self.told_ranks = {key: told for key, told in self.told_ranks.items() if key[0] in instances}
        self.lives = {target: life for target, life in self.lives.items() if instance_of(target) in instances}
        for kept in (self.kv_usage, self.pages, self._cache_sizes, self._fetched, self._implausible, self.troubles, self.cards):
            for gone in kept.keys() - instances:
                del kept[gone]
        self.aliases = aliases_of(model, self.cards.values())

    def read(self, instance: str, page: EnginePage | None, kv_usage: float | None) -> None:
        """Record a metrics page and the used share of the KV cache. `page` is None if the engine did not respond;
        `kv_usage` is None if it reports no plausible share.
        """
        if page is None:
            self.pages.pop(instance, None)
        else:
            self.pages[instance] = page
        if kv_usage is None:
            self.kv_usage.pop(instance, None)
        else:
            self.kv_usage[instance] = kv_usage

    def read_fetched(self, instance: str, size: float, tokens: float) -> None:
        """Record the bytes and tokens of KV blocks that the engine has fetched from other engines since its start."""
        self._fetched[instance] = (size, tokens)

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes of the KV blocks of one token, computed from engines' fetches from each other. None before the first
        fetch, or if the result is implausible.
        """
        size, tokens = (sum(told) for told in zip(*self._fetched.values(), strict=True)) if self._fetched else (0.0, 0.0)
        return size / tokens if tokens and KV_BYTES_PER_TOKEN.holds(size / tokens) else None

    def name_ranks(self, instance: str, address: str, names: Collection[int]) -> None:
        """Record the rank indexes that the engine reported outside of its metrics page."""
        self.told_ranks[instance, address] = names

    def life(self, target: str, least_seconds: float) -> EngineProgress:
        """Return the progress of the engine at this target. A target that is not known yet gets a new progress, which
        allows at least `least_seconds` for each step of the engine.
        """
        found = self.lives.get(target)
        if found is None:
            found = self.lives[target] = EngineProgress(least_seconds)
        return found

    def forget_life(self, target: str) -> None:
        """Forget the progress of the engine at this target, because a new engine has replaced it."""
        del self.lives[target]

    def learn_cards(self, instance: str, cards: Mapping[str, Card], model: str) -> None:
        """Record the model cards that an engine listed. `model` is the pool's model."""
        self.cards[instance] = cards
        self.aliases = aliases_of(model, self.cards.values())

    def see_ranks(self, instance: str, address: str, names: Collection[int], now: float) -> bool:
        """Record the indexes of all data-parallel ranks that an engine reported. Return whether they have changed."""
        return self._ranks.setdefault((instance, address), RanksSeen()).see(names, now)

    def ranks(self, entries: Iterable[InstanceEntry]) -> Mapping[str, Ranks]:
        """Return the ranks of each of these instances, by instance. Instances that do not have several ranks are left
        out.
        """
        found = {entry.id: self._ranks.get((entry.id, entry.address)) for entry in entries}
        return {instance: seen.ranks for instance, seen in found.items() if seen is not None and seen.ranks}

    def target(self, instance: str, address: str, name: int | None) -> str:
        """Return the target of the engine's rank with the index `name`. Return the whole instance if `name` is None or
        the engine is not known to have several ranks.
        """
        seen = self._ranks.get((instance, address))
        return target_of(instance, None if seen is None or name is None else seen.rank(name))

    def figures(self, instance: str, address: str, page: EnginePage) -> Mapping[str, EngineFigures]:
        """Return the metrics of an engine's page, by target."""
        seen = self._ranks.get((instance, address))
        if seen is None or not seen.ranks:
            return {instance: page}
        return {target_of(instance, rank): one for rank, one in self.rank_figures(instance, address, page).items()}

    def rank_figures(self, instance: str, address: str, page: EnginePage) -> Mapping[int, EngineFigures]:
        """Return the metrics of a page by rank index. Empty unless the engine is known to have several ranks."""
        seen = self._ranks.get((instance, address))
        ranks = () if seen is None else ((seen.rank(name), one) for name, one in page.ranks.items())
        return {rank: one for rank, one in ranks if rank is not None}

    @property
    def told_cache_sizes(self) -> Collection[int]:
        """The KV cache sizes in tokens that engines reported. An engine with several ranks has the size of its smallest
        rank.
        """
        return self._cache_sizes.values()

    def learn_cache_size(self, instance: str, tokens: int, declared: int) -> bool:
        """Record the number of tokens that an engine's KV cache holds (the smallest cache of an engine with several
        ranks). Return whether `cache_tokens` has changed. `declared`: the size in use while `cache_tokens` is None.
        """
        self._cache_sizes[instance] = tokens
        smallest = min(self._cache_sizes.values())
        in_use = declared if self.cache_tokens is None else self.cache_tokens
        if abs(smallest / in_use - 1) <= CACHE_SIZE_STEP:
            return False
        self.cache_tokens = smallest
        return True

    def found(self, instance: str, trouble: EngineTrouble, words: str | None) -> None:
        """Record that an instance has this trouble. `words` is the message; None removes the trouble."""
        if words is not None:
            self.troubles[instance][trouble] = words
        elif instance in self.troubles:
            self.troubles[instance].pop(trouble, None)

    def implausible(self, instance: str, subject: str, words: str, now: float) -> None:
        """Record an implausible report of an engine about `subject`. `words` is the message; "" means that the report
        is plausible. `now` is in Unix seconds. The instance has a trouble until IMPLAUSIBLE_SECONDS after its last
        implausible report.
        """
        said = self._implausible[instance]
        if words:
            if subject not in said:
                extra = {"pool": str(self._pool), "instance": instance, "subject": subject, "error": words[:_LONGEST_WORDS]}
                logger.warning("an engine reports impossible values, which are ignored", extra=extra)
            said[subject] = (shown(words, _LONGEST_WORDS), now)
        elif not said or said.pop(subject, None) is None:
            return
        self._tell_implausible(instance)

    def forget_implausible(self, now: float) -> None:
        """Drop implausible reports that are older than IMPLAUSIBLE_SECONDS."""
        for instance, said in self._implausible.items():
            gone = [subject for subject, (_, at) in said.items() if now - at >= IMPLAUSIBLE_SECONDS]
            for subject in gone:
                del said[subject]
            if gone:
                self._tell_implausible(instance)

    def _tell_implausible(self, instance: str) -> None:
        words = "; ".join(f"{subject}: {words}" for subject, (words, _) in sorted(self._implausible[instance].items()))
        self.found(
            instance, EngineTrouble.REPORTS_IMPLAUSIBLE, f"some of its reports are impossible and ignored: {words}" if words else None
        )

    def troubled(self) -> tuple[TroubledEngine, ...]:
        """Return all troubles of the pool's engines, sorted by instance."""
        return tuple(
            TroubledEngine(
                pool=self._pool,
                instance=instance,
                trouble=trouble,
                words=words,
                seconds=self._seconds(instance, trouble),
                ranks=self._stalled_ranks(instance) if trouble is EngineTrouble.ENGINE_STALLED else (),
            )
            for instance, found in sorted(self.troubles.items())
            for trouble, words in sorted(found.items())
        )

    def lives_of(self, instance: str) -> Mapping[int | None, EngineProgress]:
        """Return the progress of an instance's engine, by rank index. The key is None for an engine without ranks."""
        return {rank_of(target): life for target, life in sorted(self.lives.items()) if instance_of(target) == instance}

    def _stalled_ranks(self, instance: str) -> tuple[int, ...]:
        lives = self.lives_of(instance)
        stalled = tuple(rank for rank, life in lives.items() if rank is not None and life.life is Life.STALLED)
        return stalled if len(stalled) < len(lives) else ()

    def _seconds(self, instance: str, trouble: EngineTrouble) -> float:
        if trouble is not EngineTrouble.ENGINE_STALLED:
            return 0.0
        return max((life.stalled_seconds for life in self.lives_of(instance).values()), default=0.0)


class RecalledEngines:
    """Earlier measurements of the pool's engines, by other routers or by an earlier process of this router. The
    measurements are for a whole instance.

    Each `table` that is passed to a method must have the pool's instances and the current bytes per token.
    """

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory: EngineMemory | None = None

    def take(self, memory: EngineMemory, table: RoutingTable, now: float) -> EngineMemory | None:
        """Keep each measurement in `memory` that is newer, or from a better source, than the kept measurement. Return
        all kept measurements; None if there are none.
        """
        self._memory = joined(self.of_instance(table, now), believed(memory, table, now))
        return self._memory

    def measured(self, memory: EngineMemory, bytes_per_token: Figure, parts: int, table: RoutingTable, now: float) -> EngineMemory | None:
        """Keep measurements that this router made at one of the `parts` ranks of an instance, converted to the whole
        instance. Return all kept measurements; None if there are none.

        After an hour without requests, a router has forgotten its observations and uses the kept measurements, as it
        does after a restart.
        """
        known = replace(
            memory.known,
            prefill_tokens_per_second=_times(memory.known.prefill_tokens_per_second, parts),
            bytes_per_token=bytes_per_token,
        )
        return self.take(replace(memory, known=known), table, now)

    def of_instance(self, table: RoutingTable, now: float) -> EngineMemory | None:
        """Return the kept measurements that still apply to the engines of this table; None if there are none."""
        self._memory = None if self._memory is None else believed(self._memory, table, now)
        return self._memory

    def of_target(self, parts: int, table: RoutingTable, now: float) -> EngineMemory | None:
        """Return the measurements that `of_instance` returns, converted to one of the `parts` ranks of an instance: a
        rank has that fraction of the instance's speed. None if there are none.
        """
        memory = self.of_instance(table, now)
        if memory is None:
            return None
        part = _times(memory.known.prefill_tokens_per_second, 1 / parts)
        return replace(memory, known=replace(memory.known, prefill_tokens_per_second=part))

    def bytes_per_token(self, table: RoutingTable, now: float) -> Figure:
        """Return the measured bytes of prompt text per token; an unknown `Figure` if there is no measurement."""
        memory = self.of_instance(table, now)
        return UNKNOWN if memory is None else memory.known.bytes_per_token


def _times(figure: Figure, times: float) -> Figure:
    return figure if figure.value is None or times == 1 else replace(figure, value=figure.value * times, spread=None)
