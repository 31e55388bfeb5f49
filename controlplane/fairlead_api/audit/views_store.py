"""Stores saved views of the audit log in the database. Every write appends its audit entry in the same transaction."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.audit.views import FIELDS, MOST_OWN, MOST_SHARED, admitted, seen, visible
from fairlead_api.infra import audit_log
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.records import read
from fairlead_client.resources.audit import AuditAction, AuditView

views = tables.audit_views

_COUNTING = 0x6176_7700
"""Advisory lock (the letters `avw`) for counting and writing saved views, so that simultaneous requests cannot exceed a
limit.
"""


class PostgresAuditViews:
    """The database's saved views. Methods raise NotFound for a view that the caller does not see."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def views(self, caller: Caller) -> list[AuditView]:
        """Return the views that the caller sees, by name."""
        async with self._database.reading() as connection:
            return seen(await _near(connection, caller.identity.subject), caller)

    async def view(self, view_id: str, caller: Caller) -> AuditView:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(views).where(views.c.id == view_id))).one_or_none()
        found = None if row is None else read(AuditView, row)
        if found is None or not visible(found, caller):
            raise NotFound("saved view", view_id)
        return found

    async def add(self, view: AuditView, caller: Caller, now: datetime) -> AuditView:
        """Stores a view. Raises Conflict."""

        async def work(connection: AsyncConnection) -> AuditView:
            await _admit(connection, view)
            await connection.execute(insert(views).values(asdict(view)))
            entry = replace(caller.draft(AuditAction.AUDIT_VIEW_SAVED, view.id), after=_about(view))
            await audit_log.append(connection, [entry], now)
            return view

        return await self._database.writing(work)

    async def change(self, before: AuditView, after: AuditView, caller: Caller, now: datetime) -> AuditView:
        """Renames or shares a view. Raises Conflict."""

        async def work(connection: AsyncConnection) -> AuditView:
            await _admit(connection, after)
            new = update(views).where(views.c.id == before.id).values(name=after.name, shared=after.shared).returning(views.c.id)
            if (await connection.execute(new)).one_or_none() is None:
                raise NotFound("saved view", before.id)
            entry = caller.draft(AuditAction.AUDIT_VIEW_CHANGED, before.id)
            await audit_log.append(connection, [replace(entry, before=_about(before), after=_about(after))], now)
            return after

        return await self._database.writing(work)

    async def delete(self, view: AuditView, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(delete(views).where(views.c.id == view.id).returning(views.c.id))).one_or_none()
            if row is None:
                raise NotFound("saved view", view.id)
            entry = replace(caller.draft(AuditAction.AUDIT_VIEW_DELETED, view.id), before=_about(view))
            await audit_log.append(connection, [entry], now)

        await self._database.writing(work)


async def _near(connection: AsyncConnection, owner: str) -> list[AuditView]:
    """Return a person's own views, and all shared views."""
    query = select(views).where(or_(views.c.owner == owner, views.c.shared)).limit(MOST_OWN + MOST_SHARED)
    return [read(AuditView, row) for row in await connection.execute(query)]


async def _admit(connection: AsyncConnection, view: AuditView) -> None:
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
    admitted(view, [one for one in await _near(connection, view.owner) if one.id != view.id])


def _about(view: AuditView) -> dict[str, Any]:
    """Return the fields of a saved view that its audit entries record."""
    kept = {name: getattr(view, name) for name in ("name", "owner", "shared", *FIELDS)}
    return {name: value for name, value in kept.items() if value is not None}
