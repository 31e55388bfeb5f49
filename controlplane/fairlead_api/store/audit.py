"""The audit log in Postgres: appending inside the transaction of the deed, reading, verifying."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.services.audit_chain import AuditDraft, Link, chain, first_broken, genesis
from fairlead_api.store import tables
from fairlead_api.store.database import Database
from fairlead_client.resources import AuditVerification

_LOCK = 0x6175_6469
"""Advisory lock (the letters `audi`) under which entries get their place in the chain. Taken last in a transaction, so it cannot deadlock."""

_CHUNK = 2000


async def append(connection: AsyncConnection, drafts: Sequence[AuditDraft], now: datetime) -> None:
    """Adds entries; they exist exactly if the transaction commits. Call it as the last step of a transaction."""
    if not drafts:
        return
    log = tables.audit_log
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    last = (await connection.execute(select(log.c.id, log.c.chain).order_by(log.c.id.desc()).limit(1))).one_or_none()
    at = now.astimezone(UTC)
    number, previous = (last.id, last.chain) if last else (0, genesis(at.date()))
    rows: list[dict[str, Any]] = []
    for draft in drafts:
        number += 1
        previous = chain(previous, number, at, draft)
        rows.append({"id": number, "at": at, "day": at.date(), "chain": previous, **msgspec.to_builtins(draft)})
    await connection.execute(insert(log), rows)


class PostgresAudit:
    """Writes entries that belong to no other change (denials, logins that failed) and verifies the chain."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await append(connection, [draft], now)

        await self._database.writing(work)

    async def verify(self) -> AuditVerification:
        """Walks the whole log in chunks."""
        log = tables.audit_log
        previous: str | None = None
        expected = 1
        async with self._database.reading() as connection:
            while True:
                query = select(log).where(log.c.id >= expected).order_by(log.c.id).limit(_CHUNK)
                rows = (await connection.execute(query)).all()
                broken, previous, expected = first_broken((_link(row) for row in rows), previous, expected)
                if broken is not None or len(rows) < _CHUNK:
                    count = (await connection.execute(select(func.count()).select_from(log))).scalar_one()
                    return AuditVerification(intact=broken is None, entries=count, first_broken=broken)


def _link(row: Any) -> Link:
    return Link(id=row.id, at=row.at, chain=row.chain, draft=AuditDraft(**{name: getattr(row, name) for name in AuditDraft.__slots__}))
