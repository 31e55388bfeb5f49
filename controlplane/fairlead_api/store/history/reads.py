"""Sessions, migrations, re-routes, decisions, rejections and audit as the public API shows them."""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Select, Table, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.reports import Weighing
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.contracts.weighing import NOT_RECORDED, PolicyTerms
from fairlead.routing.explanations.explaining import explain
from fairlead.routing.explanations.explaining_moves import explain_move
from fairlead.routing.explanations.grounds import ground_of
from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.history.reading import AuditFilter, DecisionFilter, MoveFilter, SessionFilter
from fairlead_api.services.history.rejection_advice import advice
from fairlead_api.services.spans import Span
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import SEARCHED, Test, page
from fairlead_api.store.pool_names import PoolNames
from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.decisions import CandidateTerm, RoutingDecision
from fairlead_client.resources.moves import Migration, MigrationFlow, MigrationMatrix, Move, ReRoute, TimelineBucket
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport, RejectionSample
from fairlead_client.resources.sessions import BindingHistoryItem, SessionDetail, SessionSummary

AnyMove = TypeVar("AnyMove", bound=Move)
Recent = TypeVar("Recent")
_BUCKETS = 60
"""Buckets of timelines and sparklines."""

sessions, names, bindings = tables.sessions, tables.session_names, tables.bindings
migrations, reroutes, decisions, log = tables.migrations, tables.reroutes, tables.decisions, tables.audit_log

MATRIX_ROWS = 2 * SEARCHED
"""Most moves one matrix looks at, the newest of its range."""

NAMED = 1_000
"""Up to so many sessions found by a part of their name are sorted by when they were last seen."""

TRIGRAM = 3
"""Characters of the shortest part of a name that the index of names can find."""

NO_POOL = -1
"""The id of a pool that never was."""

Chosen = tuple[Select[Any], list[Test]]
"""A list as `page` takes it: what an index serves, and what has to be looked for."""


