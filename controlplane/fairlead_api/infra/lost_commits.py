"""Detects that the database lacks data that it had committed: after a restore from a backup, or after a failover to a
server that was behind. Reports the loss in the audit log, a metric and the pools' conditions.

There are two signs: the audit log no longer has an entry that this process read, or a router has acknowledged a routing
table that does not exist in the database. The report matters, because credentials that were revoked after the last
remaining entry are valid again, and nothing else shows that.
"""

import logging
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.infra import audit_log
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction, AuditHead

_log = logging.getLogger(__name__)

ONCE_IN = timedelta(minutes=10)
"""Minimum time between two audit entries about a loss of data. It prevents a second entry about the same loss, which
several processes and pools notice.
"""
SHOWN_FOR = timedelta(days=1)

_ENTRIES = tables.audit_log.c


async def loss_of(connection: AsyncConnection, sign: str, since: datetime, now: datetime) -> list[AuditDraft]:
    """Return a list with the audit entry about a loss of committed data; an empty list if a recent entry already
    records the loss. `sign` describes how the loss was noticed. `since` is the time up to which the database still has
    all data.
    """
    lately = select(_ENTRIES.id).where(_ENTRIES.action == AuditAction.DATABASE_WENT_BACK, _ENTRIES.at > now - ONCE_IN).limit(1)
    if (await connection.execute(lately)).scalar_one_or_none() is not None:
        return []
    moment = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    words = f"{sign}: it was restored, or lost its last commits; check what was revoked since {moment}: tokens, gateway keys, login links, logins"
    _log.error("the database lost committed data", extra={"sign": sign, "since": moment})
    return [
        AuditDraft(
            actor="control-api",
            role=AccessRole.SYSTEM_OPERATOR,
            source="database",
            action=AuditAction.DATABASE_WENT_BACK,
            object="database",
            reason=f"The database lost committed data ({words})",
            after={"since": moment},
        )
    ]


class LostCommits:
    """The knowledge of this process about losses of committed data. `look` must be called every few seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: AuditHead | None = None
        self.noticed_at = 0.0
        """Time at which any process last detected a loss of committed data (Unix seconds); 0 if there was none within
        the last day.
        """
        self.words = ""
        """The description, for people, of the loss that was noticed at `noticed_at`; empty without a loss."""

    async def look(self, now: datetime) -> float:
        """Compare the audit log with the newest entry that this process read before, and read the newest entry about a
        loss. Returns `noticed_at`.
        """
        async with self._database.reading() as connection:
            head = await audit_log.newest_head(connection)
            seen = self._seen
            lacks = seen is not None and seen != head and await _chain_at(connection, seen.id) != seen.chain
        if lacks and seen is not None:
            await self._tell(seen, head, now)
        async with self._database.reading() as connection:
            self._seen = await audit_log.newest_head(connection)
            told = select(_ENTRIES.at, _ENTRIES.reason).where(
                _ENTRIES.action == AuditAction.DATABASE_WENT_BACK, _ENTRIES.at > now - SHOWN_FOR
            )
            found = (await connection.execute(told.order_by(_ENTRIES.at.desc()).limit(1))).one_or_none()
        self.noticed_at, self.words = (found.at.timestamp(), str(found.reason)) if found is not None else (0.0, "")
        return self.noticed_at

    async def _tell(self, seen: AuditHead, head: AuditHead | None, now: datetime) -> None:
        left = head.id if head is not None else 0
        sign, since = (
            f"the audit log had {seen.id} entries and has {left}",
            head.at if head is not None else datetime.fromtimestamp(0, now.tzinfo),
        )

        async def work(connection: AsyncConnection) -> None:
            await audit_log.append(connection, await loss_of(connection, sign, since, now), now)

        await self._database.writing(work)


async def _chain_at(connection: AsyncConnection, number: int) -> str | None:
    return (await connection.execute(select(_ENTRIES.chain).where(_ENTRIES.id == number))).scalar_one_or_none()
