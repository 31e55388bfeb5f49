"""Ends transactions of processes that stand still within a COPY.

Postgres ends a transaction whose client is silent between two statements, and a statement that takes too long. While
it waits for the rows of a COPY it does neither: a suspended process would hold its locks against all others for as
long as it sleeps. Only another connection can end it.
"""

import asyncio
import logging
from contextlib import suppress

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import StoreUnavailable

_log = logging.getLogger(__name__)
_END = text(
    "WITH suspended AS MATERIALIZED ("
    "  SELECT pid, application_name FROM pg_stat_activity"
    "  WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'fairlead-api %'"
    "  AND state = 'active' AND wait_event = 'ClientRead' AND query_start < clock_timestamp() - make_interval(secs => :seconds)"
    ") SELECT application_name, pg_terminate_backend(pid) FROM suspended"
)


async def end_suspended_copies(database: Database, seconds: float) -> int:
    """Ends those that began more than `seconds` ago and wait for rows; returns how many.

    Raises StoreUnavailable when Postgres is away.
    """

    async def work(connection: AsyncConnection) -> int:
        ended = (await connection.execute(_END, {"seconds": seconds})).scalars().all()
        for name in ended:
            _log.warning("ended the transaction of a process that stands still", extra={"connection": name, "seconds": seconds})
        return len(ended)

    return await database.writing(work)


async def keep_ending_suspended_copies(database: Database, seconds: float) -> None:
    """Does so for ever, in every API process: the one that stands still may be the one that does background work."""
    while True:
        await asyncio.sleep(seconds / 2)
        with suppress(StoreUnavailable):
            await end_suspended_copies(database, seconds)
