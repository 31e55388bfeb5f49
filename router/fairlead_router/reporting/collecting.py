"""Moves records from the schedulers, and the counts of keys, to the disk.

Five times a second the collector takes what was recorded and cuts it into batches. It writes every batch before any of
it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fairlead_router.key_use import KeyUseCounts
from fairlead_router.pools import Pools
from fairlead_router.reporting.batches import OF_SCHEDULERS, Batch, Record, encode_batches
from fairlead_router.reporting.spool import Cargo, Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics

BATCH_SECONDS = 0.2
"""Pause between two collections, in seconds."""
MOST_UNSPOOLED = 256
"""Most batches kept in memory while the disk accepts none."""

logger = logging.getLogger(__name__)


class Collector:
    """Takes records from schedulers and puts them on disk; `on_spooled` is called when there is something new there."""

    def __init__(
        self,
        router: str,
        pools: Pools,
        key_use: KeyUseCounts,
        spool: Spool,
        metrics: SpoolMetrics,
        now: Callable[[], float],
        new_id: Callable[[], str],
        on_spooled: Callable[[], None],
    ) -> None:
        self._router = router
        self._pools = pools
        self._key_use = key_use
        self._spool = spool
        self._metrics = metrics
        self._now = now
        self._new_id = new_id
        self._on_spooled = on_spooled
        self._unspooled: list[Batch] = []

    async def collect(self, *, final: bool = False) -> None:
        """Take all records and put them on disk.

        If the disk refuses some, they stay in memory, up to a bound, and are tried again.
        """
        dropped = 0
        now = self._now()
        records: dict[str, list[Record]] = {"key_use": list(self._key_use.take(now, final=final))}
        for pool in self._pools.living():
            ended = self._pools.has_ended(pool)
            taken = pool.scheduler.take_records(now, final=final or ended)
            for name in OF_SCHEDULERS:
                records.setdefault(name, []).extend(getattr(taken, name))
            traffic, lost = pool.traffic.take(pool.table)
            records.setdefault("traffic", []).extend(traffic)
            dropped += taken.dropped + lost
            if ended:
                self._pools.forget(pool)
        fresh = list(encode_batches(self._router, records, self._new_id))
        self._metrics.add(records=sum(batch.records for batch in fresh), unbatched=dropped)
        waiting = self._unspooled + fresh
        if waiting:
            self._unspooled = await asyncio.to_thread(self._store, waiting)
            self._on_spooled()
        self._metrics.refresh()

    def _store(self, batches: list[Batch]) -> list[Batch]:
        """Write the batches. Returns those that the disk refused, cut to the bound."""
        for index, batch in enumerate(batches):
            try:
                self._spool.append(batch.cargo, batch.records, batch.content)
            except OSError as error:
                logger.warning("cannot write to the spool", extra={"error": str(error), "waiting": len(batches) - index})
                return self._bounded(batches[index:])
        return []

    def _bounded(self, batches: list[Batch]) -> list[Batch]:
        """Returns the newest batches within the bound; samples are given up before history."""
        for cargo in (Cargo.SAMPLES, Cargo.HISTORY):
            while len(batches) > MOST_UNSPOOLED and (found := next((batch for batch in batches if batch.cargo is cargo), None)) is not None:
                batches.remove(found)
                self._spool.dropped[cargo.value] += found.records
        return batches
