"""Stores comments in the database. Every write appends its audit entry in the same transaction."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api.comments.rules import LONGEST_RANGE, MOST_OWN
from fairlead_api.infra import audit_log
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.paging import Lists
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.spans import Sight
from fairlead_api.tables import comments, plans, pools
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.comments import Comment, Comments

MOST = 200
"""Maximum number of comments that are read at once."""
_COUNTING = 0x636D_7400
"""Advisory lock (the letters `cmt`) for counting and writing comments, so that simultaneous requests cannot exceed a
limit.
"""
_MINE = comments.c


class PostgresComments:
    """Comments on pools. Methods raise NotFound for pools and plans that the caller does not see."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lists = Lists(database)

    async def comments(self, pool: str | None, plan: str | None, span: tuple[datetime | None, datetime | None], sight: Sight) -> Comments:
        """Return comments whose range overlaps `span`, on one pool or on all visible pools; with `plan`, comments on
        that plan.
        """
        query = _joined()
        start, end = span
        async with self._database.reading() as connection:
            number = await self._lists.pool_id(connection, pool)
            query = query if number is None else query.where(_MINE.pool_id == number)
            query = query if plan is None else query.where(_MINE.plan == plan)
            query = query if start is None else query.where(_MINE.end >= start, _MINE.start >= start - LONGEST_RANGE)
            query = query if end is None else query.where(_MINE.start < end)
            query = query if sight is None else query.where(pools.c.namespace.in_(sorted(sight)))
            rows = (await connection.execute(query.order_by(_MINE.start.desc(), _MINE.id).limit(MOST + 1))).all()
        return Comments(comments=[_comment(row) for row in rows[:MOST]], complete=len(rows) <= MOST)

    async def comment(self, comment_id: str, caller: Caller) -> Comment:
        async with self._database.reading() as connection:
            row = (await connection.execute(_joined().where(_MINE.id == comment_id))).one_or_none()
        found = None if row is None else _comment(row)
        if found is None or not caller.sees(found.pool):
            raise NotFound("comment", comment_id)
        return found

    async def add(self, comment: Comment, span: tuple[datetime, datetime] | None, caller: Caller) -> Comment:
        """Store a comment on the range `span`, or on its plan if `span` is None. Raises NotFound for an unknown pool or
        plan, Conflict.
        """

        async def work(connection: AsyncConnection) -> Comment:
            number = (await pool_row(connection, PoolKey.parse(comment.pool))).id
            start, end = span or await _moment(connection, number, comment.plan or "")
            made = replace(comment, start=start, end=end)
            await _admit(connection, number, comment.author)
            row = {name: getattr(made, name) for name in ("id", "author", "text", "start", "end", "plan", "created_at")}
            await connection.execute(insert(comments).values(pool_id=number, **row))
            entry = replace(caller.draft(AuditAction.COMMENT_ADDED, made.pool), after=_about(made), plan=made.plan)
            await audit_log.append(connection, [entry], made.created_at)
            return made

        return await self._database.writing(work)

    async def delete(self, comment: Comment, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            gone = delete(comments).where(_MINE.id == comment.id).returning(_MINE.id)
            if (await connection.execute(gone)).one_or_none() is None:
                raise NotFound("comment", comment.id)
            entry = replace(caller.draft(AuditAction.COMMENT_DELETED, comment.pool), before=_about(comment), plan=comment.plan)
            await audit_log.append(connection, [entry], now)

        await self._database.writing(work)


def _joined() -> Any:
    return select(comments, pools.c.namespace, pools.c.name).select_from(comments.join(pools, pools.c.id == _MINE.pool_id))


async def _moment(connection: AsyncConnection, pool: int, plan: str) -> tuple[datetime, datetime]:
    """Return a range that begins and ends at the time at which the plan was made. Raises NotFound, also for a plan of
    another pool.
    """
    row = (await connection.execute(select(plans.c.created_at).where(plans.c.id == plan, plans.c.pool_id == pool))).one_or_none()
    if row is None:
        raise NotFound("plan", plan)
    return row.created_at, row.created_at


async def _admit(connection: AsyncConnection, pool: int, author: str) -> None:
    """Raises Conflict if the author already has the maximum number of comments on the pool."""
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
    own = select(func.count()).where(_MINE.pool_id == pool, _MINE.author == author)
    if (await connection.execute(own)).scalar_one() >= MOST_OWN:
        raise Conflict("too-many-comments", f"{author} has {MOST_OWN} comments on this pool; delete some that are not needed")


def _comment(row: Any) -> Comment:
    return Comment(
        id=row.id,
        pool=f"{row.namespace}/{row.name}",
        author=row.author,
        text=row.text,
        start=row.start,
        end=row.end,
        plan=row.plan,
        created_at=row.created_at,
    )


def _about(comment: Comment) -> dict[str, Any]:
    """Return the fields of a comment that its audit entries record."""
    told = {"comment": comment.id, "author": comment.author, "text": comment.text}
    return told | {"from": comment.start.isoformat(), "to": comment.end.isoformat()}
