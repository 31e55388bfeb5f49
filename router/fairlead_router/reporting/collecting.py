"""Collects the records of the schedulers and the counts of keys' use, and writes them to disk in batches.

The collector takes history (such as bindings) five times a second, and samples once a second. Each batch is encoded
once, in the form in which it is stored and sent. As long as the disk accepts batches, every batch is written to disk
before it is sent. History is taken more often because it says where sessions are, and other routers wait for it.
Samples are counts of whole seconds, and a post of samples costs as much as a hundred requests.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.reports.batches import ROW_KINDS, Cargo, ReportBatch
from fairlead.reports.bindings import BindingChange
from fairlead.reports.moves import MigrationRecord
from fairlead_client.report_posts import decode_batch, encode_batch
from fairlead_router.pools.key_use import KeyUseCounts
from fairlead_router.pools.pools import Pools
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_router.tracing.tracer import Tracer

BATCH_RECORDS = 500

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """An encoded ReportBatch with history or with samples that is not on disk yet."""

    cargo: Cargo
    records: int
    content: bytes


def encode_batches(router: str, records: dict[str, list[Any]], new_id: Callable[[], str]) -> Iterator[Batch]:
    """Yield batches of about BATCH_RECORDS records. `records`: the records by field of ReportBatch, in order.

    A batch has either history or samples. A migration is always in the same batch as its binding.
    """
    migrations = {record.id: record for record in records.get("migrations", ()) if isinstance(record, MigrationRecord)}
    for cargo in Cargo:
        pending: dict[str, list[Any]] = {}
        size = 0
        for name in [name for name, kind in ROW_KINDS.items() if kind.cargo is cargo]:
            for record in migrations.values() if name == "migrations" else records.get(name, ()):
                pending.setdefault(name, []).append(record)
                size += 1
                if isinstance(record, BindingChange) and record.id in migrations:
                    pending.setdefault("migrations", []).append(migrations.pop(record.id))
                    size += 1
                if size >= BATCH_RECORDS:
                    yield _batch(router, cargo, size, pending, new_id())
                    pending, size = {}, 0
        if size:
            yield _batch(router, cargo, size, pending, new_id())


def _batch(router: str, cargo: Cargo, size: int, fields: dict[str, list[Any]], batch_id: str) -> Batch:
    rows: dict[str, Any] = {name: tuple(records) for name, records in fields.items()}
    return Batch(cargo=cargo, records=size, content=encode_batch(ReportBatch(id=batch_id, router=router, **rows)))


def spooled_changes(spool: Spool) -> tuple[BindingChange, ...]:
    """Return this router's binding changes that are still on disk, oldest first. An earlier process may not have
    delivered them.
    """
    found: list[BindingChange] = []
    for batch in spool.batches(Cargo.HISTORY):
        try:
            found.extend(decode_batch(batch.path.read_bytes()).bindings)
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("spooled batch unreadable", extra={"file": batch.path.name, "error": str(error)})
    return tuple(found)


BATCH_SECONDS = 0.2
"""Seconds between two collections. The first collection of each second also takes samples."""


class Collector:
    """Takes records from the schedulers and writes them to disk. `on_spooled` is called when there are new batches to
    send. The `tracer`, if there is one, gets the records first.
    """

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
        tracer: Tracer | None = None,
    ) -> None:
        self._router = router
        self._pools = pools
        self._key_use = key_use
        self._spool = spool
        self._metrics = metrics
        self._now = now
        self._new_id = new_id
        self._on_spooled = on_spooled
        self._tracer = tracer
        self._unstored: deque[Batch] = deque()
        """Batches that were not written yet. A cancelled call of `collect` may leave batches here."""
        self._storing = threading.Lock()
        self._second = -1
        """The Unix second in which samples were last taken."""

    async def collect(self, *, final: bool = False) -> None:
        """Take the records that are due and write them to disk. Also write the batches that the disk did not accept
        before. `final`: take all records, and wait for the writes of a cancelled call.
        """
        dropped = 0
        now = self._now()
        samples, self._second = final or int(now) != self._second, int(now)
        records: dict[str, list[Any]] = {"key_use": list(self._key_use.take(now, final=final))}
        for pool in self._pools.living():
            ended = self._pools.has_ended(pool)
            whole = samples or ended
            taken = pool.scheduler.take_records(now, samples=whole, final=final or ended)
            if self._tracer is not None:
                self._tracer.take(taken)
            for name in [name for name, kind in ROW_KINDS.items() if kind.of_schedulers]:
                records.setdefault(name, []).extend(getattr(taken, name))
            traffic, usage, lost = pool.account.traffic.take(pool.table) if whole else ((), (), 0)
            records.setdefault("traffic", []).extend(traffic)
            records.setdefault("usage", []).extend(usage)
            pool.counters.unkept_decisions += taken.unkept_decisions
            dropped += taken.dropped + lost
            if ended:
                self._pools.forget(pool)
        fresh = list(encode_batches(self._router, records, self._new_id))
        self._metrics.add(records=sum(batch.records for batch in fresh), unbatched=dropped)
        self._unstored.extend(fresh)
        if self._unstored or final or self._spool.waits_for_disk:
            await asyncio.to_thread(self._store)
            self._on_spooled()
        self._metrics.refresh()

    def _store(self) -> None:
        with self._storing:
            self._spool.write_again()
            while self._unstored:
                batch = self._unstored.popleft()
                self._spool.append(batch.cargo, batch.records, batch.content)
