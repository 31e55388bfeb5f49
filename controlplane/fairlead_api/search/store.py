"""Finds everything that has a page by a part of its name. No SQL statement reads more rows than a page of a list may
read.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, or_, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.decisions.store import PostgresDecisions
from fairlead_api.infra import paging
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import why_not_there
from fairlead_api.infra.paging import RowsWithin
from fairlead_api.infra.pool_rows import PoolNames
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.sessions.store.lists import SESSION_KEYS, PostgresSessions, SessionFilter
from fairlead_api.tables import audit_log, decisions, instances, plans, pools
from fairlead_client.resources.search import SearchGroup, SearchHit, SearchKind, SearchReport
from fairlead_client.resources.sessions import SessionSummary

Build = Callable[[Any], SearchHit]

SHORTEST_ID = 6
"""Minimum length of a text that may be a request's id."""

Seen = Sequence[int] | None
"""Ids of the pools that the caller may see; None means all pools."""


class PostgresSearch:
    """Searches the database by a part of a name."""

    def __init__(self, database: Database, sessions: PostgresSessions, decisions: PostgresDecisions, decisions_days: int) -> None:
        self._database = database
        self._decisions = decisions
        self._decisions_days = decisions_days
        self._sessions = sessions
        self._names = PoolNames()

    async def search(self, part: str, most: int, sight: Sight) -> SearchReport:
        """Return, for each kind of object, at most `most` visible results whose name contains `part`; empty for an
        empty part.
        """
        if not part or "\0" in part:  # Postgres has no text with a NUL in it, so no name has one
            return SearchReport(q=part, groups=[])
        sessions = await self._of_sessions(part, most, sight)
        async with self._database.reading() as connection:
            seen = await _pools_in(connection, sight)
            groups = [
                await _of_pools(connection, part, most, seen),
                await self._of_instances(connection, part, most, seen),
                sessions,
                await self._of_requests(connection, part, most, seen),
                await self._of_plans(connection, part, most, seen),
                await _of_audit(connection, part, most, sight),
            ]
        note = None
        if len(part) >= SHORTEST_ID and " " not in part and not any(group.hits for group in groups):
            note = why_not_there(await self._decisions.sampled_share(), self._decisions_days)
        return SearchReport(q=part, groups=groups, note=note)

    async def _of_sessions(self, part: str, most: int, sight: Sight) -> SearchGroup:
        page = await self._sessions.sessions(SessionFilter(q=part), Span(limit=most, sight=sight))
        matching = page.total if page.total is not None else page.total_at_least or 0
        more, since = matching > len(page.items), None
        if page.next_cursor is not None and not more:  # the list was not looked through: its next page begins there
            since, *_ = paging.decode_cursor(page.next_cursor, SESSION_KEYS)
        return SearchGroup(kind=SearchKind.SESSION, hits=[_session(one) for one in page.items], more=more, since=since)

    async def _of_instances(self, connection: AsyncConnection, part: str, most: int, seen: Seen) -> SearchGroup:
        columns = instances.c
        living = select(columns.pool_id, columns.id, columns.role, columns.state, columns.created_at).where(columns.gone_at.is_(None))
        some = RowsWithin(living.limit(paging.SEARCHED))
        sought = some.select().where(_has(part, some.c.id), _in(some.c.pool_id, seen)).order_by(some.c.id).limit(most + 1)
        found = (await connection.execute(sought)).all()
        known = await self._names.names(connection, [row.pool_id for row in found])

        def build(row: Any) -> SearchHit:
            words = f"{row.role}, {row.state}"
            return SearchHit(kind=SearchKind.INSTANCE, id=row.id, name=row.id, words=words, pool=known[row.pool_id], at=row.created_at)

        return _group(SearchKind.INSTANCE, found, build, most)

    async def _of_requests(self, connection: AsyncConnection, part: str, most: int, seen: Seen) -> SearchGroup:
        """Find requests by their whole id among all requests, or by a part of their id among the newest decisions."""
        columns = decisions.c
        chosen = select(columns.id, columns.pool_id, columns.request, columns.at, columns.chosen, columns.client_request, columns.trace)
        ids = (columns.id, columns.request, columns.client_request, columns.trace)
        each = [chosen.where(one == part, _in(columns.pool_id, seen)).order_by(columns.at.desc()).limit(most + 1) for one in ids]
        found_by = [(await connection.execute(query)).all() for query in each]
        unique = {row.id: row for rows in found_by for row in rows}
        whole = sorted(unique.values(), key=lambda row: row.at, reverse=True)[: most + 1]
        found: Sequence[Any] = whole
        since: datetime | None = None
        if not whole:
            found, since = await _newest(
                connection,
                decisions,
                chosen,
                (columns.at, columns.id),
                part,
                ("request", "id", "client_request", "trace"),
                most,
                lambda newest: _in(newest.pool_id, seen),
            )
        known = await self._names.names(connection, [row.pool_id for row in found])

        def build(row: Any) -> SearchHit:
            words = f"went to {row.chosen}" if row.chosen else "no instance could take it"
            named = row.client_request or row.request
            return SearchHit(kind=SearchKind.REQUEST, id=row.id, name=named, words=words, pool=known[row.pool_id], at=row.at)

        return _group(SearchKind.REQUEST, found, build, most, since)

    async def _of_plans(self, connection: AsyncConnection, part: str, most: int, seen: Seen) -> SearchGroup:
        columns = plans.c
        chosen = select(columns.id, columns.pool_id, columns.kind, columns.created_by, columns.created_at, columns.reason)
        fields = ("id", "kind", "created_by", "reason")
        found, since = await _newest(
            connection, plans, chosen, (columns.created_at, columns.id), part, fields, most, lambda newest: _in(newest.pool_id, seen)
        )
        known = await self._names.names(connection, [row.pool_id for row in found])

        def build(row: Any) -> SearchHit:
            words = f"{row.kind} by {row.created_by}" + (f": {row.reason}" if row.reason else "")
            return SearchHit(kind=SearchKind.PLAN, id=row.id, name=row.id, words=words, pool=known[row.pool_id], at=row.created_at)

        return _group(SearchKind.PLAN, found, build, most, since)


