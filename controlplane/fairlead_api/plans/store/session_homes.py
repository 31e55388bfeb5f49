"""The instances to which sessions are bound, as plans change them: reads a session's instance, moves the session for a
person, and releases it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.binding_races import Held
from fairlead.errors import InvalidInput
from fairlead.instance_marks import POOL_LABEL
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead_api import tables
from fairlead_api.infra import notifying
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.notices import BindingsChanged
from fairlead_api.infra.object_marks import PLAN
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.moves.store import save_migrations
from fairlead_api.plans.objects import ClusterObject, Target
from fairlead_api.sessions.store.rows import SessionRow, bind, lock_sessions, save_sessions

WRITER = "control-api"
"""The writer that is recorded for a person's change of a binding, in place of a router's name."""


class PostgresSessionHomes:
    """Implements `plans.objects.SessionHomes`."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    async def read(self, target: Target) -> ClusterObject:
        async with self._database.reading() as connection:
            pool, session = target.pool_and_session
            row = await pool_row(connection, pool)
            found = tables.sessions
            query = select(found).where(found.c.pool_id == row.id, found.c.session == session, found.c.version > 0)
            stored = (await connection.execute(query)).one_or_none()
            if stored is None:
                raise NotFound("session", session)
            return _object(row.uid, SessionRow.stored(stored, pool))

    async def patch(
        self, target: Target, change: Mapping[str, Any], resource_version: str, marks: Mapping[str, str | None], *, dry_run: bool
    ) -> ClusterObject:
        now = self._clock()

        async def work(connection: AsyncConnection) -> ClusterObject:
            pool, session = target.pool_and_session
            pool_of = await pool_row(connection, pool)
            rows = await lock_sessions(connection, [(pool_of.id, session)], {pool_of.id: pool})
            if not rows:
                raise NotFound("session", session)
            [row] = rows
            if _version(row) != resource_version:
                raise Conflict("object-changed", f"{target} was moved or released meanwhile; make a new plan")
            instance = change["instance"]
            if instance is not None:
                await _check(connection, pool_of.id, instance)
            plan = marks.get(PLAN) or ""
            if dry_run:
                return _object(pool_of.uid, row, {} if instance is None else {"instance": instance})
            if instance is None:
                _release(row, plan, now)
            else:
                _move(row, instance, plan, now)
            await save_sessions(connection, [row])
            await save_migrations(connection, row.moves, WRITER, {pool: pool_of.id})
            await notifying.send(connection, [BindingsChanged((row.binding(),))])
            return _object(pool_of.uid, row)

        return await self._database.writing(work)


def _move(row: SessionRow, instance: str, plan: str, now: datetime) -> None:
    """Bind the session to `instance` from now on. The migration is complete when a request of the session was sent to
    that instance.
    """
    source, rank = row.held.instance, row.held.rank
    change = BindingChange(
        id=plan,
        pool=row.pool,
        session=row.session,
        instance=instance,
        previous=source,
        previous_rank=rank,
        reason=BindingReason.OPERATOR,
        at=now.timestamp(),
        based_on=row.held.version,
        context_tokens=row.context_tokens,
    )
    if source is None:
        return bind(row, change, WRITER, None)
    record = MigrationRecord(
        id=plan,
        pool=row.pool,
        session=row.session,
        request="",
        source=source,
        source_rank=rank,
        target=instance,
        trigger=BindingReason.OPERATOR,
        at=change.at,
        predicted_source_ttft_seconds=None,
        predicted_target_ttft_seconds=None,
        benefit_seconds=None,
        tokens_recomputed=row.context_tokens,
        outcome=MoveOutcome.UNDERWAY,
    )
    return bind(row, change, WRITER, record)


def _release(row: SessionRow, plan: str, now: datetime) -> None:
    """Release the session from its instance. The session keeps its version, and routers receive the change."""
    row.released[row.held.version] = max(now, row.bound_at)
    row.held = Held(instance=None, version=row.held.version, router=row.held.router, change=plan)
    row.changed = True


async def _check(connection: AsyncConnection, pool_id: int, instance: str) -> None:
    """Raises InvalidInput unless new requests may be placed on the instance."""
    one = tables.instances
    query = select(one.c.id, one.c.state, one.c.role).where(one.c.pool_id == pool_id, one.c.state != InstanceState.GONE.value)
    present = {row.id: row for row in await connection.execute(query)}
    able = sorted(row.id for row in present.values() if row.state in ACCEPTING and row.role != Role.DECODE)
    if instance not in able:
        known = present.get(instance)
        why = f"it is {known.state}, role {known.role}" if known is not None else "the pool has no such instance"
        shown = ", ".join(able[:8]) + (", …" if len(able) > 8 else "")
        raise InvalidInput("instance", instance, f"{why}; write one of {shown or 'none: no instance takes requests'}")


def _object(uid: str, row: SessionRow, spec: Mapping[str, Any] | None = None) -> ClusterObject:
    held = row.held
    return ClusterObject(
        uid=f"{uid}/{row.session}",
        resource_version=_version(row),
        generation=held.version,
        spec=({} if held.instance is None else {"instance": held.instance}) if spec is None else spec,
        labels={POOL_LABEL: row.pool.name},
        annotations={} if held.change is None else {PLAN: held.change},
        managers=(),
        status={"contextTokens": row.context_tokens},
    )


def _version(row: SessionRow) -> str:
    return f"{row.held.version}/{row.held.instance or ''}"
