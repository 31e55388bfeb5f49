"""Stores the reports of one POST request in Postgres, in one transaction, and adds up the usage of gateway keys."""

import logging
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, timedelta
from operator import attrgetter
from typing import Any

import msgspec
import psycopg
from sqlalchemy import BigInteger, Column, Table, Update, bindparam, case, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningInsert

from fairlead.reports.batches import ROW_KINDS, AskAddress, Report, ReportReceipt, RouterGone
from fairlead.reports.bindings import Binding
from fairlead.reports.engines import KnownCache, LearntFigure
from fairlead.reports.moves import MigrationOutcome, MoveOutcome
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.costs.store.recording import save_usage
from fairlead_api.infra.database import ROUTER_LIVE_FOR, Database, moment
from fairlead_api.infra.partitions import Partitions
from fairlead_api.infra.records import bound, recordset
from fairlead_api.moves.store import save_reroutes
from fairlead_api.pools.store.live_routers import CAN_BE_ASKED, COUNT_LIVE
from fairlead_api.reports.ingestion import Ingested
from fairlead_api.reports.store.samples import save_samples
from fairlead_api.sessions.store.bindings import apply_bindings
from fairlead_api.trees.store.turns import save_turns

_use = tables.gateway_key_use
_PLACE = ("key_id", "minute", "router", "refusal")
_COUNTS = ("requests", "prompt_tokens", "output_tokens")

_sent = recordset([_use.c[name] for name in (*_PLACE, *_COUNTS)])
_added = upsert(_use).from_select(
    [*_PLACE, *_COUNTS],
    select(*(_sent.c[name] for name in _PLACE), *(func.sum(_sent.c[name]) for name in _COUNTS))
    .group_by(*(_sent.c[name] for name in _PLACE))
    .order_by(*(_sent.c[name] for name in _PLACE)),
)
_ADD = _added.on_conflict_do_update(index_elements=_PLACE, set_={name: _use.c[name] + _added.excluded[name] for name in _COUNTS})


async def save_key_use(connection: AsyncConnection, report: Report, ignored: Counter[str]) -> None:
    """Add the usage of gateway keys in a report to the stored usage. Rows of unknown keys are only counted as ignored.

    The caller stores each report once, so the usage is added once.
    """
    if not report.key_use:
        return
    named = {row.key for row in report.key_use}
    known = {found for (found,) in await connection.execute(select(tables.gateway_keys.c.id).where(tables.gateway_keys.c.id.in_(named)))}
    rows = [row for row in report.key_use if row.key in known]
    if len(rows) < len(report.key_use):
        ignored["unknown-key"] += len(report.key_use) - len(rows)
    if rows:
        sent = [
            {
                "key_id": row.key,
                "minute": moment(row.minute),
                "router": report.router,
                "refusal": "" if row.refusal is None else row.refusal.value,
                **{name: getattr(row, name) for name in _COUNTS},
            }
            for row in rows
        ]
        await connection.execute(_ADD, bound(sent))


LATEST = timedelta(seconds=20)
"""Maximum time by which a router's reported state may be older than the stored one and still be ignored as late. If it
is older by more, the router's clock was set back, and the reported state replaces the stored one.

The time is shorter than the clock difference from which routers' times are corrected
(`plausibility.CLOCK_TOLERANCE_SECONDS`), so that a correction cannot make a new state seem late.
"""

ROWS = tuple(ROW_KINDS)
OF_POOLS = [name for name, kind in ROW_KINDS.items() if kind.of_pools]
"""Names of fields of Report. ROWS are the fields whose rows must be stored exactly once, in the order in which they are
stored. OF_POOLS are the fields among them whose rows belong to a pool.
"""

CACHE_FIELDS = tuple(item.name for item in fields(KnownCache) if item.name not in {"pool", "instance"})
"""The fields of a KnownCache that are stored; its pool and instance are the keys under which they are stored."""

FIGURE_FIELDS = tuple(item.name for item in fields(LearntFigure) if item.name not in {"pool", "instance"})
"""The fields of a LearntFigure that are stored; its pool and instance are the keys under which they are stored."""

UNSTORABLE = (DataError, psycopg.DataError, UnicodeError, OverflowError, struct.error)
"""Errors raised for a row that Postgres or its driver cannot store."""

_log = logging.getLogger(__name__)

_place: Callable[[Any], tuple[str, str]] = attrgetter("pool.namespace", "pool.name")


@dataclass(slots=True, kw_only=True)
class _Stored:
    lost: dict[str, Binding] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    lost_moves: Counter[PoolKey] = field(default_factory=Counter)


