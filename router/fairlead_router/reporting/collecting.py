"""Moves records from the schedulers, and the counts of keys, to the disk.

Five times a second the collector takes what was recorded and cuts it into batches. It writes every batch before any of
it is sent, as long as the disk accepts them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from fairlead_router.pools.key_use import KeyUseCounts
from fairlead_router.pools.pools import Pools
from fairlead_router.reporting.batches import OF_SCHEDULERS, Batch, Record, encode_batches
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics

BATCH_SECONDS = 0.2
"""Pause between two collections, in seconds."""


class Collector:
    """Takes records from schedulers and puts them on disk; `on_spooled` is called when there are new ones to send."""

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
        self._storing = threading.Lock()

    async def collect(self, *, final: bool = False) -> None:
        """Take all records and put them on disk, with what it did not accept before.

        The `final` call waits for what one that was cancelled has taken and still writes.
        """
        dropped = 0
        now = self._now()
        records: dict[str, list[Record]] = {"key_use": list(self._key_use.take(now, final=final))}
        for pool in self._pools.living():
            ended = self._pools.has_ended(pool)
            taken = pool.scheduler.take_records(now, final=final or ended)
            for name in OF_SCHEDULERS:
                records.setdefault(name, []).extend(getattr(taken, name))
            traffic, lost = pool.account.traffic.take(pool.table)
            records.setdefault("traffic", []).extend(traffic)
            pool.counters.unkept_decisions += taken.unkept_decisions
            dropped += taken.dropped + lost
            if ended:
                self._pools.forget(pool)
        fresh = list(encode_batches(self._router, records, self._new_id))
        self._metrics.add(records=sum(batch.records for batch in fresh), unbatched=dropped)
        if fresh or final or self._spool.unwritten:
            await asyncio.to_thread(self._store, fresh)
            self._on_spooled()
        self._metrics.refresh()

    def _store(self, batches: list[Batch]) -> None:
        with self._storing:
            self._spool.write_again()
            for batch in batches:
                self._spool.append(batch.cargo, batch.records, batch.content)
