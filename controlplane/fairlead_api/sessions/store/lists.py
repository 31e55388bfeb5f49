"""Reads sessions for the public API: the present and earlier instances of each session; and the sessions of an
instance, ranked by the size of their context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.infra import paging
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.paging import Lists, RowsWithin, narrowed, readable
from fairlead_api.infra.records import read
from fairlead_api.infra.session_names import names_of_keys
from fairlead_api.infra.spans import Span
from fairlead_api.tables import bindings, session_names, sessions
from fairlead_client.resources.instances import HeldSession, SessionsHeld
from fairlead_client.resources.pages import Page
from fairlead_client.resources.sessions import BindingHistoryItem, SessionDetail, SessionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Filter of sessions; `q` is any part of a session's name."""

    pool: str | None = None
    instance: str | None = None
    q: str | None = None


TOP = 10


async def sessions_held(connection: AsyncConnection, pool_id: int, instance: str) -> SessionsHeld:
    """Return figures of the sessions that the instance holds. If it holds many, only the most recently seen ones are
    counted.
    """
    columns = sessions.c
    newest = RowsWithin(
        select(columns.session, columns.context_tokens, columns.bound_at, columns.last_seen_at, columns.reason, columns.migrations)
        .where(columns.instance == instance, columns.pool_id == pool_id, columns.version > 0)
        .order_by(columns.last_seen_at.desc())
        .limit(paging.SEARCHED)
    )
    counted, whole = func.count().over().label("counted"), func.sum(newest.c.context_tokens).over().label("whole")
    query = newest.select().add_columns(counted, whole).order_by(newest.c.context_tokens.desc(), newest.c.session).limit(TOP)
    rows = (await connection.execute(query)).all()
    if not rows:
        return SessionsHeld(counted=0, complete=True, context_tokens=0, top=[])
    total = int(rows[0].whole)
    return SessionsHeld(
        counted=rows[0].counted,
        complete=rows[0].counted < paging.SEARCHED,
        context_tokens=total,
        top=[read(HeldSession, row, share=row.context_tokens / total if total else 0.0) for row in rows],
    )


NAMED = 1_000
"""Maximum number of sessions found by name that are sorted by the time at which they were last seen."""

TRIGRAM = 3
"""Minimum length, in characters, of a part of a name that the index of names can find."""


SESSION_KEYS = (sessions.c.last_seen_at, sessions.c.pool_id, sessions.c.session)
"""The columns that order the list of sessions."""

WHOLE_KEYS = (sessions.c.pool_id, sessions.c.session)
"""The columns that order the list of sessions when all of it is read, ascending. In the usual order, an active session
would change its position during the reading.
"""


class PostgresSessions:
    """Reads sessions for the public API."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def sessions(self, wanted: SessionFilter, span: Span) -> Page[SessionSummary]:
        query = select(sessions).where(sessions.c.version > 0)
        async with self._lists.database.reading() as connection:
            pool = await self._lists.pool_id(connection, wanted.pool)
            query, also = narrowed(query, [(sessions.c.instance, wanted.instance), (sessions.c.pool_id, pool)])
            if wanted.q is not None:
                part = wanted.q
                named = select(session_names.c.pool_id, session_names.c.session).where(
                    session_names.c.session.contains(part, autoescape=True)
                )
                if pool is not None:
                    named = named.where(session_names.c.pool_id == pool)
                if len(part) >= TRIGRAM and await _few(connection, named):
                    query = query.where(tuple_(sessions.c.pool_id, sessions.c.session).in_(named))
                else:
                    also.append(lambda columns: columns.session.contains(part, autoescape=True))
            keys = WHOLE_KEYS if span.whole else SESSION_KEYS
            ordered = replace(span, reverse=span.reverse != span.whole)
            page = await self._lists.page(connection, (query, also), keys, _summary, ordered)
            return replace(page, items=await _with_keys(connection, page.items))

    async def session(self, pool: PoolKey, session: str) -> SessionDetail:
        """Return a session and its holders. Raises NotFound."""
        async with self._lists.database.reading() as connection:
            of_pool = sessions.c.pool_id == await self._lists.pool_id(connection, str(pool))
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
            history = [item for _, item in readable(holders, lambda holder: read(BindingHistoryItem, holder))]
            summaries = readable([row], lambda row: _summary(row, str(pool)))
            items = await _with_keys(connection, [summary for _, summary in summaries])
        if not items:
            raise NotFound("session", session)
        return SessionDetail(session=items[0], history=history)


async def _few(connection: AsyncConnection, named: "Select[Any]") -> bool:
    """Return whether the sessions that match a search by name are few enough to be sorted.

    If they are many, it is faster to read the list of sessions in its order until enough matches are found.
    """
    counted = await connection.execute(select(func.count()).select_from(named.limit(NAMED + 1).subquery()))
    return bool(counted.scalar_one() <= NAMED)


async def _with_keys(connection: AsyncConnection, items: Sequence[SessionSummary]) -> list[SessionSummary]:
    keys = await names_of_keys(connection, [item.session for item in items])
    return [replace(item, key=keys.get(item.session)) for item in items]


def _summary(row: Any, pool: str) -> SessionSummary:
    return read(SessionSummary, row, pool=pool)
