"""Reports to the control API: what schedulers recorded, batched, spooled to disk before it is sent, resent until acknowledged.

A batch on disk is a Report without its state (acknowledged tables, in-flight counts); the state of the moment is put in when it is sent, because
old counts replayed after an outage would mislead whoever waits for an instance to fall idle. Lanes send side by side: history in its order, samples
twice, and the state alone whenever nothing else has told it in time. Neighbours go in one post, as many as the API takes: each keeps its id, so
however they are cut and repeated, the API stores each once.
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
    Acknowledgement,
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
POST_BATCHES = 1_000
POST_RECORDS = 2_000
POST_BYTES = 4 * 1024 * 1024
"""Neighbouring batches are sent as one post up to these bounds."""
POST_TIMEOUT_SECONDS = 30.0
LANES = (Cargo.HISTORY, Cargo.SAMPLES, Cargo.SAMPLES)
STATE_SECONDS = 1.0
"""The state is sent at least this often, alone if need be: it is how the API knows that this router lives. New tables are acknowledged at once."""
REFUSED_FOR_EVER = frozenset({400, 413, 422})
"""Answers that resending cannot change."""
ATTEMPTS_AT_A_FAULT = 5
"""So often one batch may make the API fail (500) that takes others, before it is set aside."""
OLD_SECONDS = 30.0
"""The age of the oldest unsent batch from which the log says so, at most once in this time."""

logger = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder()
_receipts = msgspec.json.Decoder(list[ReportReceipt])
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
    """Cut records (by field name of Report, in order) into batches of about BATCH_RECORDS, history apart from samples, and never a migration apart
    from the binding it belongs to."""
    migrations = {record.id: record for record in records.get("migrations", ()) if isinstance(record, MigrationRecord)}
    for cargo in Cargo:
        pending: dict[str, list[Record]] = {}
        size = 0
        for of, name in _FIELDS:
            if of is not cargo:
                continue
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


def _batch(router: str, cargo: Cargo, size: int, fields: dict[str, list[Record]], batch_id: str) -> Batch:
    document: dict[str, Any] = {"id": batch_id, "router": router, **fields}
    return Batch(cargo=cargo, records=size, content=_encoder.encode(document))


def spooled_changes(spool: Spool) -> tuple[BindingChange, ...]:
    """Own binding changes that an earlier process may not have delivered, oldest first."""
    found: list[BindingChange] = []
    for batch in spool.batches(Cargo.HISTORY):
        try:
            report = _report.decode(_with_state(batch.path.read_bytes(), b'"sent_at":0'))
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("spooled batch unreadable", extra={"file": batch.path.name, "problem": str(error)})
            continue
        found.extend(report.bindings)
    return tuple(found)


def _with_state(content: bytes, state: bytes) -> bytes:
    """A stored batch is a JSON object; the state's members are put at its front."""
    return b"{" + state + b"," + content[1:]


