"""Daily partitions of tables: made ahead of time, made on demand for late rows, dropped by retention. Days are UTC."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.database import Database
from fairlead_api.tables import PARTITIONED

_NAME = re.compile(rf"^({'|'.join(PARTITIONED)})_(\d{{4}})(\d{{2}})(\d{{2}})$")
_PARTITIONS = text("SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST(:table AS regclass)")


def partition_name(table: str, day: date) -> str:
    """Return the name of the table's partition for a day: `decisions`, 2026-11-21 → `decisions_20261121`."""
    return f"{table}_{day:%Y%m%d}"


def partition_day(name: str) -> tuple[str, date] | None:
    """Return the table and the day in a partition's name; None if the name does not belong to a daily partition."""
    match = _NAME.match(name)
    return (match[1], date(int(match[2]), int(match[3]), int(match[4]))) if match else None


def is_partition(name: str) -> bool:
    """Return whether a table name is the name of one of Fairlead's daily partitions."""
    return _NAME.match(name) is not None


class Partitions:
    """Makes and drops the daily partitions. It remembers which partitions exist, so that most calls of `ensure` need no
    statement.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._known_at = database.switched_at

    async def ensure(self, table: str, days: Iterable[date]) -> None:
        """Create the missing partitions of `days`. Several processes may safely do this at the same time."""
        if self._known_at != self._database.switched_at:  # another server answers, which may lack what was made last
            self._known.clear()
            self._known_at = self._database.switched_at
        absent = [day for day in sorted(set(days)) if partition_name(table, day) not in self._known]
        if not absent:
            return

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:table))"), {"table": f"partitions of {table}"})
            there = {name for (name,) in await connection.execute(_PARTITIONS, {"table": table})}
            for day in absent:
                name, start = partition_name(table, day), datetime.combine(day, time(), UTC)
                if name not in there:
                    # made separately and attached, which blocks no other statement: PARTITION OF waits for the table's
                    # readers, and all others wait behind it
                    await connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
                    bounds = f"FROM ('{start.isoformat()}') TO ('{(start + timedelta(days=1)).isoformat()}')"
                    await connection.execute(text(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES {bounds}"))

        await self._database.writing(work)
        self._known.update(partition_name(table, day) for day in absent)

    async def drop_before(self, table: str, day: date) -> list[str]:
        """Drop the partitions of days before `day`; return their names.

        Gives up soon if a long read of the table, such as a dump, is in progress, because all other users would wait
        behind the drop.
        """

        async def work(connection: AsyncConnection) -> list[str]:
            rows = await connection.execute(_PARTITIONS, {"table": table})
            old = sorted(name for (name,) in rows if (found := partition_day(name)) is not None and found[1] < day)
            await connection.execute(text("SET LOCAL lock_timeout = '200ms'"))
            for name in old:
                await connection.execute(text(f"DROP TABLE {name}"))
            return old

        old = await self._database.writing(work)
        self._known.difference_update(old)
        return old
