"""Reports in Postgres: one transaction per report; loads, decisions and rejections by COPY."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import msgspec
from psycopg.types.json import Jsonb
from sqlalchemy import Table, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState
from fairlead.reports import Binding, BindingChange, MigrationOutcome, MigrationRecord, Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey
from fairlead_api.services.binding_races import Held, Verdict, judge
from fairlead_api.services.ingestion import Ingested
from fairlead_api.services.notices import BindingsChanged
from fairlead_api.store import notifying, tables
from fairlead_api.store.database import Database, driver, moment
from fairlead_api.store.partitions import Partitions
from fairlead_api.store.session_rows import SessionRow, bind, save_migrations, save_reroutes, save_sessions

_LOADS = (
    "COPY load_samples (pool_id, router, instance, second, sent_at, running, waiting, pending_prefill_tokens, in_flight, kv_usage, requests, "
    "completed, failed, cancelled, prompt_tokens, hit_tokens, output_tokens, ttft_seconds, tpot_seconds, ttft_within_slo, ttft_total) "
    "FROM STDIN (FORMAT BINARY)"
)
_LOAD_TYPES = [
    *("int4", "text", "text", "timestamptz", "timestamptz", "int8", "int8", "int8", "int8", "float4", "int8"),
    *("int8", "int8", "int8", "int8", "int8", "int8", "float4[]", "float4[]", "int8", "int8"),
]
_DECISIONS = (
    "COPY decisions (id, pool_id, request, session, at, router, policy, table_version, chosen, runner_up, reason, prompt_tokens, "
    "queued_seconds, ttft_seconds, sample_rate, candidates) FROM STDIN (FORMAT BINARY)"
)
_DECISION_TYPES = [
    *("text", "int4", "text", "text", "timestamptz", "text", "text", "int8", "text", "text", "text", "int8"),
    *("float8", "float8", "float8", "jsonb"),
]
_REJECTIONS = (
    "COPY rejections (pool_id, router, second, reason, count, status, sample_request, sample_prompt_tokens, retry_after_seconds, "
    "predicted_ttft_seconds) FROM STDIN (FORMAT BINARY)"
)
_REJECTION_TYPES = ["int4", "text", "timestamptz", "text", "int8", "int4", "text", "int8", "float8", "float8"]

ROLLUP_SECONDS = 10


class PostgresReports:
    """Implements `services.ingestion.ReportStore`."""

    def __init__(self, database: Database, partitions: Partitions) -> None:
        self._database = database
        self._partitions = partitions
        self._pool_ids: dict[PoolKey, int] = {}  # ids are for ever, so nothing ever becomes wrong here

    async def prepare(self, days: dict[str, set[date]]) -> None:
        for table, wanted in days.items():
            await self._partitions.ensure(table, wanted)

    async def ingest(self, report: Report) -> Ingested:
        return await self._database.writing(self._applying(report))

    def _applying(self, report: Report) -> Callable[[AsyncConnection], Awaitable[Ingested]]:
        async def work(connection: AsyncConnection) -> Ingested:
            first = await self._first_receipt(connection, report)
            if first is not None:
                return Ingested(receipt=first, ignored=Counter())
            ignored: Counter[str] = Counter()
            ids = await self._ids(connection, report)
            await self._note_router(connection, report, ids)
            conflicts = await self._apply_bindings(connection, report, ids, ignored)
            await save_reroutes(connection, report.reroutes, report.router, ids)
            await _settle_outcomes(connection, tables.migrations, report.migration_outcomes)
            await _settle_outcomes(connection, tables.reroutes, report.reroute_outcomes)
            await self._copy(connection, report, ids, ignored)
            receipt = ReportReceipt(id=report.id, duplicate=False, conflicts=conflicts)
            if conflicts:
                stored = msgspec.to_builtins(receipt)
                await connection.execute(update(tables.reports).where(tables.reports.c.id == report.id).values(receipt=stored))
            return Ingested(receipt=receipt, ignored=ignored)

        return work

    async def forget_router(self, gone: RouterGone) -> None:
        async def work(connection: AsyncConnection) -> None:
            routers = tables.routers
            at = moment(gone.at)
            await connection.execute(
                update(routers)
                .where(routers.c.id == gone.router, routers.c.sent_at <= at)
                .values(gone_at=at, acknowledged={}, in_flight=[])
            )

        await self._database.writing(work)

    async def _first_receipt(self, connection: AsyncConnection, report: Report) -> ReportReceipt | None:
        """Claims the id; if it was claimed before, waits for that transaction and returns its receipt."""
        empty = msgspec.to_builtins(ReportReceipt(id=report.id, duplicate=False))
        claim = upsert(tables.reports).values(id=report.id, router=report.router, receipt=empty).on_conflict_do_nothing()
        claimed = await connection.execute(claim.returning(tables.reports.c.id))
        if claimed.scalar_one_or_none() is not None:
            return None
        stored = (await connection.execute(select(tables.reports.c.receipt).where(tables.reports.c.id == report.id))).scalar_one()
        return replace(msgspec.convert(stored, ReportReceipt), duplicate=True)

    async def _ids(self, connection: AsyncConnection, report: Report) -> dict[PoolKey, int]:
        rows = (
            report.acknowledged,
            report.in_flight,
            report.bindings,
            report.migrations,
            report.reroutes,
            report.decisions,
            report.rejections,
            report.loads,
        )
        wanted = {row.pool for group in rows for row in group}
        if not wanted <= self._pool_ids.keys():
            found = await connection.execute(select(tables.pools.c.id, tables.pools.c.namespace, tables.pools.c.name))
            self._pool_ids = {PoolKey(namespace=namespace, name=name): pool_id for pool_id, namespace, name in found}
        return {pool: self._pool_ids[pool] for pool in wanted if pool in self._pool_ids}

    async def _note_router(self, connection: AsyncConnection, report: Report, ids: dict[PoolKey, int]) -> None:
        """Marks the router live. Its state is replaced only by a newer one, unless it was silent for 10 s (its clock may have been set back)."""
        routers = tables.routers
        acknowledged = {str(ids[ack.pool]): ack.version for ack in report.acknowledged if ack.pool in ids}
        in_flight = [[ids[row.pool], row.instance, row.in_flight, row.waiting] for row in report.in_flight if row.pool in ids]
        state = {"sent_at": moment(report.sent_at), "acknowledged": acknowledged, "in_flight": in_flight, "gone_at": None}
        row = upsert(routers).values(id=report.router, last_seen_at=func.now(), **state)
        newer = (routers.c.sent_at <= row.excluded.sent_at) | (routers.c.last_seen_at < func.now() - text("interval '10 seconds'"))
        back = routers.c.gone_at.is_(None) | (routers.c.gone_at < row.excluded.sent_at)
        replaced = {name: row.excluded[name] for name in state}
        changed = await connection.execute(
            row.on_conflict_do_update(index_elements=["id"], set_={**replaced, "last_seen_at": func.now()}, where=newer & back).returning(
                routers.c.id
            )
        )
        if changed.scalar_one_or_none() is None:
            late = update(routers).where(routers.c.id == report.router, routers.c.gone_at.is_(None)).values(last_seen_at=func.now())
            await connection.execute(late)
        if acknowledged:
            rows = [{"router": report.router, "pool_id": int(pool), "version": version} for pool, version in acknowledged.items()]
            await connection.execute(upsert(tables.router_acknowledgements).on_conflict_do_nothing(), rows)

    async def _apply_bindings(
        self, connection: AsyncConnection, report: Report, ids: dict[PoolKey, int], ignored: Counter[str]
    ) -> tuple[Binding, ...]:
        changes = await self._known_targets(connection, report.bindings, ids, ignored)
        seen: dict[tuple[int, str], float] = {}
        for decision in report.decisions:
            if decision.session is not None and decision.pool in ids:
                key = (ids[decision.pool], decision.session)
                seen[key] = max(seen.get(key, 0.0), decision.at)
        # A queued request that moved takes its session's home along: that is one migration, told once.
        records = {(m.pool, m.session, m.target): m for m in report.migrations}
        sessions = await self._locked_sessions(connection, report, changes, seen, ids)
        extra: list[MigrationRecord] = []
        conflicts: dict[tuple[int, str], Binding] = {}
        for change in changes:
            row = sessions[ids[change.pool], change.session]
            verdict = judge(change, row.held, report.router)
            if verdict is Verdict.CONFLICT:
                conflicts[row.pool_id, row.session] = row.binding()
                continue
            row.last_seen_at = max(row.last_seen_at, moment(change.at))
            row.context_tokens = change.context_tokens or row.context_tokens
            row.touched = True
            if verdict is Verdict.BIND:
                bind(row, change, report.router, report.id, records, extra)
        for key, at in seen.items():
            if key in sessions:
                sessions[key].last_seen_at = max(sessions[key].last_seen_at, moment(at))
                sessions[key].touched = True
        await save_sessions(connection, [row for row in sessions.values() if row.touched])
        await save_migrations(connection, (*report.migrations, *extra), report.router, ids)
        moved = tuple(row.binding() for row in sessions.values() if row.changed)
        if moved:
            await notifying.send(connection, [BindingsChanged(moved)])
        return tuple(conflicts.values())

    async def _known_targets(
        self, connection: AsyncConnection, changes: Sequence[BindingChange], ids: dict[PoolKey, int], ignored: Counter[str]
    ) -> list[BindingChange]:
        """Changes whose target is an instance that exists and is not gone; the others are counted."""
        if not changes:
            return []
        wanted = {change.instance for change in changes}
        rows = await connection.execute(
            select(tables.instances.c.pool_id, tables.instances.c.id).where(
                tables.instances.c.id.in_(wanted), tables.instances.c.state != InstanceState.GONE.value
            )
        )
        alive = {(pool_id, instance) for pool_id, instance in rows}
        known = [change for change in changes if (ids.get(change.pool), change.instance) in alive]
        if len(known) < len(changes):
            ignored["unknown-instance"] += len(changes) - len(known)
        return known

    async def _locked_sessions(
        self,
        connection: AsyncConnection,
        report: Report,
        changes: Iterable[BindingChange],
        seen: Iterable[tuple[int, str]],
        ids: dict[PoolKey, int],
    ) -> dict[tuple[int, str], SessionRow]:
        """Rows of all sessions concerned, locked in one order everywhere (no deadlocks); new ones are made first, so that two routers
        binding a session for the first time meet at its row."""
        new: dict[tuple[int, str], float] = {}
        for change in changes:
            new.setdefault((ids[change.pool], change.session), change.at)
        if new:
            rows = [
                {"pool": pool, "session": session, "at": moment(at), "router": report.router} for (pool, session), at in sorted(new.items())
            ]
            await connection.execute(
                text(
                    "INSERT INTO sessions (pool_id, session, instance, version, reason, router, bound_at, last_seen_at) "
                    "SELECT p, s, NULL, 0, 'cold', :router, a, a FROM unnest(CAST(:pools AS int[]), CAST(:sessions AS text[]), "
                    "CAST(:ats AS timestamptz[])) AS r(p, s, a) ORDER BY p, s ON CONFLICT DO NOTHING"
                ),
                {
                    "router": report.router,
                    "pools": [row["pool"] for row in rows],
                    "sessions": [row["session"] for row in rows],
                    "ats": [row["at"] for row in rows],
                },
            )
        keys = sorted({*new, *seen})
        if not keys:
            return {}
        names = {pool_id: pool for pool, pool_id in ids.items()}
        found = await connection.execute(
            text(
                "SELECT s.* FROM sessions s JOIN unnest(CAST(:pools AS int[]), CAST(:sessions AS text[])) AS k(p, n) "
                "ON s.pool_id = k.p AND s.session = k.n ORDER BY s.pool_id, s.session FOR UPDATE OF s"
            ),
            {"pools": [pool for pool, _ in keys], "sessions": [session for _, session in keys]},
        )
        return {
            (row.pool_id, row.session): SessionRow(
                pool=names[row.pool_id],
                pool_id=row.pool_id,
                session=row.session,
                held=Held(instance=row.instance, version=row.version, router=row.router),
                reason=row.reason,
                bound_at=row.bound_at,
                migrated_at=row.migrated_at,
                last_seen_at=row.last_seen_at,
                migrations=row.migrations,
                context_tokens=row.context_tokens,
            )
            for row in found
        }

    async def _copy(self, connection: AsyncConnection, report: Report, ids: dict[PoolKey, int], ignored: Counter[str]) -> None:
        loads = [
            (
                *(ids[s.pool], report.router, s.instance, moment(s.second), moment(report.sent_at)),
                *(s.running, s.waiting, s.pending_prefill_tokens, s.in_flight, s.kv_usage, s.requests, s.completed, s.failed, s.cancelled),
                *(
                    s.prompt_tokens,
                    s.hit_tokens,
                    s.output_tokens,
                    list(s.ttft_seconds),
                    list(s.tpot_seconds),
                    s.ttft_within_slo,
                    s.ttft_total,
                ),
            )
            for s in report.loads
            if s.pool in ids
        ]
        decisions = [
            (
                *(d.id, ids[d.pool], d.request, d.session, moment(d.at), report.router, d.policy, d.table_version, d.chosen, d.runner_up),
                *(
                    d.reason,
                    d.prompt_tokens,
                    d.queued_seconds,
                    d.ttft_seconds,
                    d.sample_rate,
                    Jsonb(d.candidates, dumps=msgspec.json.encode),
                ),
            )
            for d in _unique_decisions(report)
            if d.pool in ids
        ]
        rejections = [
            (
                *(ids[r.pool], report.router, moment(r.second), r.reason.value, r.count, r.status, r.sample_request),
                *(r.sample_prompt_tokens, r.retry_after_seconds, r.predicted_ttft_seconds),
            )
            for r in report.rejections
            if r.pool in ids
        ]
        lost = len(report.loads) + len(report.decisions) + len(report.rejections) - len(loads) - len(decisions) - len(rejections)
        if lost:
            ignored["unknown-pool"] += lost
        for statement, types, rows in (
            (_LOADS, _LOAD_TYPES, loads),
            (_DECISIONS, _DECISION_TYPES, decisions),
            (_REJECTIONS, _REJECTION_TYPES, rejections),
        ):
            if rows:
                await _copy_rows(connection, statement, types, rows)
        if loads:
            buckets = {(ids[s.pool], s.second - s.second % ROLLUP_SECONDS) for s in report.loads if s.pool in ids}
            rows_due = [{"pool_id": pool, "bucket": moment(bucket), "router": report.router} for pool, bucket in sorted(buckets)]
            await connection.execute(upsert(tables.rollup_queue).on_conflict_do_nothing(), rows_due)


async def _settle_outcomes(connection: AsyncConnection, moves: Table, outcomes: Sequence[MigrationOutcome]) -> None:
    if not outcomes:
        return
    rows = [{"of": outcome.id, "actual": outcome.actual_ttft_seconds, "became": outcome.outcome.value} for outcome in outcomes]
    statement = (
        update(moves).where(moves.c.id == bindparam("of")).values(actual_ttft_seconds=bindparam("actual"), outcome=bindparam("became"))
    )
    await connection.execute(statement, sorted(rows, key=lambda row: str(row["of"])))


def _unique_decisions(report: Report) -> list[Any]:
    return list({decision.id: decision for decision in report.decisions}.values())


async def _copy_rows(connection: AsyncConnection, statement: str, types: list[str], rows: Sequence[tuple[Any, ...]]) -> None:
    async with (await driver(connection)).cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)
