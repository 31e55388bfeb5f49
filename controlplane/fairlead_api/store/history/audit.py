"""The audit log as the public API lists it."""

from typing import Any

from sqlalchemy import ColumnElement, select

from fairlead_api.services.errors import NotFound
from fairlead_api.services.history.filters import AuditFilter
from fairlead_api.services.spans import Span
from fairlead_api.store.database import Database
from fairlead_api.store.history.lists import between, narrowed
from fairlead_api.store.paging import Test, page
from fairlead_api.store.records import read
from fairlead_api.store.tables import audit_log as log
from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.pages import Page


class PostgresAuditLog:
    """Implements `routes.audit.AuditReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def entries(self, wanted: AuditFilter, span: Span) -> Page[AuditEntry]:
        exact: list[tuple[ColumnElement[Any], Any]] = []
        beginnings: list[Test] = []
        for name in ("object", "actor", "action"):
            value = getattr(wanted, name)
            if value is not None and value.endswith("*"):
                beginnings.append(_begins(name, value[:-1]))
            else:
                exact.append((log.c[name], value))
        query, also = narrowed(between(select(log), log.c.at, wanted.start, wanted.end), exact)
        async with self._database.reading() as connection:
            also = [*also, *beginnings]
            return await page(connection, query, (log.c.at, log.c.id), _entry, also=also, cursor=span.cursor, limit=span.limit)

    async def entry(self, entry_id: int) -> AuditEntry:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(log).where(log.c.id == entry_id))).one_or_none() if entry_id < 2**63 else None
        if row is None:
            raise NotFound("audit entry", str(entry_id))
        return _entry(row)


def _begins(name: str, beginning: str) -> Test:
    return lambda columns: columns[name].startswith(beginning, autoescape=True)


def _entry(row: Any) -> AuditEntry:
    return read(AuditEntry, row)
