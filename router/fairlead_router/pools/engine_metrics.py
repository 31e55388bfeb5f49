"""Reads every engine's metrics once a second, and its list of models every 30 s.

The scheduler gets the used share of the KV cache of each rank. The pool gets the cache's size and the data-parallel
ranks. A difference between an engine's report and the pool's spec is recorded as a trouble, for the control API.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection

from fairlead.instances import REACHABLE, InstanceState
from fairlead.plausibility import METRICS_BYTES, PAGE_BYTES, shown
from fairlead.reports.engines import EngineTrouble
from fairlead.tables import InstanceEntry
from fairlead_process.tasks import beside_the_loop
from fairlead_router.engines.engine_pages import METRIC_NAMES, EnginePage, PageUnreadable, fetched_blocks, read_models, read_page
from fairlead_router.engines.model_cards import read_cards
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.engine_lives import EngineLives
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools

SCRAPE_SECONDS = 1.0
MODELS_SECONDS = 30.0
DOUBTED_SECONDS = 0.05
TIMEOUT_SECONDS = 0.9
PATIENT_SECONDS = 5.0
"""Timeout in seconds for an engine that did not respond before. It is longer than the usual timeout, to find out
whether the engine is slow or hangs.
"""
AT_ONCE = 16
MOST_NAMED = 5
METRICS, MODELS = "its metrics", "its list of models"
"""Names of two kinds of reports from an engine, for messages that name an implausible report."""
_SILENT = ("timeout", "unreachable")
"""Kinds of failure that mean that an engine did not respond. After any other failure, the engine counts as responding.
"""

logger = logging.getLogger(__name__)


class EngineScraper:
    """Reads the metrics of all reachable instances of all pools.

    An instance that does not respond has no metrics, and policies treat its load as unknown.
    """

    def __init__(
        self,
        pools: Pools,
        upstream: UpstreamPool,
        silences: Silences,
        lives: EngineLives,
        metrics: RouterMetrics,
        now: Callable[[], float],
    ) -> None:
        self._pools = pools
        self._upstream = upstream
        self._silences = silences
        self._lives = lives
        self._metrics = metrics
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._patient_slots = asyncio.Semaphore(AT_ONCE)
        self._reading: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._models_due: dict[tuple[str, str], float] = {}

    async def scrape(self) -> None:
        """Read the metrics of every instance that can be reached, and of lost instances that have requests. Runs every
        SCRAPE_SECONDS. A slow instance delays no other instance.
        """
        present = [(pool, entry) for pool in self._pools.all() for entry in pool.table.instances if _is_read(pool, entry)]
        keys = {(str(pool.key), entry.id) for pool, entry in present}
        self._models_due = {key: due for key, due in self._models_due.items() if key in keys}
        self._silences.keep({entry.address for _, entry in present})
        self._lives.keep(present)
        for pool, entry in present:
            key = (str(pool.key), entry.id)
            if key not in self._reading:
                self._reading[key] = asyncio.create_task(self._read_one(pool, entry), name=f"read {entry.id}")
        for pool in {id(pool): pool for pool, _ in present}.values():
            pool.engines.forget_implausible(self._now())
        if self._reading:
            await asyncio.wait(self._reading.values(), timeout=SCRAPE_SECONDS)
        for key, task in tuple(self._reading.items()):
            if task.done():
                del self._reading[key]
                task.result()

    async def read_doubted(self) -> None:
        """Read the model lists of engines that have refused a model's name and so may lack it. Runs every
        DOUBTED_SECONDS, and reads each list at most once in SCRAPE_SECONDS.
        """
        doubted = [(pool, name, pool.addresses[name]) for pool in self._pools.all() for name in pool.choice.names.doubted]
        if doubted:
            await asyncio.gather(*(self._check_models(*one) for one in doubted))

    async def _read_one(self, pool: Pool, entry: InstanceEntry) -> None:
        """Read one engine's metrics. If reading fails because of a bug, the other engines are not affected."""
        try:
            await self._read(pool, entry)
        except Exception:
            logger.exception("reading an engine failed", extra={"pool": str(pool.key), "instance": entry.id})

    async def _read(self, pool: Pool, entry: InstanceEntry) -> None:
        instance, address = entry.id, entry.address
        is_silent = not math.isinf(self._silences.since(address))
        async with self._patient_slots if is_silent else self._slots:
            page = await self._metrics_page(pool, entry, PATIENT_SECONDS if is_silent else TIMEOUT_SECONDS)
            await self._check_models(pool, instance, address)
        pool.engines.read(instance, page, _plausible(None if page is None else page.kv_usage))
        if page is not None:
            self._judge(pool, instance, page)
        self._observe(pool, instance, address, page)

    def _observe(self, pool: Pool, instance: str, address: str, page: EnginePage | None) -> None:
        figures = {} if page is None else pool.engines.figures(instance, address, page)
        for target in pool.targets(instance):
            told = figures.get(target)
            usage, waiting = (None, None) if told is None else (_plausible(told.kv_usage), told.waiting)
            pool.scheduler.observe_engine(target, usage, self._now(), waiting)

    async def _metrics_page(self, pool: Pool, entry: InstanceEntry, seconds: float) -> EnginePage | None:
        instance, address = entry.id, entry.address
        engine = pool.engine_of(instance)
        try:
            page = await self._upstream.fetch(address, engine.metrics_path, seconds=seconds, limit=METRICS_BYTES)
        except UpstreamFailure as failure:
            self._metrics.scrape_errors += 1
            if isinstance(failure, BeyondBounds):
                pool.engines.implausible(instance, METRICS, failure.words, self._now())
            if failure.kind in _SILENT:
                self._silences.unanswered(address)
            else:
                self._heard(pool, instance, address)
            pool.see_ranks(instance, _ranks(pool, instance, address, None), self._now())
            return None
        self._heard(pool, instance, address)
        told = await beside_the_loop(len(page), read_page, page, engine.type, engine.kv_usage_metric)
        pool.engines.implausible(instance, METRICS, told.implausible, self._now())
        if pool.moves_caches:
            pool.engines.read_fetched(instance, *await beside_the_loop(len(page), fetched_blocks, page))
        pool.see_ranks(instance, _ranks(pool, instance, address, told), self._now())
        self._silences.runs(address, told.running or 0)
        self._lives.saw(pool, entry, told)
        return told

    def _heard(self, pool: Pool, instance: str, address: str) -> None:
        self._silences.heard(address)
        pool.scheduler.instance_heard(instance, self._now())

    def _judge(self, pool: Pool, instance: str, page: EnginePage) -> None:
        name = pool.engine_of(instance).kv_usage_metric
        sizes = [one.kv_cache_tokens for one in (page.ranks.values() if pool.ranks(instance) else ()) if one.kv_cache_tokens]
        size = min(sizes, default=page.kv_cache_tokens)
        if size is not None:
            pool.learn_cache_size(instance, size, self._now())
        missing = f"its metrics have no gauge {name}; correct engine.metrics.kvUsage" if page.kv_usage is None else None
        implausible = None
        if page.kv_usage is not None and _plausible(page.kv_usage) is None:
            pool.counters.implausible_usages += 1
            implausible = f"{name} is {page.kv_usage:g}, which is not a share from 0 to 1"
        pool.engines.found(instance, EngineTrouble.KV_USAGE_MISSING, missing)
        pool.engines.found(instance, EngineTrouble.KV_USAGE_IMPLAUSIBLE, implausible)

    async def _check_models(self, pool: Pool, instance: str, address: str) -> None:
        """Read the engine's list of models if it is time, and record the declared names that it lacks. If the engine
        has no list, or the router may not read the list, the engine counts as serving every declared name.
        """
        key, now = (str(pool.key), instance), self._now()
        due = self._models_due.get(key, 0.0)
        if due - (MODELS_SECONDS - SCRAPE_SECONDS if instance in pool.choice.names.doubted else 0.0) > now:
            return
        self._models_due[key] = now + MODELS_SECONDS
        try:
            answer = await self._upstream.fetch(address, "/v1/models", seconds=TIMEOUT_SECONDS, limit=PAGE_BYTES)
            told = await beside_the_loop(len(answer), read_models, answer)
        except (UpstreamFailure, PageUnreadable) as problem:
            pool.choice.names.unlisted(instance)
            words = problem.words if isinstance(problem, BeyondBounds) else str(problem) if isinstance(problem, PageUnreadable) else ""
            pool.engines.implausible(instance, MODELS, words, now)
            return
        models = told.names
        pool.engines.implausible(instance, MODELS, told.implausible, now)
        pool.choice.listed(instance, models, now, pool.engines.aliases)
        model = pool.table.model
        pool.engines.learn_cards(instance, await beside_the_loop(len(answer), read_cards, answer), model)
        missing = [adapter for adapter in pool.table.adapters if adapter not in models]
        named = ", ".join(shown(model) for model in models[:MOST_NAMED]) or "none"
        lacks = ", ".join(adapter[:100] for adapter in missing[:MOST_NAMED])
        no_adapter = f"it serves {named}, not {lacks}; correct spec.adapters or --lora-modules" if missing else None
        no_model = f"it serves {named}, not {model}; correct spec.model or --served-model-name" if model not in models else None
        pool.engines.found(instance, EngineTrouble.ADAPTER_NOT_SERVED, no_adapter)
        pool.engines.found(instance, EngineTrouble.MODEL_NOT_SERVED, no_model)


def _is_read(pool: Pool, entry: InstanceEntry) -> bool:
    if entry.state in REACHABLE:
        return True
    return entry.state is InstanceState.LOST and any(pool.scheduler.take_given(one).requests for one in pool.targets(entry.id))


def _ranks(pool: Pool, instance: str, address: str, page: EnginePage | None) -> Collection[int]:
    """Return the data-parallel ranks that the engine reports on its metrics page. If the page may lack ranks, the ranks
    that it reports elsewhere are added.
    """
    shown = () if page is None else tuple(page.ranks)
    if shown and METRIC_NAMES[pool.engine_of(instance).type].tells_all_ranks:
        return shown
    return {*shown, *pool.engines.told_ranks.get((instance, address), ())}


def _plausible(usage: float | None) -> float | None:
    return usage if usage is not None and 0 <= usage <= 1 else None
