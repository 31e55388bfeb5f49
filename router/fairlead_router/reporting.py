"""Reports to the control API: what schedulers recorded, batched, spooled to disk before it is sent, resent in order until acknowledged.

A batch on disk is a Report without its state (acknowledged tables, in-flight counts); the state of the moment is put in when it is sent, because
old counts replayed after an outage would mislead whoever waits for an instance to fall idle.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from fairlead.reports import (
    Binding,
    BindingChange,
    DecisionRecord,
    InstanceInFlight,
    LoadSample,
    MigrationOutcome,
    MigrationRecord,
    RejectionRecord,
    Report,
    ReportReceipt,
    ReRouteRecord,
    RouterGone,
)
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.spool import Cargo, Spool, SpooledBatch

BATCH_SECONDS = 0.2
BATCH_RECORDS = 500
STATE_SECONDS = 1.0
"""With nothing to tell, the state alone is sent this often: it is how the API knows that this router lives."""
REFUSED_FOR_EVER = frozenset({400, 413, 422})
"""Answers that resending cannot change."""

logger = logging.getLogger("fairlead.router.reporting")

_encoder = msgspec.json.Encoder()
_receipt = msgspec.json.Decoder(ReportReceipt)
_report = msgspec.json.Decoder(Report)

Record = BindingChange | MigrationRecord | MigrationOutcome | ReRouteRecord | DecisionRecord | RejectionRecord | LoadSample

_FIELDS: tuple[tuple[Cargo, str], ...] = (
    (Cargo.HISTORY, "bindings"),
    (Cargo.HISTORY, "migrations"),
    (Cargo.HISTORY, "migration_outcomes"),
    (Cargo.HISTORY, "reroutes"),
    (Cargo.HISTORY, "reroute_outcomes"),
    (Cargo.HISTORY, "rejections"),
    (Cargo.SAMPLES, "decisions"),
    (Cargo.SAMPLES, "loads"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one cargo that are not on disk yet, encoded as a Report without state."""

    cargo: Cargo
    records: int
    content: bytes


def encode_batches(router: str, records: dict[str, list[Record]], new_id: Callable[[], str]) -> Iterator[Batch]:
    """Cut records (by field name of Report, in order) into batches of at most BATCH_RECORDS, history apart from samples."""
    for cargo in Cargo:
        pending: dict[str, list[Record]] = {}
        size = 0
        for of, name in _FIELDS:
            if of is not cargo:
                continue
            for record in records.get(name, ()):
                pending.setdefault(name, []).append(record)
                size += 1
                if size == BATCH_RECORDS:
                    yield _batch(router, cargo, size, pending, new_id())
                    pending, size = {}, 0
        if size:
            yield _batch(router, cargo, size, pending, new_id())


def _batch(router: str, cargo: Cargo, size: int, fields: dict[str, list[Record]], batch_id: str) -> Batch:
    document: dict[str, Any] = {"id": batch_id, "router": router, **fields}
    return Batch(cargo=cargo, records=size, content=_encoder.encode(document))


def spooled_bindings(spool: Spool) -> tuple[Binding, ...]:
    """The last own binding per session among batches an earlier process could not deliver, at the version they were based on: whatever the API
    decides about them is newer."""
    latest: dict[tuple[str, str], Binding] = {}
    for batch in spool.batches():
        if batch.cargo is not Cargo.HISTORY:
            continue
        try:
            report = _report.decode(_with_state(batch.path.read_bytes(), b'"sent_at":0'))
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("spooled batch unreadable", extra={"file": batch.path.name, "problem": str(error)})
            continue
        for change in report.bindings:
            latest[str(change.pool), change.session] = Binding(
                pool=change.pool,
                session=change.session,
                instance=change.instance,
                version=change.based_on,
                reason=change.reason,
                bound_at=change.at,
                migrated_at=None if change.previous is None else change.at,
                context_tokens=change.context_tokens,
            )
    return tuple(latest.values())


def _with_state(content: bytes, state: bytes) -> bytes:
    """A stored batch is a JSON object; the state's members are put at its front."""
    return b"{" + state + b"," + content[1:]