async def _of_pools(connection: AsyncConnection, part: str, most: int, seen: Seen) -> SearchGroup:
    columns = pools.c
    name = (columns.namespace + "/" + columns.name).label("name")
    living = RowsWithin(select(name, columns.id, columns.model).where(columns.deleted_at.is_(None)).limit(paging.SEARCHED))
    matching = living.select().where(_has(part, living.c.name, living.c.model), _in(living.c.id, seen))
    sought = matching.order_by(living.c.name).limit(most + 1)

    def build(row: Any) -> SearchHit:
        return SearchHit(kind=SearchKind.POOL, id=row.name, name=row.name, words=row.model, pool=row.name)

    return _group(SearchKind.POOL, (await connection.execute(sought)).all(), build, most)


async def _of_audit(connection: AsyncConnection, part: str, most: int, sight: Sight) -> SearchGroup:
    columns = audit_log.c
    chosen = select(columns.id, columns.at, columns.actor, columns.action, columns.object, columns.reason, columns.result)
    fields = ("object", "actor", "action", "reason")
    found, since = await _newest(
        connection, audit_log, chosen, (columns.at, columns.id), part, fields, most, lambda newest: _by_object(newest.object, sight)
    )

    def build(row: Any) -> SearchHit:
        words = f"{row.action} by {row.actor}"
        return SearchHit(kind=SearchKind.AUDIT, id=str(row.id), name=row.object, words=words, at=row.at)

    return _group(SearchKind.AUDIT, found, build, most, since)


async def _newest(
    connection: AsyncConnection,
    table: Table,
    chosen: "Select[Any]",
    keys: Sequence["ColumnElement[Any]"],
    part: str,
    fields: Sequence[str],
    most: int,
    within: paging.Test,
) -> tuple[Sequence[Any], datetime | None]:
    """Return the matching rows among the newest rows: `most` of them, and one more row if there are further rows. Also
    return the time of the oldest searched row, None if all rows were searched.
    """
    order = [key.desc() for key in keys]
    newest = RowsWithin(chosen.order_by(*order).limit(paging.SEARCHED))
    matching = newest.select().where(_has(part, *(newest.c[field] for field in fields)), within(newest.c))
    found = (await connection.execute(matching.order_by(*(newest.c[str(key.key)].desc() for key in keys)).limit(most + 1))).all()
    if len(found) > most:
        return found, None
    edge = select(keys[0]).select_from(table).order_by(*order).offset(paging.SEARCHED).limit(1)
    return found, (await connection.execute(edge)).scalar_one_or_none()


async def _pools_in(connection: AsyncConnection, sight: Sight) -> Seen:
    if sight is None:
        return None
    return (await connection.execute(select(pools.c.id).where(pools.c.namespace.in_(sorted(sight))))).scalars().all()


def _in(column: "ColumnElement[Any]", seen: Seen) -> "ColumnElement[bool]":
    return true() if seen is None else column.in_(seen)


def _by_object(column: "ColumnElement[Any]", sight: Sight) -> "ColumnElement[bool]":
    """Return the SQL condition that an audit entry is about an object in a visible namespace; always true if all
    namespaces are visible.
    """
    return true() if sight is None else column.contains("/") & func.split_part(column, "/", 1).in_(sorted(sight))


def _has(part: str, *columns: "ColumnElement[Any]") -> "ColumnElement[bool]":
    return or_(*(column.icontains(part, autoescape=True) for column in columns))


def _group(kind: SearchKind, rows: Sequence[Any], build: Build, most: int, since: datetime | None = None) -> SearchGroup:
    return SearchGroup(kind=kind, hits=[build(row) for row in rows[:most]], more=len(rows) > most, since=since)


def _session(one: SessionSummary) -> SearchHit:
    words = f"on {one.instance}" if one.instance else "without a home"
    return SearchHit(kind=SearchKind.SESSION, id=one.session, name=one.session, words=words, pool=one.pool, at=one.last_seen_at)