@dataclass(slots=True, kw_only=True)
class Lane:
    """How one lane fares: batches it sends at once, failures of the lone batch it is at, and how long it pauses."""

    cargo: Cargo
    most_batches: int = POST_BATCHES
    faults: int = 0
    _pause: float = BATCH_SECONDS

    def pause(self) -> float:
        """Seconds to wait after a failure, longer each time."""
        now, self._pause = self._pause, min(self._pause * 2, 5.0)
        return now

    def went_well(self) -> None:
        """Send more at once again, without pauses."""
        self.most_batches = min(POST_BATCHES, self.most_batches * 2)
        self.faults, self._pause = 0, BATCH_SECONDS


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
        self._acknowledged: tuple[Acknowledgement, ...] = ()
        """What the API is known to have been told."""
        self._said_old_at = 0.0
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
        if waiting:
            self._unspooled = await asyncio.to_thread(self._store, waiting)
            self._news.set()
            self._news = asyncio.Event()
        self._count_spool()

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
        metrics, spool = self._metrics, self._spool
        metrics.spool_bytes = spool.size
        metrics.spool_batches = len(spool)
        metrics.reports_set_aside = spool.aside
        for cargo, count in spool.dropped.items():
            metrics.report_drops[cargo] = count
        oldest, now = spool.oldest_written_at(), self._now()
        age = metrics.oldest_unsent_report_seconds = 0.0 if oldest is None else max(0.0, now - oldest)
        if age >= OLD_SECONDS and now - self._said_old_at >= OLD_SECONDS:
            self._said_old_at = now
            logger.warning("reports wait to be sent", extra={"oldest_seconds": round(age), "batches": len(spool), "bytes": spool.size})

    # ── sending ──

    async def send_forever(self) -> None:
        """All lanes."""
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(self._tell_state_forever())
            for cargo in LANES:
                lanes.create_task(self._empty_forever(cargo))

    async def _empty_forever(self, cargo: Cargo) -> None:
        """Growing pauses with jitter while the API does not answer."""
        lane = Lane(cargo=cargo)
        while True:
            news = self._news
            outcome = await self.send(lane)
            if outcome is None:
                await news.wait()
            elif not outcome:
                await asyncio.sleep(lane.pause() * self._random.uniform(0.5, 1.5))

    async def _tell_state_forever(self) -> None:
        while True:
            await asyncio.sleep(BATCH_SECONDS)
            due = self._now() - self._state_sent_at >= STATE_SECONDS
            if (due or self._acknowledged != self._pools.acknowledgements()) and await self._tell_state() != "taken":
                await asyncio.sleep(STATE_SECONDS * self._random.uniform(0.5, 1.5))

    async def _tell_state(self) -> str:
        return await self._post([_encoder.encode({"id": self._new_id(), "router": self._router})])

    async def send(self, lane: Lane) -> bool | None:
        """Send the oldest batches of a lane. True when it may go on at once, False when the API did not take them now (they stay on disk), None when
        there is nothing to send."""
        batches = self._spool.lend(lane.cargo, lane.most_batches, POST_RECORDS, POST_BYTES)
        if not batches:
            return None
        try:
            contents = await asyncio.to_thread(self._read, batches)
            outcome = await self._post(contents) if contents is not None else "refused"
            if outcome == "taken":
                lane.went_well()
                await asyncio.to_thread(self._spool.discard, batches)
                return True
            if outcome == "later":
                return False
            if len(batches) > 1:  # the fewer, the sooner it is seen which of them is at fault, and the sooner they are taken
                lane.most_batches = max(1, len(batches) // 2)
                lane.faults = 0
                return outcome != "slow"
            if outcome == "refused" or (outcome == "fault" and await self._is_at_fault(lane)):
                lane.went_well()
                await asyncio.to_thread(self._set_aside, batches[0], outcome)
                return True
            return False
        finally:
            self._spool.give_back(batches)
            self._count_spool()

    async def _is_at_fault(self, lane: Lane) -> bool:
        """Whether a lone batch fails again and again at an API that takes everything else."""
        lane.faults += 1
        return lane.faults >= ATTEMPTS_AT_A_FAULT and await self._tell_state() == "taken"

    def _read(self, batches: list[SpooledBatch]) -> list[bytes] | None:
        try:
            return [batch.path.read_bytes() for batch in batches]
        except OSError as error:
            logger.warning("spooled batch unreadable", extra={"file": batches[0].path.name, "problem": str(error)})
            return None

    def _set_aside(self, batch: SpooledBatch, outcome: str) -> None:
        try:
            place = self._spool.set_aside(batch)
        except OSError as error:
            logger.warning("report given up", extra={"file": batch.path.name, "records": batch.records, "problem": str(error)})
            self._spool.drop(batch)
        else:
            logger.error("report set aside", extra={"file": str(place), "records": batch.records, "why": outcome})

    def _state(self) -> bytes:
        rows: list[InstanceInFlight] = []
        for pool in self._pools.living():
            rows.extend(pool.scheduler.in_flight())
        state = {"sent_at": self._now(), "acknowledged": self._pools.acknowledgements(), "in_flight": rows}
        return _encoder.encode(state)[1:-1]

    async def _post(self, contents: list[bytes]) -> str:
        """`taken`, `refused` (for ever), `fault` (the API failed over it), `slow` (no answer in time) or `later`."""
        acknowledged = self._pools.acknowledgements()
        time_only = b'"sent_at":%r' % self._now()
        posted = [_with_state(content, time_only if number else self._state()) for number, content in enumerate(contents)]
        try:
            response = await self._client.post(
                "/internal/v1/reports",
                content=b"[" + b",".join(posted) + b"]",
                headers={"content-type": "application/json"},
                timeout=httpx.Timeout(5.0, read=POST_TIMEOUT_SECONDS, write=POST_TIMEOUT_SECONDS),
            )
        except httpx.HTTPError as error:
            self._metrics.reports_failed += 1
            logger.info("control API unreachable, reports kept", extra={"problem": f"{type(error).__name__} {error}".strip()})
            return "slow" if isinstance(error, httpx.ReadTimeout) else "later"
        if not response.is_success:
            self._metrics.reports_failed += 1
            logger.warning(
                "control API did not take reports",
                extra={"status": response.status_code, "batches": len(posted), "answer": response.text[:500]},
            )
            return "refused" if response.status_code in REFUSED_FOR_EVER else "fault" if response.status_code == 500 else "later"
        self._metrics.reports_sent += len(posted)
        self._state_sent_at = self._now()
        self._acknowledged = acknowledged
        try:
            receipts = _receipts.decode(response.content)
        except msgspec.DecodeError as error:
            logger.warning("receipts unreadable", extra={"problem": str(error)})
        else:
            for receipt in receipts:
                self._pools.apply_bindings(receipt.conflicts, receipt.lost)
        return "taken"

    # ── ending ──

    async def finish(self, seconds: float) -> None:
        """Collect what is left, send what can be sent within `seconds`, and say goodbye. What cannot be sent stays on disk."""
        await self.collect(final=True)
        try:
            async with asyncio.timeout(seconds):
                for cargo in Cargo:
                    lane = Lane(cargo=cargo)
                    while await self.send(lane):
                        pass
                gone = RouterGone(router=self._router, at=self._now())
                await self._client.post(
                    "/internal/v1/routers/gone", content=_encoder.encode(gone), headers={"content-type": "application/json"}
                )
        except (TimeoutError, httpx.HTTPError) as error:
            logger.warning("could not say goodbye to the control API", extra={"problem": str(error), "batches_kept": len(self._spool)})
