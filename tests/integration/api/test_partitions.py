"""Partitions of days are added to a large table while it is read and written."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date

import psycopg
import pytest

from fairlead_api.infra.database import UPKEEP, Database
from fairlead_api.infra.errors import StoreBusy
from fairlead_api.infra.partitions import Partitions, partition_name
from fairlead_api.infra.pulse import Pulse
from fairlead_api.tables import PARTITIONED
from fairlead_testing.running.postgres import plain
from fairlead_testing.waiting import PATIENCE_SECONDS

DAY = date(2031, 3, 4)
_INDEXED = "SELECT indexdef FROM pg_indexes WHERE tablename = %s"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    found = Database(UPKEEP, Pulse(database_url, 1.0))
    yield found
    await found.close()


@pytest.mark.parametrize("table", PARTITIONED)
async def test_a_day_is_made_while_others_are_at_the_table_and_is_as_postgres_makes_one(
    database: Database, database_url: str, table: str
) -> None:
    made = partition_name(table, DAY)
    with psycopg.connect(plain(database_url)) as connection:
        connection.execute(f"CREATE TABLE other PARTITION OF {table} FOR VALUES FROM ('2031-03-03') TO ('2031-03-04')".encode())
    with psycopg.connect(plain(database_url)) as reading, psycopg.connect(plain(database_url)) as writing:
        reading.execute(f"SELECT count(*) FROM {table}".encode())
        writing.execute(f"DELETE FROM {table}".encode())  # both hold their locks until they end
        await Partitions(database).ensure(table, [DAY])
    await Partitions(database).ensure(table, [DAY])  # as a process that does not know it
    with psycopg.connect(plain(database_url)) as connection:
        listed = connection.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = CAST(%s AS regclass)", [table])
        names = {name for (name,) in listed}
        indexed = [
            sorted(definition.replace(name, "") for (definition,) in connection.execute(_INDEXED, [name])) for name in ("other", made)
        ]
    assert names >= {"other", made}
    assert indexed[0] == indexed[1] != []


async def test_who_drops_a_day_gives_up_soon_where_somebody_reads_for_long(database_url: str) -> None:
    """Statements behind it wait as long. Its session's own limits would let it wait longer than the test runs."""
    database = Database(
        replace(UPKEEP, lock_seconds=9 * PATIENCE_SECONDS, statement_seconds=9 * PATIENCE_SECONDS), Pulse(database_url, 1.0)
    )
    partitions = Partitions(database)
    await partitions.ensure("decisions", [DAY])
    with psycopg.connect(plain(database_url)) as dump:
        dump.execute("SELECT count(*) FROM decisions")
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(StoreBusy):
                await partitions.drop_before("decisions", date(2031, 3, 5))
        dump.execute("SELECT count(*) FROM decisions")
    assert partition_name("decisions", DAY) in await partitions.drop_before("decisions", date(2031, 3, 5))
    await database.close()


async def test_a_day_that_a_promoted_standby_lacks_is_made_again(database_url: str) -> None:
    pulse = Pulse(database_url, 1.0)
    database = Database(UPKEEP, pulse)
    partitions = Partitions(database)
    await partitions.ensure("decisions", [DAY])
    made = partition_name("decisions", DAY)
    with psycopg.connect(plain(database_url)) as lost:
        lost.execute(f"DROP TABLE {made}".encode())
    pulse.switched_at = time.monotonic()
    await partitions.ensure("decisions", [DAY])
    with psycopg.connect(plain(database_url)) as connection:
        assert connection.execute("SELECT to_regclass(%s) IS NOT NULL", [made]).fetchone() == (True,)
    await database.close()
