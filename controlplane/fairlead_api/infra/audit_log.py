"""The audit log in Postgres: appends entries inside the transaction of the audited change, and reads and verifies
entries.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.infra.audit_chain import AuditDraft, Link, chain, first_broken, genesis, hashed
from fairlead_api.infra.database import Database
from fairlead_api.infra.records import read
from fairlead_client.resources.audit import AuditHead, AuditVerification

_LOCK = 0x6175_6469
"""Advisory lock (the letters `audi`) that is held while entries get their position in the chain. A transaction takes it
as its last lock, so it cannot cause a deadlock.
"""

_CHUNK = 2000
_ASTRAY = text("""
SELECT min(id) FROM (
  SELECT id FROM audit_log WHERE day <> CAST(at AT TIME ZONE 'UTC' AS date)
  UNION ALL SELECT h.last_id FROM audit_heads h LEFT JOIN audit_log l
    ON l.id = h.last_id AND (l.chain, l.at, l.day) = (h.chain, h.at, h.day) WHERE l.id IS NULL
  UNION ALL SELECT max(id) FROM audit_log GROUP BY day HAVING max(id) <> ALL (SELECT last_id FROM audit_heads)
) AS wrong
""")
"""SQL for the id of the first faulty entry; null if there is none. An entry is faulty if its stored day is not the day
of its time, or if it is the last entry of a day and that day's head does not name it.
"""


async def append(connection: AsyncConnection, drafts: Sequence[AuditDraft], now: datetime) -> None:
    """Append audit entries, which are stored only if the transaction commits. Must be the last step of a transaction.

    Entries are dated `now`, but never before the last entry and never after Postgres's own time. The second limit is
    needed because of the first: a process with a fast clock would otherwise date an entry in the future, and all later
    entries, of all processes, would get at least that date.
    """
    if not drafts:
        return
    locked = text("SELECT clock_timestamp() FROM pg_advisory_xact_lock(:key)")
    at = min(now, (await connection.execute(locked, {"key": _LOCK})).scalar_one()).astimezone(UTC)
    last = await newest_head(connection)  # not the log's last row: if that was cut off, the gap must stay
    at = max(at, last.at) if last else at
    number, previous = (last.id, last.chain) if last else (0, genesis(at.date()))
    rows: list[dict[str, Any]] = []
    for draft in drafts:
        number += 1
        previous = chain(previous, number, at, draft)
        rows.append({"id": number, "at": at, "day": at.date(), "chain": previous, **msgspec.to_builtins(draft)})
    await connection.execute(insert(tables.audit_log), rows)
    head = upsert(tables.audit_heads).values(day=at.date(), last_id=number, chain=previous, at=at)
    newer = {name: head.excluded[name] for name in ("last_id", "chain", "at")}
    await connection.execute(head.on_conflict_do_update(index_elements=["day"], set_=newer))


async def newest_head(connection: AsyncConnection) -> AuditHead | None:
    """Return the audit log's head: the position of the newest entry in the chain, and its hash. None while the log is
    empty.
    """
    heads = tables.audit_heads
    row = (await connection.execute(select(heads).order_by(heads.c.last_id.desc()).limit(1))).one_or_none()
    return None if row is None else read(AuditHead, row, id=row.last_id)


class PostgresAudit:
    """Writes audit entries that are not part of another change (denials, failed logins) and verifies the chain."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, draft: AuditDraft, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            await append(connection, [draft], now)

        await self._database.writing(work)

    async def head(self) -> AuditHead | None:
        """Return the audit log's head: the position of the newest entry in the chain, and its hash. None while the log
        is empty.
        """
        async with self._database.reading() as connection:
            return await newest_head(connection)

    async def verify(self, kept: AuditHead | None = None) -> AuditVerification:
        """Verify the whole audit log in chunks: its hashes, that it ends at the newest head, that each day's head names
        the day's last entry, and that the log contains the head `kept`, which a caller stored earlier.
        """
        log = tables.audit_log
        previous: str | None = None
        expected = 1
        async with self._database.holding() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")  # entries go on being written meanwhile
            head = await newest_head(connection)
            while True:
                query = select(log).where(log.c.id >= expected).order_by(log.c.id).limit(_CHUNK)
                rows = (await connection.execute(query)).all()
                broken, previous, expected = first_broken((_link(row) for row in rows), previous, expected)
                if broken is not None or len(rows) < _CHUNK:
                    break
            count = (await connection.execute(select(func.count()).select_from(log))).scalar_one()
            astray = (await connection.execute(_ASTRAY)).scalar_one()
            found = None
            if kept is not None:
                found = (await connection.execute(select(log.c.chain).where(log.c.id == kept.id))).scalar_one_or_none()
        if broken is None and head is not None and (head.id, head.chain) != (expected - 1, previous):
            broken = min(expected, head.id)
        broken = astray if broken is None else broken
        return AuditVerification(
            intact=broken is None and (kept is None or found == kept.chain),
            entries=count,
            first_broken=broken,
            missing=max(0, (head.id if head else 0) - count),
            head=head,
            kept_head_holds=None if kept is None else found == kept.chain,
        )

    async def exported(self, start: datetime, end: datetime) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield the audit entries of [start, end) in order and in chunks, each entry in the form from which its hash is
        computed.

        Before the entries, a first chunk holds only `{"previous": …}`: the hash of the entry before the first exported
        one, or None if the export begins with the log's first entry.
        """
        log = tables.audit_log
        async with self._database.holding() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            first = select(log.c.id).where(log.c.at >= start).order_by(log.c.at, log.c.id).limit(1)
            number = (await connection.execute(first)).scalar_one_or_none() or 1
            before = select(log.c.chain).where(log.c.id == number - 1)
            yield [{"previous": (await connection.execute(before)).scalar_one_or_none()}]
            while True:
                query = select(log).where(log.c.id >= number, log.c.at >= start, log.c.at < end).order_by(log.c.id).limit(_CHUNK)
                rows = (await connection.execute(query)).all()
                if rows:
                    yield [hashed(_link(row)) for row in rows]
                if len(rows) < _CHUNK:
                    return
                number = rows[-1].id + 1


def _link(row: Any) -> Link:
    """Return an entry exactly as stored. Its hash covers all its values, including values that only a newer version
    knows.
    """
    return read(Link, row, draft=AuditDraft(**{one.name: getattr(row, one.name) for one in fields(AuditDraft)}))