class PostgresReports:
    """Implements `reports.ingestion.ReportStore`."""

    def __init__(self, database: Database, partitions: Partitions) -> None:
        self._database = database
        self._partitions = partitions
        self._pool_ids: dict[PoolKey, int] = {}  # ids are permanent, unless another server answers that never had them
        self._known_at = database.switched_at

    async def prepare(self, days: dict[str, set[date]]) -> None:
        for table, wanted in days.items():
            await self._partitions.ensure(table, wanted)

    async def ingest(self, reports: Sequence[Report]) -> Ingested:
        try:
            return await self._database.writing(self._applying(reports, self._store))
        except UNSTORABLE as error:
            _log.warning("a report has rows that cannot be stored", extra={"router": reports[0].router, "error": str(error)[:300]})
            return await self._database.writing(self._applying(reports, self._store_what_can_be))

    def _applying(
        self, reports: Sequence[Report], store: Callable[[AsyncConnection, Report, _Stored], Awaitable[None]]
    ) -> Callable[[AsyncConnection], Awaitable[Ingested]]:
        async def work(connection: AsyncConnection) -> Ingested:
            known = await self._claim(connection, [report for report in reports if _rows(report)])
            fresh = [report for report in reports if report.id not in known]
            await self._note_router(connection, reports[0])
            stored = _Stored()
            await store(connection, _merged(fresh), stored)
            receipts = {report.id: _receipt(report, stored.lost) for report in fresh}
            await self._keep_receipts(connection, reports[0].router, [receipt for receipt in receipts.values() if receipt.lost])
            live = (await connection.execute(COUNT_LIVE)).scalar_one()
            routers = None if reports[0].asked_at is None else await _can_be_asked(connection)
            return Ingested(
                receipts=tuple(
                    replace(known.get(report.id) or receipts[report.id], live_routers=live, routers=None if number else routers)
                    for number, report in enumerate(reports)
                ),
                ignored=stored.ignored,
                lost_moves=stored.lost_moves,
            )

        return work

    async def _store(self, connection: AsyncConnection, report: Report, stored: _Stored) -> None:
        if not _rows(report):
            return
        ids = await self._ids(connection, report)
        applied = await apply_bindings(connection, report, ids, stored.ignored)
        await save_reroutes(connection, report.reroutes, report.router, ids)
        await _settle_outcomes(connection, tables.migrations, report.migration_outcomes)
        await _settle_outcomes(connection, tables.reroutes, report.reroute_outcomes)
        await save_samples(connection, report, ids, stored.ignored)
        await save_turns(connection, report, ids)
        await save_key_use(connection, report, stored.ignored)
        await save_usage(connection, report.usage, ids)
        stored.lost.update(applied.lost)
        stored.lost_moves.update(applied.lost_moves)

    async def _store_what_can_be(self, connection: AsyncConnection, report: Report, stored: _Stored) -> None:
        """Store a report that contains rows that cannot be stored. The report is halved repeatedly until the bad rows
        are isolated. The bad rows are only counted, and all other rows are stored.
        """
        part = _Stored()
        try:
            async with connection.begin_nested():
                await self._store(connection, report, part)
        except UNSTORABLE:
            halves = _halves(report)
            if not halves:
                stored.ignored["unstorable"] += _rows(report)
            for half in halves:
                await self._store_what_can_be(connection, half, stored)
            return
        stored.lost.update(part.lost)
        stored.ignored.update(part.ignored)
        stored.lost_moves.update(part.lost_moves)

    async def forget_router(self, gone: RouterGone) -> None:
        async def work(connection: AsyncConnection) -> None:
            routers = tables.routers
            at = moment(gone.at)
            await connection.execute(
                update(routers)
                .where(routers.c.id == gone.router, (routers.c.sent_at <= at) | (routers.c.sent_at > at + LATEST))
                .values(gone_at=at, acknowledged={}, in_flight=[], shares={})
            )

        await self._database.writing(work)

    async def _claim(self, connection: AsyncConnection, reports: Sequence[Report]) -> dict[str, ReportReceipt]:
        """Claim the ids of reports for the router that sent them.

        Returns the receipts of those reports whose ids were already claimed. If another transaction is claiming an id
        now, waits for that transaction.
        """
        if not reports:
            return {}
        router = reports[0].router
        claimed = await connection.execute(
            text(
                "INSERT INTO reports (router, id, receipt) SELECT :router, id, jsonb_build_object('id', id, 'duplicate', false) "
                "FROM unnest(CAST(:ids AS text[])) AS n(id) ORDER BY id ON CONFLICT DO NOTHING RETURNING id"
            ),
            {"router": router, "ids": [report.id for report in reports]},
        )
        fresh = {name for (name,) in claimed}
        if len(fresh) == len(reports):
            return {}
        known = [report.id for report in reports if report.id not in fresh]
        stored = await connection.execute(
            select(tables.reports.c.receipt).where(tables.reports.c.router == router, tables.reports.c.id.in_(known))
        )
        receipts = (replace(msgspec.convert(receipt, ReportReceipt), duplicate=True) for (receipt,) in stored)
        return {receipt.id: receipt for receipt in receipts}

    async def _keep_receipts(self, connection: AsyncConnection, router: str, receipts: Sequence[ReportReceipt]) -> None:
        table = tables.reports
        statement = update(table).where(table.c.router == router, table.c.id == bindparam("of")).values(receipt=bindparam("stored"))
        if receipts:
            await connection.execute(statement, [{"of": receipt.id, "stored": msgspec.to_builtins(receipt)} for receipt in receipts])

    async def _ids(self, connection: AsyncConnection, report: Report) -> dict[PoolKey, int]:
        of_pools = (*OF_POOLS, "acknowledged", "in_flight", "use", "troubled_engines", "known_caches", "learnt_figures", "shares")
        named = {_place(row) for name in of_pools for row in getattr(report, name)}
        wanted = {PoolKey(namespace=namespace, name=name) for namespace, name in named}
        if not wanted <= self._pool_ids.keys() or self._known_at != self._database.switched_at:
            self._known_at = self._database.switched_at
            found = await connection.execute(select(tables.pools.c.id, tables.pools.c.namespace, tables.pools.c.name))
            self._pool_ids = {PoolKey(namespace=namespace, name=name): pool_id for pool_id, namespace, name in found}
        return {pool: self._pool_ids[pool] for pool in wanted if pool in self._pool_ids}

    async def _note_router(self, connection: AsyncConnection, report: Report) -> None:
        """Mark the router as live. Its state is replaced only by a newer state, or after the router was silent for 10
        s, because its clock may have been set back.
        """
        ids = await self._ids(connection, report)
        acknowledged = {str(ids[ack.pool]): ack.version for ack in report.acknowledged if ack.pool in ids}
        in_flight = [[ids[row.pool], row.instance, row.in_flight, row.waiting] for row in report.in_flight if row.pool in ids]
        use = {str(ids[row.pool]): [row.held_requests, row.held_prompt_tokens, row.idle_seconds] for row in report.use if row.pool in ids}
        troubled: dict[str, list[tuple[object, ...]]] = {}
        for one in report.troubled_engines:
            if one.pool in ids:
                troubled.setdefault(str(ids[one.pool]), []).append(
                    (one.instance, one.trouble, one.words, one.seconds, *([one.ranks] if one.ranks else []))
                )
        known: dict[str, dict[str, dict[str, Any]]] = {}
        for cache in report.known_caches:
            if cache.pool in ids:
                known.setdefault(str(ids[cache.pool]), {})[cache.instance] = {name: getattr(cache, name) for name in CACHE_FIELDS}
        learnt: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for figure in report.learnt_figures:
            if figure.pool in ids:
                of = learnt.setdefault(str(ids[figure.pool]), {}).setdefault(figure.instance or "", [])
                of.append({name: getattr(figure, name) for name in FIGURE_FIELDS})
        state = {
            "sent_at": moment(report.sent_at),
            "acknowledged": acknowledged,
            "in_flight": in_flight,
            "use": use,
            "troubled_engines": troubled,
            "known_caches": known,
            "learnt_figures": learnt,
            "asked_at": None if report.asked_at is None else msgspec.to_builtins(report.asked_at),
            "shares": {str(ids[share.pool]): msgspec.to_builtins(share) for share in report.shares if share.pool in ids},
            "gone_at": None,
        }
        changed = await connection.execute(_NOTE_ROUTER, {"id": report.router, **state})
        if changed.scalar_one_or_none() is None:
            routers = tables.routers
            late = update(routers).where(routers.c.id == report.router, routers.c.gone_at.is_(None)).values(last_seen_at=func.now())
            await connection.execute(late)
        if acknowledged:
            rows = [{"router": report.router, "pool_id": int(pool), "version": version} for pool, version in acknowledged.items()]
            await connection.execute(upsert(tables.router_acknowledgements).on_conflict_do_nothing(), rows)


