"""Reads run outside transactions; writes and locks run in one."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.database import CONTROL, Database, driver
from fairlead_api.infra.pulse import Pulse
from fairlead_testing.running.postgres import plain

_TAKE = text("SELECT pg_try_advisory_xact_lock(7)")
_WRITE = text("INSERT INTO routers (id, last_seen_at, sent_at, acknowledged, in_flight) VALUES ('half-way', now(), now(), '{}', '[]')")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    found = Database(CONTROL, Pulse(database_url, 100.0))
    yield found
    await found.close()


async def status(connection: AsyncConnection) -> TransactionStatus:
    return (await driver(connection)).info.transaction_status


async def test_a_read_asks_the_server_for_its_statements_and_for_no_transaction(database: Database) -> None:
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
        assert await status(connection) == TransactionStatus.IDLE
    async with database.holding() as connection:
        await connection.execute(text("SELECT 1"))
        assert await status(connection) == TransactionStatus.INTRANS
    async with database.reading() as connection:  # the same connection: nothing of the former use is left
        await connection.execute(text("SELECT 1"))
        assert await status(connection) == TransactionStatus.IDLE


async def test_a_lock_that_is_held_is_held_until_the_end_and_a_reads_is_not(database: Database) -> None:
    async with database.reading() as first, database.reading() as second:
        assert (await first.execute(_TAKE)).scalar_one()
        assert (await second.execute(_TAKE)).scalar_one()
    async with database.holding() as first, database.holding() as second:
        assert (await first.execute(_TAKE)).scalar_one()
        assert not (await second.execute(_TAKE)).scalar_one()
    async with database.holding() as third:
        assert (await third.execute(_TAKE)).scalar_one()


async def test_a_view_that_is_held_is_of_one_moment_and_a_reads_is_of_each_statements(database: Database) -> None:
    count = text("SELECT count(*) FROM routers")
    async with database.holding() as held, database.reading() as read:
        await held.execution_options(isolation_level="REPEATABLE READ")
        for connection in (held, read):
            assert (await connection.execute(count)).scalar_one() == 0
        await database.writing(lambda connection: connection.execute(_WRITE))
        assert (await held.execute(count)).scalar_one() == 0
        assert (await read.execute(count)).scalar_one() == 1


async def test_work_that_fails_half_way_or_is_cancelled_has_written_nothing(database: Database) -> None:
    written, may_end = asyncio.Event(), asyncio.Event()

    async def failing(connection: AsyncConnection) -> None:
        await connection.execute(_WRITE)
        raise KeyError("the second half")

    async def slow(connection: AsyncConnection) -> None:
        await connection.execute(_WRITE)
        written.set()
        await may_end.wait()

    with pytest.raises(KeyError):
        await database.writing(failing)
    cancelled = asyncio.create_task(database.writing(slow))
    await written.wait()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM routers"))).scalar_one() == 0


async def test_a_connection_that_postgres_closed_a_moment_ago_costs_no_caller_an_error(database: Database, database_url: str) -> None:
    pid = text("SELECT pg_backend_pid()")
    for _ in range(3):
        async with database.reading() as connection:
            closed = (await connection.execute(pid)).scalar_one()
        close(database_url, closed)
        async with database.reading() as connection:
            assert (await connection.execute(pid)).scalar_one() != closed


def close(database_url: str, pid: int) -> None:
    """Let Postgres close a connection, and return once it is closed."""
    with psycopg.connect(plain(database_url), autocommit=True) as administrator:
        administrator.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