class Reporter:
    """Collects from schedulers and sends. `collect_forever` and `send_forever` run side by side; `finish` is the last act."""

    def __init__(
        self,
        router: str,
        pools: Pools,
        spool: Spool,
        client: httpx.AsyncClient,
        metrics: RouterMetrics,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._router = router
        self._pools = pools
        self._spool = spool
        self._client = client
        self._metrics = metrics
        self._now = now
        self._new_id = new_id
        self._unspooled: list[Batch] = []
        self._news = asyncio.Event()
        self._state_sent_at = 0.0
        self._random = random.Random()  # only for jitter between retries

    # ── collecting ──

    async def collect_forever(self) -> None:
        """Every BATCH_SECONDS."""
        while True:
            await asyncio.sleep(BATCH_SECONDS)
            await self.collect()

    async def collect(self, *, final: bool = False) -> None:
        """Take all records and put them on disk. What the disk does not take is kept in memory, bounded, and tried again."""
        records: dict[str, list[Record]] = {}
        now = self._now()
        for pool in self._pools.living():
            taken = pool.scheduler.take_records(now, final=final)
            for _, name in _FIELDS:
                records.setdefault(name, []).extend(getattr(taken, name))
            if taken.dropped:
                self._metrics.report_drops["unbatched"] += taken.dropped
        fresh = list(encode_batches(self._router, records, self._new_id))
        self._metrics.report_records += sum(batch.records for batch in fresh)
        waiting = self._unspooled + fresh
        if not waiting:
            return
        self._unspooled = await asyncio.to_thread(self._store, waiting)
        self._count_spool()
        self._news.set()

    def _store(self, batches: list[Batch]) -> list[Batch]:
        for index, batch in enumerate(batches):
            try:
                self._spool.append(batch.cargo, batch.records, batch.content)
            except OSError as error:
                logger.warning("cannot write to the spool", extra={"problem": str(error), "waiting": len(batches) - index})
                return self._bounded(batches[index:])
        return []

    def _bounded(self, batches: list[Batch]) -> list[Batch]:
        for cargo in (Cargo.SAMPLES, Cargo.HISTORY):
            while len(batches) > 256 and (found := next((batch for batch in batches if batch.cargo is cargo), None)) is not None:
                batches.remove(found)
                self._spool.dropped[cargo.value] += found.records
        return batches

    def _count_spool(self) -> None:
        self._metrics.spool_bytes = self._spool.size
        self._metrics.spool_batches = len(self._spool)
        for cargo, count in self._spool.dropped.items():
            self._metrics.report_drops[cargo] = count

    # ── sending ──

    async def send_forever(self) -> None:
        """Oldest batch first, one at a time; growing pauses with jitter while the API does not answer."""
        pause = BATCH_SECONDS
        while True:
            if await self._send_next():
                pause = BATCH_SECONDS
            else:
                await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
                pause = min(pause * 2, 5.0)

    async def _send_next(self) -> bool:
        """Send one batch, or the state alone when it is due, or wait for either. False when the API did not take it."""
        batch = self._spool.oldest()
        if batch is not None:
            return await self.deliver(batch)
        self._news.clear()
        due = self._state_sent_at + STATE_SECONDS - self._now()
        if due > 0:
            try:
                async with asyncio.timeout(due):
                    await self._news.wait()
            except TimeoutError:
                pass  # nothing to tell: the state is due
            return True
        document = {"id": self._new_id(), "router": self._router}
        return await self._post(_with_state(_encoder.encode(document), self._state())) in ("taken", "refused")

    async def deliver(self, batch: SpooledBatch) -> bool:
        """Send one spooled batch. False when the API did not take it now; then it stays on disk."""
        try:
            content = await asyncio.to_thread(batch.path.read_bytes)
        except OSError as error:
            logger.warning("spooled batch unreadable", extra={"file": batch.path.name, "problem": str(error)})
            self._spool.drop(batch)
            return True
        outcome = await self._post(_with_state(content, self._state()))
        if outcome == "taken":
            await asyncio.to_thread(self._spool.discard, batch)
        elif outcome == "refused":
            self._spool.drop(batch)
        self._count_spool()
        return outcome != "later"

    def _state(self) -> bytes:
        rows: list[InstanceInFlight] = []
        for pool in self._pools.living():
            rows.extend(pool.scheduler.in_flight())
        state = {"sent_at": self._now(), "acknowledged": self._pools.acknowledgements(), "in_flight": rows}
        return _encoder.encode(state)[1:-1]

    async def _post(self, content: bytes) -> str:
        """`taken`, `refused` (for ever) or `later`."""
        try:
            response = await self._client.post("/internal/v1/reports", content=content, headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            self._metrics.reports_failed += 1
            logger.info("control API unreachable, report kept", extra={"problem": f"{type(error).__name__} {error}".strip()})
            return "later"
        if response.status_code in REFUSED_FOR_EVER:
            self._metrics.reports_failed += 1
            logger.error("control API refused a report", extra={"status": response.status_code, "answer": response.text[:500]})
            return "refused"
        if not response.is_success:
            self._metrics.reports_failed += 1
            logger.warning("control API did not take a report, kept", extra={"status": response.status_code})
            return "later"
        self._metrics.reports_sent += 1
        self._state_sent_at = self._now()
        try:
            receipt = _receipt.decode(response.content)
        except msgspec.DecodeError as error:
            logger.warning("receipt unreadable", extra={"problem": str(error)})
        else:
            self._pools.apply_bindings(receipt.conflicts)
        return "taken"

    # ── ending ──

    async def finish(self, seconds: float) -> None:
        """Collect what is left, send what can be sent within `seconds`, and say goodbye. What cannot be sent stays on disk."""
        await self.collect(final=True)
        try:
            async with asyncio.timeout(seconds):
                while (batch := self._spool.oldest()) is not None:
                    if not await self.deliver(batch):
                        break
                gone = RouterGone(router=self._router, at=self._now())
                await self._client.post(
                    "/internal/v1/routers/gone", content=_encoder.encode(gone), headers={"content-type": "application/json"}
                )
        except (TimeoutError, httpx.HTTPError) as error:
            logger.warning("could not say goodbye to the control API", extra={"problem": str(error), "batches_kept": len(self._spool)})