def _note() -> "ReturningInsert[tuple[str]]":
    """Return the SQL statement that stores a router's state unless a newer state is stored. The statement returns the
    router's id if it stored the state.
    """
    routers = tables.routers
    row = upsert(routers).values(last_seen_at=func.now())
    set_back = row.excluded.sent_at + LATEST
    silent = routers.c.last_seen_at < func.now() - text(ROUTER_LIVE_FOR)
    newer = (routers.c.sent_at <= row.excluded.sent_at) | silent | (routers.c.sent_at > set_back)
    back = routers.c.gone_at.is_(None) | (routers.c.gone_at < row.excluded.sent_at) | (routers.c.gone_at > set_back)
    replaced = {one.name: row.excluded[one.name] for one in routers.c if one.name not in {"id", "first_seen_at", "last_seen_at"}}
    noted = row.on_conflict_do_update(index_elements=["id"], set_={**replaced, "last_seen_at": func.now()}, where=newer & back)
    return noted.returning(routers.c.id)


_NOTE_ROUTER = _note()


async def _can_be_asked(connection: AsyncConnection) -> dict[str, AskAddress]:
    """Return the addresses to which other routers can send queries, by name of the live router."""
    return {router: msgspec.convert(address, AskAddress) for router, address in await connection.execute(CAN_BE_ASKED)}


