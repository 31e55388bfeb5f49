"""Reads every engine's metrics once a second and hands the used share of the KV cache to the schedulers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from fairlead.instances import REACHABLE
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pool import Pool
from fairlead_router.pools import Pools
from fairlead_router.upstream import UpstreamPool
from fairlead_router.upstream_connections import UpstreamFailure

SCRAPE_SECONDS = 1.0
TIMEOUT_SECONDS = 0.9
AT_ONCE = 16


def gauge_value(exposition: bytes, name: str) -> float | None:
    """The largest value of a gauge in a Prometheus text page (an engine with several ranks gives one value per rank);
    None when absent or not a number.
    """
    wanted = name.encode()
    best: float | None = None
    place = exposition.find(wanted)
    while place >= 0:
        end = exposition.find(b"\n", place)
        line = exposition[place : end if end >= 0 else len(exposition)]
        after = line[len(wanted) :]
        if (place == 0 or exposition[place - 1 : place] == b"\n") and after[:1] in (b" ", b"{"):
            fields = after[after.rfind(b"}") + 1 :].split()
            try:
                value = float(fields[0]) if fields else math.nan
            except ValueError:
                value = math.nan
            if not math.isnan(value) and (best is None or value > best):
                best = value
        place = exposition.find(wanted, place + 1)
    return best


class EngineScraper:
    """Scrapes all reachable instances of all pools.

    An instance that does not answer has no reading; policies treat that as unknown.
    """

    def __init__(self, pools: Pools, upstream: UpstreamPool, metrics: RouterMetrics, now: Callable[[], float]) -> None:
        self._pools = pools
        self._upstream = upstream
        self._metrics = metrics
        self._now = now
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def scrape(self) -> None:
        """Read every reachable instance once; done every SCRAPE_SECONDS."""
        await asyncio.gather(
            *(
                self._read(pool, entry.id, entry.address)
                for pool in self._pools.all()
                for entry in pool.table.instances
                if entry.state in REACHABLE
            )
        )

    async def _read(self, pool: Pool, instance: str, address: str) -> None:
        engine = pool.table.engine
        async with self._slots:
            try:
                page = await self._upstream.fetch(address, engine.metrics_path, seconds=TIMEOUT_SECONDS)
                usage = gauge_value(page, engine.kv_usage_metric)
                if usage is not None and not 0 <= usage <= 1:
                    usage = None
                    pool.counters.implausible_usages += 1
            except UpstreamFailure:
                usage = None
                self._metrics.scrape_errors += 1
        if usage is None:
            pool.kv_usage.pop(instance, None)
        else:
            pool.kv_usage[instance] = usage
        pool.scheduler.observe_engine(instance, usage, self._now())