class PostgresHistory:
    """Implements `services.history.reading.HistoryReader`."""

    def __init__(self, database: Database, policies: PolicyCatalogue) -> None:
        self._database = database
        self._policies = policies
        self._pools = PoolNames()

    async def sessions(self, wanted: SessionFilter, span: Span) -> Page[SessionSummary]:
        keys = (sessions.c.last_seen_at, sessions.c.pool_id, sessions.c.session)
        query = select(sessions).where(sessions.c.version > 0)
        async with self._database.reading() as connection:
            pool = await self._pool(connection, wanted.pool)
            query, also = _narrowed(query, [(sessions.c.instance, wanted.instance), (sessions.c.pool_id, pool)])
            if wanted.q is not None:
                part = wanted.q
                named = select(names.c.pool_id, names.c.session).where(names.c.session.contains(part, autoescape=True))
                if pool is not None:
                    named = named.where(names.c.pool_id == pool)
                if len(part) >= TRIGRAM and await _few(connection, named):
                    query = query.where(tuple_(sessions.c.pool_id, sessions.c.session).in_(named))
                else:
                    also.append(lambda c: c.session.contains(part, autoescape=True))
            found = await page(connection, query, keys, _row, also=also, cursor=span.cursor, limit=span.limit)
            return await self._named(connection, found, _session)

    async def session(self, pool: PoolKey, session: str) -> SessionDetail:
        async with self._database.reading() as connection:
            of_pool = sessions.c.pool_id == await self._pool(connection, str(pool))
            query = select(sessions).where(of_pool, sessions.c.session == session, sessions.c.version > 0)
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
        return SessionDetail(session=_session(row, str(pool)), history=history)

    async def migrations(self, wanted: MoveFilter, span: Span) -> Page[Migration]:
        return await self._moves(migrations, _migration, wanted, span)

    async def migration(self, migration_id: str) -> Migration:
        return await self._move(migrations, "migration", migration_id, _migration)

    async def recent_migrations(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, Migration]]:
        """Those recorded since, oldest first, with the time of recording (when a report brought them)."""
        query = select(migrations).where(migrations.c.recorded_at > since)
        return await self._recent(migrations, query, _migration, pool, limit)

    async def migration_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        return await self._matrix(migrations, wanted, now)

    async def reroutes(self, wanted: MoveFilter, span: Span) -> Page[ReRoute]:
        return await self._moves(reroutes, _reroute, wanted, span)

    async def reroute(self, reroute_id: str) -> ReRoute:
        return await self._move(reroutes, "re-route", reroute_id, _reroute)

    async def recent_reroutes(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, ReRoute]]:
        """As `recent_migrations`."""
        query = select(reroutes).where(reroutes.c.recorded_at > since)
        return await self._recent(reroutes, query, _reroute, pool, limit)

    async def reroute_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        return await self._matrix(reroutes, wanted, now)

    async def _moves(self, moves: Table, build: Callable[[Any, str], AnyMove], wanted: MoveFilter, span: Span) -> Page[AnyMove]:
        keys = (moves.c.at, moves.c.id)
        async with self._database.reading() as connection:
            query, also = _chosen_moves(moves, wanted, await self._pool(connection, wanted.pool))
            found = await page(connection, query, keys, _row, also=also, cursor=span.cursor, limit=span.limit)
            return await self._named(connection, found, build)

    async def _move(self, moves: Table, what: str, move_id: str, build: Callable[[Any, str], AnyMove]) -> AnyMove:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(moves).where(moves.c.id == move_id))).one_or_none()
            if row is None:
                raise NotFound(what, move_id)
            return build(row, (await self._pools.names(connection, [row.pool_id]))[row.pool_id])

    async def _recent(
        self, table: Table, query: Select[Any], build: Callable[[Any, str], Recent], pool: str | None, limit: int
    ) -> list[tuple[datetime, Recent]]:
        async with self._database.reading() as connection:
            query, _ = _narrowed(query, [(table.c.pool_id, await self._pool(connection, pool))])
            rows = (await connection.execute(query.order_by(table.c.recorded_at.desc(), table.c.id).limit(limit))).all()
            known = await self._pools.names(connection, [row.pool_id for row in rows])
        return [(row.recorded_at, build(row, known[row.pool_id])) for row in reversed(rows)]

    async def _matrix(self, moves: Table, wanted: MoveFilter, now: datetime) -> MigrationMatrix:
        end = wanted.end or now
        async with self._database.reading() as connection:
            query, also = _chosen_moves(moves, wanted, await self._pool(connection, wanted.pool))
            searched = query.order_by(moves.c.at.desc()).limit(MATRIX_ROWS).subquery()
            seen, first = (await connection.execute(select(func.count(), func.min(searched.c.at)))).one()
            complete = seen < MATRIX_ROWS
            start = (wanted.start if complete else None) or first or end - timedelta(hours=1)
            width = max((end - start) / _BUCKETS, timedelta(seconds=1))
            number = func.floor(func.extract("epoch", searched.c.at - start) / width.total_seconds())
            columns = (searched.c.source, searched.c.target, number.label("bucket"), searched.c.trigger)
            found = select(*columns).where(*(test(searched.c) for test in also)).subquery().c
            sets = func.grouping_sets(tuple_(found.source, found.target), tuple_(found.bucket, found.trigger))
            counted = await connection.execute(
                select(found.source, found.target, found.bucket, found.trigger, func.count().label("amount")).group_by(sets)
            )
            flows: list[MigrationFlow] = []
            buckets: dict[int, dict[str, int]] = {}
            by_trigger: Counter[str] = Counter()
            for source, target, bucket, trigger, amount in counted:
                if source is not None:
                    flows.append(MigrationFlow(source=source, target=target, count=amount))
                else:
                    buckets.setdefault(int(bucket), {})[trigger] = amount
                    by_trigger[trigger] += amount
        return MigrationMatrix(
            flows=sorted(flows, key=lambda flow: (-flow.count, flow.source, flow.target))[:2500],
            by_trigger=dict(sorted(by_trigger.items())),
            timeline=[TimelineBucket(at=start + width * number, counts=buckets[number]) for number in sorted(buckets)],
            total=by_trigger.total(),
            complete=complete,
            counted_from=start,
        )

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]:
        filters: list[tuple[Any, Any]] = [
            (decisions.c.session, wanted.session),
            (decisions.c.chosen, wanted.instance),
            (decisions.c.reason, wanted.reason),
        ]
        async with self._database.reading() as connection:
            filters.append((decisions.c.pool_id, await self._pool(connection, wanted.pool)))
            query, also = _narrowed(_between(select(decisions), decisions.c.at, wanted.start, wanted.end), filters)
            keys = (decisions.c.at, decisions.c.id)
            found = await page(connection, query, keys, _row, also=also, cursor=span.cursor, limit=span.limit)
            return await self._named(connection, found, self._decision)

    def _decision(self, row: Any, pool: str) -> RoutingDecision:
        return _decision(row, pool, self._policies.terms(row.policy))

    async def _pool(self, connection: AsyncConnection, pool: str | None) -> int | None:
        """Its id; NO_POOL if there was never such a pool. Raises InvalidInput for what is not namespace/name."""
        if pool is None:
            return None
        try:
            key = PoolKey.parse(pool)
        except ValueError as error:
            raise InvalidInput("pool", pool, "write namespace/name") from error
        found = await self._pools.id_of(connection, key)
        return NO_POOL if found is None else found

    async def _named(self, connection: AsyncConnection, found: Page[Any], build: Callable[[Any, str], Recent]) -> Page[Recent]:
        """The page with its rows built, each with its pool's name."""
        known = await self._pools.names(connection, [row.pool_id for row in found.items])
        items = [build(row, known[row.pool_id]) for row in found.items]
        return Page(items=items, next_cursor=found.next_cursor, total=found.total, total_at_least=found.total_at_least)

    async def decision(self, decision_id: str) -> RoutingDecision:
        query = select(decisions).where(decisions.c.id == decision_id).order_by(decisions.c.at.desc()).limit(1)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise NotFound("decision", decision_id)
            return self._decision(row, (await self._pools.names(connection, [row.pool_id]))[row.pool_id])

    async def recent_decisions(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, RoutingDecision]]:
        """As `recent_migrations`."""
        query = select(decisions).where(decisions.c.recorded_at > since, decisions.c.at > since - timedelta(days=1))
        return await self._recent(decisions, query, self._decision, pool, limit)

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
        exact: list[tuple[ColumnElement[Any], Any]] = []
        beginnings: list[Test] = []
        for name in ("object", "actor", "action"):
            value = getattr(wanted, name)
            if value is not None and value.endswith("*"):
                beginnings.append(_begins(name, value[:-1]))
            else:
                exact.append((log.c[name], value))
        query, also = _narrowed(_between(select(log), log.c.at, wanted.start, wanted.end), exact)
        async with self._database.reading() as connection:
            also = [*also, *beginnings]
            return await page(connection, query, (log.c.at, log.c.id), _audit_entry, also=also, cursor=span.cursor, limit=span.limit)

    async def audit_entry(self, entry_id: int) -> AuditEntry:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(log).where(log.c.id == entry_id))).one_or_none() if entry_id < 2**63 else None
        if row is None:
            raise NotFound("audit entry", str(entry_id))
        return _audit_entry(row)


