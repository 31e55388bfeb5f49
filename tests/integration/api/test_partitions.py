"""Days of a large table come while it is read and written."""

from collections.abc import AsyncIterator
from datetime import date

import psycopg
import pytest

from fairlead_api.store.database import UPKEEP, Database
from fairlead_api.store.partitions import Partitions, partition_name
from fairlead_api.store.pulse import Pulse
from fairlead_api.store.tables import PARTITIONED
from fairlead_testing.running.postgres import plain

DAY = date(2031, 3, 4)
_INDEXED = "SELECT indexdef FROM pg_indexes WHERE tablename = %s"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    found = Database(database_url, UPKEEP, Pulse(database_url, 1.0))
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
