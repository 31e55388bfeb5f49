"""Sends canaries, which are requests for one token to idle engines, where the pool allows it. Only a request shows
whether an idle engine hangs. Without a canary, the next client's request would be the first to hang.

Each data-parallel rank of an engine gets its own canary. A stalled engine gets canaries too, so that no client's
request is needed to see that it works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import orjson

from fairlead.instances import REACHABLE
from fairlead.routing.knowledge.progress import CANARY_SECONDS, LEAST_SECONDS, EngineProgress
from fairlead.targets import rank_of
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.requests import RANK_HEADER

LOOK_SECONDS = 1.0
UNABLE_SECONDS = 3600.0
"""Seconds until the next canary for an engine that has responded to a canary with an error."""
PATH = "/v1/completions"
AT_ONCE = 16

logger = logging.getLogger(__name__)


class Canaries:
    """Sends the canaries of all pools. `awake` is the clock by which engines' progress is measured."""

    def __init__(self, pools: Pools, upstream: UpstreamPool, awake: Callable[[], float]) -> None:
        self._pools = pools
        self._upstream = upstream
        self._awake = awake
        self._due: dict[tuple[str, str, str], float] = {}
        self._asking: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    async def send(self) -> None:
        """Send the canaries that are due. Runs every LOOK_SECONDS."""
        present = {
            (str(pool.key), target, entry.address): pool
            for pool in self._pools.all()
            if pool.table.engine.canary
            for entry in pool.table.instances
            if entry.state in REACHABLE
            for target in pool.targets(entry.id)
        }
        self._due = {key: due for key, due in self._due.items() if key in present}
        for key, task in tuple(self._asking.items()):
            if task.done():
                del self._asking[key]
                task.result()
        now = self._awake()
        for key, pool in present.items():
            progress = pool.engines.lives.get(key[1])
            if progress is None or key in self._asking or len(self._asking) >= AT_ONCE or self._due.get(key, 0.0) > now:
                continue
            if progress.wants_canary(now):
                self._due[key] = now + CANARY_SECONDS
                self._asking[key] = asyncio.create_task(self._ask(key, pool, progress), name=f"canary {key[1]}")

    async def _ask(self, key: tuple[str, str, str], pool: Pool, progress: EngineProgress) -> None:
        _, target, address = key
        rank = rank_of(target)
        headers = b"" if rank is None else b"%s: %d\r\n" % (RANK_HEADER, rank)
        body = orjson.dumps({"model": pool.table.model, "prompt": "1", "max_tokens": 1, "temperature": 0})
        asked_at = self._awake()
        outcome = "answered"
        try:
            await self._upstream.fetch(address, PATH, seconds=LEAST_SECONDS, headers=headers, body=body)
            progress.moved(self._awake())
        except UpstreamFailure as failure:
            outcome = failure.kind
            if failure.kind == "timeout":
                outcome = "hung" if progress.canary_unanswered(asked_at, self._awake()) else "late"
            elif failure.kind in ("status", "protocol"):
                self._due[key] = self._awake() + UNABLE_SECONDS
                extra = {"pool": str(pool.key), "instance": target, "error": str(failure)}
                logger.warning("engine cannot compute a canary (a request for one token); the next attempt is in an hour", extra=extra)
        pool.counters.canaries[outcome] += 1