def _row(row: Any) -> Any:
    return row


def _narrowed(query: "Select[Any]", filters: Sequence[tuple[Any, Any]]) -> Chosen:
    """The first filter that is asked for narrows the query through its index (`column, at`); the others are looked for among its rows.
    `filters` come in the order of how few rows they leave."""
    asked = [(column, value) for column, value in filters if value is not None]
    if asked:
        query = query.where(asked[0][0] == asked[0][1])
    return query, [_equals(column.key, value) for column, value in asked[1:]]


def _equals(name: str, value: Any) -> Test:
    return lambda columns: columns[name] == value


def _begins(name: str, beginning: str) -> Test:
    return lambda columns: columns[name].startswith(beginning, autoescape=True)


async def _few(connection: AsyncConnection, named: "Select[Any]") -> bool:
    """Whether so few sessions have the name that they can be sorted; of many, the newest are found sooner in the list itself."""
    counted = await connection.execute(select(func.count()).select_from(named.limit(NAMED + 1).subquery()))
    return bool(counted.scalar_one() <= NAMED)


def _between(query: "Select[Any]", column: "ColumnElement[Any]", start: datetime | None, end: datetime | None) -> "Select[Any]":
    if start is not None:
        query = query.where(column >= start)
    if end is not None:
        query = query.where(column < end)
    return query


def _chosen_moves(moves: Table, wanted: MoveFilter, pool: int | None) -> Chosen:
    order = ("session", "source", "target", "outcome", "trigger")
    filters = [*((moves.c[name], getattr(wanted, name)) for name in order), (moves.c.pool_id, pool)]
    query, also = _narrowed(_between(select(moves), moves.c.at, wanted.start, wanted.end), filters)
    if wanted.paid_off is not None:
        also.append(_equals("paid_off", wanted.paid_off))
    return query, also


def _session(row: Any, pool: str) -> SessionSummary:
    return SessionSummary(
        pool=pool,
        session=row.session,
        instance=row.instance,
        version=row.version,
        reason=row.reason,
        bound_at=row.bound_at,
        last_seen_at=row.last_seen_at,
        migrations=row.migrations,
        context_tokens=row.context_tokens,
    )


def _migration(row: Any, pool: str) -> Migration:
    return _move(Migration, row, pool, f"Session {row.session}")


def _reroute(row: Any, pool: str) -> ReRoute:
    return _move(ReRoute, row, pool, f"Request {row.request}")


def _move(kind: type[AnyMove], row: Any, pool: str, what: str) -> AnyMove:
    stored = {one.name: getattr(row, one.name) for one in fields(kind) if one.name not in ("pool", "explanation")}
    return kind(pool=pool, **stored, explanation=explain_move(row, what))


_UNWEIGHED = Weighing(rule=NOT_RECORDED, candidates=(), considered=0)


def _decision(row: Any, pool: str, known: PolicyTerms | None) -> RoutingDecision:
    weighing = _UNWEIGHED if row.weighing is None else msgspec.convert(row.weighing, Weighing)
    ground = ground_of(known, weighing.rule, weighing.limits)
    decision = RoutingDecision(
        id=row.id,
        pool=pool,
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
        rule=ground.rule,
        terms=list(ground.terms),
        parts=list(ground.parts),
        limits=list(ground.limits),
        considered=weighing.considered,
        passed_over=weighing.passed_over,
        served_by=row.served_by,
    )
    return replace(decision, explanation=explain(decision))


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
