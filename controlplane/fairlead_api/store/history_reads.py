"""Sessions, migrations, re-routes, decisions, rejections and audit as the public API shows them."""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Select, Table, func, select, text

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.reading import AuditFilter, DecisionFilter, MoveFilter, SessionFilter, Span
from fairlead_api.services.rejection_advice import advice
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import page
from fairlead_client.resources import (
    AuditEntry,
    BindingHistoryItem,
    CandidateTerm,
    Migration,
    MigrationFlow,
    MigrationMatrix,
    Move,
    Page,
    RejectionGroup,
    RejectionReport,
    RejectionSample,
    ReRoute,
    RoutingDecision,
    SessionDetail,
    SessionSummary,
    TimelineBucket,
)

AnyMove = TypeVar("AnyMove", bound=Move)
_BUCKETS = 60
"""Buckets of timelines and sparklines."""

pools, sessions, bindings = tables.pools, tables.sessions, tables.bindings
migrations, reroutes, decisions, log = tables.migrations, tables.reroutes, tables.decisions, tables.audit_log

_POOL = (pools.c.namespace + "/" + pools.c.name).label("pool")


class PostgresHistory:
    """Implements `services.reading.HistoryReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self, wanted: SessionFilter, span: Span) -> Page[SessionSummary]:
        query = select(sessions, _POOL).join(pools, pools.c.id == sessions.c.pool_id).where(sessions.c.version > 0)
        query = _in_pool(query, wanted.pool)
        if wanted.instance is not None:
            query = query.where(sessions.c.instance == wanted.instance)
        if wanted.q is not None:
            query = query.where(sessions.c.session.startswith(wanted.q, autoescape=True))
        keys = (sessions.c.last_seen_at, sessions.c.pool_id, sessions.c.session)
        async with self._database.reading() as connection:
            return await page(connection, query, keys, _session, cursor=span.cursor, limit=span.limit)

    async def session(self, pool: PoolKey, session: str) -> SessionDetail:
        query = select(sessions, _POOL).join(pools, pools.c.id == sessions.c.pool_id).where(sessions.c.session == session)
        query = query.where(pools.c.namespace == pool.namespace, pools.c.name == pool.name, sessions.c.version > 0)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound("session", session)
            holders = await connection.execute(
                select(bindings)
                .where(bindings.c.pool_id == row.pool_id, bindings.c.session == session)
                .order_by(bindings.c.version.desc())
                .limit(1000)
            )
            history = [
                BindingHistoryItem(
                    instance=holder.instance,
                    version=holder.version,
                    reason=holder.reason,
                    bound_at=holder.bound_at,
                    released_at=holder.released_at,
                    router=holder.router,
                    migration=holder.migration,
                )
                for holder in holders
            ]
        return SessionDetail(session=_session(row), history=history)

    async def migrations(self, wanted: MoveFilter, span: Span) -> Page[Migration]:
        return await self._moves(migrations, _migration, wanted, span)

    async def migration(self, migration_id: str) -> Migration:
        return _migration(await self._move(migrations, "migration", migration_id))

    async def recent_migrations(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, Migration]]:
        """Those recorded since, oldest first, with the time of recording (when a report brought them)."""
        return await self._recent_moves(migrations, _migration, pool, since, limit)

    async def migration_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        return await self._matrix(migrations, wanted, now)

    async def reroutes(self, wanted: MoveFilter, span: Span) -> Page[ReRoute]:
        return await self._moves(reroutes, _reroute, wanted, span)

    async def reroute(self, reroute_id: str) -> ReRoute:
        return _reroute(await self._move(reroutes, "re-route", reroute_id))

    async def recent_reroutes(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, ReRoute]]:
        """As `recent_migrations`."""
        return await self._recent_moves(reroutes, _reroute, pool, since, limit)

    async def reroute_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        return await self._matrix(reroutes, wanted, now)

    async def _moves(self, moves: Table, build: Callable[[Any], AnyMove], wanted: MoveFilter, span: Span) -> Page[AnyMove]:
        keys = (moves.c.at, moves.c.id)
        async with self._database.reading() as connection:
            return await page(connection, _moves(moves, wanted), keys, build, cursor=span.cursor, limit=span.limit)

    async def _move(self, moves: Table, what: str, move_id: str) -> Any:
        async with self._database.reading() as connection:
            row = (await connection.execute(_moves(moves, MoveFilter()).where(moves.c.id == move_id))).one_or_none()
        if row is None:
            raise NotFound(what, move_id)
        return row

    async def _recent_moves(
        self, moves: Table, build: Callable[[Any], AnyMove], pool: str | None, since: datetime, limit: int
    ) -> list[tuple[datetime, AnyMove]]:
        query = _moves(moves, MoveFilter(pool=pool)).where(moves.c.recorded_at > since)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(moves.c.recorded_at.desc(), moves.c.id).limit(limit))).all()
        return [(row.recorded_at, build(row)) for row in reversed(rows)]

    async def _matrix(self, moves: Table, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        end = wanted.end or now
        found = _moves(moves, wanted).subquery()
        async with self._database.reading() as connection:
            flows = await connection.execute(
                select(found.c.source, found.c.target, func.count().label("count"))
                .group_by(found.c.source, found.c.target)
                .order_by(func.count().desc(), found.c.source, found.c.target)
                .limit(2500)
            )
            triggers = await connection.execute(select(found.c.trigger, func.count()).group_by(found.c.trigger).order_by(found.c.trigger))
            first = (await connection.execute(select(func.min(found.c.at)))).scalar_one()
            start = wanted.start or first or end - timedelta(hours=1)
            width = max((end - start) / _BUCKETS, timedelta(seconds=1))
            number = func.floor(func.extract("epoch", found.c.at - start) / width.total_seconds())
            counted = await connection.execute(
                select(number.label("bucket"), found.c.trigger, func.count()).group_by("bucket", found.c.trigger)
            )
            buckets: dict[int, dict[str, int]] = {}
            for bucket, trigger, count in counted:
                buckets.setdefault(int(bucket), {})[trigger] = count
            timeline = [TimelineBucket(at=start + width * number, counts=buckets[number]) for number in sorted(buckets)]
            by_trigger: dict[str, int] = dict(tuple(row) for row in triggers)
            items = [MigrationFlow(source=source, target=target, count=count) for source, target, count in flows]
        return MigrationMatrix(flows=items, by_trigger=by_trigger, timeline=timeline, total=sum(by_trigger.values()))

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]:
        async with self._database.reading() as connection:
            keys = (decisions.c.at, decisions.c.id)
            return await page(connection, _decisions(wanted), keys, _decision, cursor=span.cursor, limit=span.limit)

    async def decision(self, decision_id: str) -> RoutingDecision:
        query = _decisions(DecisionFilter()).where(decisions.c.id == decision_id).order_by(decisions.c.at.desc()).limit(1)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFound("decision", decision_id)
        return _decision(row)

    async def recent_decisions(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, RoutingDecision]]:
        """As `recent_migrations`."""
        query = _decisions(DecisionFilter(pool=pool)).where(decisions.c.recorded_at > since, decisions.c.at > since - timedelta(days=1))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(decisions.c.recorded_at.desc(), decisions.c.id).limit(limit))).all()
        return [(row.recorded_at, _decision(row)) for row in reversed(rows)]

    async def rejections(self, pool: str | None, start: datetime, end: datetime) -> RejectionReport:
        values = {"start": start, "end": end, "width": max((end - start).total_seconds() / _BUCKETS, 1.0), "pool": pool}
        where = "r.second >= :start AND r.second < :end AND (CAST(:pool AS text) IS NULL OR p.namespace || '/' || p.name = :pool)"
        source = f"FROM rejections r JOIN pools p ON p.id = r.pool_id WHERE {where}"
        bucket = "least(floor(extract(epoch FROM r.second - :start) / :width), 59)"
        async with self._database.reading() as connection:
            counted = await connection.execute(
                text(
                    f"SELECT p.namespace || '/' || p.name AS pool, r.reason, r.status, {bucket} AS bucket, sum(r.count) AS count, "
                    f"min(r.second) AS first_at, max(r.second) AS last_at {source} GROUP BY 1, 2, 3, 4"
                ),
                values,
            )
            groups: dict[tuple[str, str, int], list[Any]] = {}
            for row in counted:
                groups.setdefault((row.pool, row.reason, row.status), []).append(row)
            sampled = await connection.execute(
                text(
                    "SELECT * FROM (SELECT p.namespace || '/' || p.name AS pool, r.*, row_number() OVER (PARTITION BY r.pool_id, r.reason, r.status "
                    f"ORDER BY r.second DESC) AS place {source}) s WHERE place <= 5 ORDER BY second DESC"
                ),
                values,
            )
            samples: dict[tuple[str, str, int], list[RejectionSample]] = {}
            for row in sampled:
                samples.setdefault((row.pool, row.reason, row.status), []).append(
                    RejectionSample(
                        at=row.second,
                        request=row.sample_request,
                        prompt_tokens=row.sample_prompt_tokens,
                        retry_after_seconds=row.retry_after_seconds,
                        predicted_ttft_seconds=row.predicted_ttft_seconds,
                    )
                )
            served = await connection.execute(
                text(
                    "SELECT coalesce(sum(r.completed), 0) FROM load_samples r JOIN pools p ON p.id = r.pool_id WHERE " + where
                    if end - start <= timedelta(hours=2)
                    else "SELECT coalesce(sum(r.completed), 0) FROM load_rollups_1m r JOIN pools p ON p.id = r.pool_id WHERE "
                    + where.replace("r.second", "r.bucket")
                ),
                {name: values[name] for name in ("start", "end", "pool")},
            )
            served_count = int(served.scalar_one())
        total = int(sum(row.count for rows in groups.values() for row in rows))
        items = [_rejection_group(key, rows, total, samples.get(key, [])) for key, rows in groups.items()]
        return RejectionReport(
            groups=sorted(items, key=lambda group: (-group.count, group.pool, group.reason)), total=total, served=served_count
        )

    async def audit(self, wanted: AuditFilter, span: Span) -> Page[AuditEntry]:
        query = select(log)
        for column, value in ((log.c.actor, wanted.actor), (log.c.action, wanted.action), (log.c.object, wanted.object)):
            if value is not None:
                query = query.where(column.startswith(value[:-1], autoescape=True) if value.endswith("*") else column == value)
        query = _between(query, log.c.at, wanted.start, wanted.end)
        async with self._database.reading() as connection:
            return await page(connection, query, (log.c.id,), _audit_entry, cursor=span.cursor, limit=span.limit)

    async def audit_entry(self, entry_id: int) -> AuditEntry:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(log).where(log.c.id == entry_id))).one_or_none() if entry_id < 2**63 else None
        if row is None:
            raise NotFound("audit entry", str(entry_id))
        return _audit_entry(row)


def _in_pool(query: "Select[Any]", pool: str | None) -> "Select[Any]":
    """Raises InvalidInput for a pool that is not namespace/name."""
    if pool is None:
        return query
    try:
        key = PoolKey.parse(pool)
    except ValueError as error:
        raise InvalidInput("pool", pool, "write namespace/name") from error
    return query.where(pools.c.namespace == key.namespace, pools.c.name == key.name)


def _between(query: "Select[Any]", column: "ColumnElement[Any]", start: datetime | None, end: datetime | None) -> "Select[Any]":
    if start is not None:
        query = query.where(column >= start)
    if end is not None:
        query = query.where(column < end)
    return query


def _moves(moves: Table, wanted: MoveFilter) -> "Select[Any]":
    query = _in_pool(select(moves, _POOL).join(pools, pools.c.id == moves.c.pool_id), wanted.pool)
    for column in (moves.c.source, moves.c.target, moves.c.trigger, moves.c.outcome, moves.c.session, moves.c.paid_off):
        value = getattr(wanted, column.key)
        if value is not None:
            query = query.where(column == value)
    return _between(query, moves.c.at, wanted.start, wanted.end)


def _decisions(wanted: DecisionFilter) -> "Select[Any]":
    query = _in_pool(select(decisions, _POOL).join(pools, pools.c.id == decisions.c.pool_id), wanted.pool)
    for column, value in (
        (decisions.c.chosen, wanted.instance),
        (decisions.c.session, wanted.session),
        (decisions.c.reason, wanted.reason),
    ):
        if value is not None:
            query = query.where(column == value)
    return _between(query, decisions.c.at, wanted.start, wanted.end)


def _session(row: Any) -> SessionSummary:
    return SessionSummary(
        pool=row.pool,
        session=row.session,
        instance=row.instance,
        version=row.version,
        reason=row.reason,
        bound_at=row.bound_at,
        last_seen_at=row.last_seen_at,
        migrations=row.migrations,
        context_tokens=row.context_tokens,
    )


def _migration(row: Any) -> Migration:
    return _move(Migration, row)


def _reroute(row: Any) -> ReRoute:
    return _move(ReRoute, row)


def _move(kind: type[AnyMove], row: Any) -> AnyMove:
    return kind(**{one.name: getattr(row, one.name) for one in fields(kind)})


def _decision(row: Any) -> RoutingDecision:
    return RoutingDecision(
        id=row.id,
        pool=row.pool,
        request=row.request,
        session=row.session,
        at=row.at,
        router=row.router,
        policy=row.policy,
        table_version=row.table_version,
        chosen=row.chosen,
        runner_up=row.runner_up,
        reason=row.reason,
        prompt_tokens=row.prompt_tokens,
        queued_seconds=row.queued_seconds,
        ttft_seconds=row.ttft_seconds,
        sample_rate=row.sample_rate,
        candidates=msgspec.convert(row.candidates, list[CandidateTerm], strict=False),
    )


def _rejection_group(key: tuple[str, str, int], rows: list[Any], total: int, samples: list[RejectionSample]) -> RejectionGroup:
    pool, reason, status = key
    sparkline = [0] * _BUCKETS
    for row in rows:
        sparkline[int(row.bucket)] += int(row.count)
    count = sum(sparkline)
    return RejectionGroup(
        pool=pool,
        reason=reason,
        status=status,
        count=count,
        share=count / total if total else 0.0,
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
        sparkline=sparkline,
        samples=samples,
        suggestion=advice(reason),
    )


def _audit_entry(row: Any) -> AuditEntry:
    names = (
        "id",
        "at",
        "actor",
        "role",
        "source",
        "action",
        "object",
        "reason",
        "before",
        "after",
        "result",
        "request_id",
        "plan",
        "chain",
    )
    return AuditEntry(**{name: getattr(row, name) for name in names})