_TRANSFER = ("cache", "transfer_seconds", "predicted_transfer_seconds", "transfer_bytes")
"""Columns of a move that describe whether and how its KV blocks were transferred."""


def _settle(moves: Table) -> Update:
    """Return the SQL statement that stores the outcomes of moves. Only a move that has no outcome yet gets one. A
    router may report an outcome twice: if it receives a person's move again, it also reports the next request of the
    session as the move's outcome.
    """
    known = [moves.c[name] for name in ("id", "actual_ttft_seconds", "outcome", *_TRANSFER)]
    source = recordset([*known, Column("came", BigInteger)])
    lacking = moves.c.tokens_moved + moves.c.tokens_recomputed
    moved = func.least(source.c.came, lacking)
    became = {
        "actual_ttft_seconds": source.c.actual_ttft_seconds,
        "outcome": source.c.outcome,
        "tokens_moved": case((source.c.cache.is_(None), moves.c.tokens_moved), else_=moved),
        "tokens_recomputed": case((source.c.cache.is_(None), moves.c.tokens_recomputed), else_=lacking - moved),
        **{name: func.coalesce(source.c[name], moves.c[name]) for name in _TRANSFER},
    }
    return update(moves).where(moves.c.id == source.c.id, moves.c.outcome == MoveOutcome.UNDERWAY).values(became)


_SETTLE = {moves.name: _settle(moves) for moves in (tables.migrations, tables.reroutes)}


async def _settle_outcomes(connection: AsyncConnection, moves: Table, outcomes: Sequence[MigrationOutcome]) -> None:
    if not outcomes:
        return
    first = {outcome.id: outcome for outcome in reversed(outcomes)}
    await connection.execute(_SETTLE[moves.name], bound([_outcome_row(outcome) for outcome in first.values()]))


def _outcome_row(outcome: MigrationOutcome) -> dict[str, Any]:
    row = {"id": outcome.id, "actual_ttft_seconds": outcome.actual_ttft_seconds, "outcome": outcome.outcome.value}
    transfer = outcome.transfer
    if transfer is not None:
        told = (transfer.fate.value, transfer.seconds, transfer.predicted_seconds, transfer.bytes)
        row |= {"came": transfer.tokens, **dict(zip(_TRANSFER, told, strict=True))}
    return row


def _rows(report: Report) -> int:
    """Return the number of rows in the report that have to be stored."""
    return sum(len(getattr(report, name)) for name in ROWS)


def _merged(reports: Sequence[Report]) -> Report:
    """Return one report with the rows of all reports, in order; an empty report if there are none."""
    if len(reports) == 1:
        return reports[0]
    if not reports:
        return Report(id="", router="", sent_at=0.0)
    rows: dict[str, Any] = {name: tuple(row for report in reports for row in getattr(report, name)) for name in ROWS}
    return replace(reports[0], **rows)


def _receipt(report: Report, lost: dict[str, Binding]) -> ReportReceipt:
    mine = [change for change in report.bindings if change.id in lost]
    present = {(change.pool, change.session): lost[change.id] for change in mine}
    return ReportReceipt(id=report.id, duplicate=False, conflicts=tuple(present.values()), lost=tuple(change.id for change in mine))


def _halves(report: Report) -> Iterable[Report]:
    """Return the report divided in two halves; a migration stays together with its binding. Empty for a report of one
    row, or of one such pair.
    """
    records = {record.id: record for record in report.migrations}
    pairs = {change.id for change in report.bindings} & records.keys()
    units: list[list[tuple[str, Any]]] = [
        [("bindings", change), *([("migrations", records[change.id])] if change.id in pairs else [])] for change in report.bindings
    ]
    units += [[(name, row)] for name in ROWS[1:] for row in getattr(report, name) if not (name == "migrations" and row.id in pairs)]
    if len(units) < 2:
        return ()
    middle = len(units) // 2
    return [_only(report, units[:middle]), _only(report, units[middle:])]


def _only(report: Report, units: Sequence[Sequence[tuple[str, Any]]]) -> Report:
    rows: dict[str, Any] = {name: tuple(row for unit in units for of, row in unit if of == name) for name in ROWS}
    return replace(report, **rows)
