"""The audit log as the public API lists it."""

from typing import Any

from sqlalchemy import Boolean, ColumnElement, func, literal_column, select

from fairlead_api.audit.kinds import in_sight, kind_of
from fairlead_api.audit.tables import BY_THE_SYSTEM
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.filters import AuditFilter
from fairlead_api.infra.lists import between, narrowed
from fairlead_api.infra.paging import Test, page
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.tables import audit_log as log
from fairlead_client.resources.audit import AuditEntry, AuditKind
from fairlead_client.resources.pages import Page

_BY_THE_SYSTEM = literal_column(f"({BY_THE_SYSTEM})", Boolean)


class PostgresAuditLog:
    """Implements `audit.routes.AuditReader`."""

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
        if wanted.pool is not None:
            beginnings.append(_of_pool(wanted.pool))
        query, also = narrowed(between(select(log), log.c.at, wanted.start, wanted.end), exact)
        if wanted.kind is AuditKind.HUMAN:
            query = query.where(~_BY_THE_SYSTEM)
        elif wanted.kind is AuditKind.SYSTEM:
            also = [*also, lambda _: _BY_THE_SYSTEM]
        if span.sight is not None:
            also = [*also, _within(span.sight)]
        async with self._database.reading() as connection:
            also = [*also, *beginnings]
            return await page(
                connection, query, (log.c.at, log.c.id), _entry, also=also, cursor=span.cursor, limit=span.limit, reverse=span.reverse
            )

    async def entry(self, entry_id: int, sight: Sight) -> AuditEntry:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(log).where(log.c.id == entry_id))).one_or_none() if entry_id < 2**63 else None
        if row is None or not in_sight(row.object, sight):
            raise NotFound("audit entry", str(entry_id))
        return _entry(row)


def _begins(name: str, beginning: str) -> Test:
    return lambda columns: columns[name].startswith(beginning, autoescape=True)


def _of_pool(pool: str) -> Test:
    return lambda columns: (columns.object == pool) | columns.object.startswith(f"{pool}/", autoescape=True)


def _within(sight: frozenset[str]) -> Test:
    return lambda columns: columns.object.contains("/") & func.split_part(columns.object, "/", 1).in_(sorted(sight))


def _entry(row: Any) -> AuditEntry:
    return read(AuditEntry, row, kind=kind_of(row.role, row.action, row.source))
