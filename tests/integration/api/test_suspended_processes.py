"""A process is suspended in a transaction, or while it holds a job's lock.

Its connection stays open and its kernel still answers, so only Postgres can release its locks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.copying import end_suspended_copies
from fairlead_api.infra.database import CONTROL, UPKEEP, Database, driver
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.infra.partitions import Partitions
from fairlead_api.infra.pulse import Pulse
from fairlead_api.upkeep import store as keeping
from fairlead_api.upkeep.store import PostgresUpkeep
from fairlead_testing.running.api import CHAT, ApiInstance, a_state, an_instance
from fairlead_testing.waiting import PATIENCE_SECONDS

IDLE_SECONDS = 2.0


@asynccontextmanager
async def database(url: str, idle_seconds: float = IDLE_SECONDS) -> AsyncIterator[Database]:
    """Yield the database as another process uses it, but with connections that Postgres ends sooner."""
    found = Database(replace(UPKEEP, idle_seconds=idle_seconds), Pulse(url, 100.0))
    try:
        yield found
    finally:
        await found.close()


def job() -> tuple[Callable[[], Awaitable[None]], asyncio.Event, asyncio.Event]:
    """Return work and two events: the work sets the first when it begins and ends when the second is set."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may_end.wait()

    return work, begun, may_end


async def until_run(upkeep: PostgresUpkeep) -> None:
    """Wait until the job's lock could be taken."""

    async def nothing() -> None: ...

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await upkeep.alone("rollups", nothing):
            await asyncio.sleep(0.05)


async def test_a_process_suspended_in_a_transaction_does_not_hold_its_locks_against_the_others(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    locked, wakes = asyncio.Event(), asyncio.Event()

    async def suspended(connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT * FROM pools FOR UPDATE"))
        locked.set()
        await wakes.wait()
        await connection.execute(text("UPDATE pools SET changed_by = 'the one that slept'"))

    async with database(database_url) as other:
        sleeping = asyncio.create_task(other.writing(suspended))
        await asyncio.wait_for(locked.wait(), PATIENCE_SECONDS)
        seen = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
        assert [instance.id for instance in seen.instances] == ["a", "b"]
        wakes.set()
        with pytest.raises(StoreUnavailable):
            await sleeping
        assert await other.writing(lambda connection: connection.execute(text("SELECT 1"))), "it goes on with another connection"


async def test_a_process_suspended_within_a_copy_does_not_hold_its_locks_either(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    locked, wakes = asyncio.Event(), asyncio.Event()

    async def suspended(connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT * FROM pools FOR UPDATE"))
        async with (await driver(connection)).cursor() as cursor, cursor.copy("COPY routers (id) FROM STDIN") as rows:
            await rows.write(b"the-one-that-slept\n")
            locked.set()
            await wakes.wait()

    async with database(database_url) as other, database(database_url, PATIENCE_SECONDS) as third:
        sleeping = asyncio.create_task(other.writing(suspended))
        await asyncio.wait_for(locked.wait(), PATIENCE_SECONDS)
        assert await end_suspended_copies(third, PATIENCE_SECONDS) == 0, "it may just be slow"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await end_suspended_copies(third, 3 * IDLE_SECONDS):
                await asyncio.sleep(0.05)
        seen = await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
        assert [instance.id for instance in seen.instances] == ["a", "b"]
        wakes.set()
        with pytest.raises(StoreUnavailable):
            await sleeping


async def test_every_transaction_of_the_api_is_bounded_so(database_url: str) -> None:
    control = Database(CONTROL, Pulse(database_url, 1.0))
    async with control.reading() as connection:
        shown = (await connection.execute(text("SHOW idle_in_transaction_session_timeout"))).scalar_one()
    await control.close()
    assert shown == "10s"


async def test_a_job_of_a_suspended_process_is_done_by_another_and_the_sleeper_stops_its_own(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TELL_SECONDS", 3 * IDLE_SECONDS)  # it tells nothing for as long as it sleeps
    async with database(database_url) as first, database(database_url) as second:
        work, begun, _ = job()
        sleeper = PostgresUpkeep(first, first, Partitions(first))
        sleeping = asyncio.create_task(sleeper.alone("rollups", work))
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        await until_run(PostgresUpkeep(second, second, Partitions(second)))
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(sleeping, PATIENCE_SECONDS)


async def test_a_long_job_tells_postgres_again_and_again_that_it_lives_and_keeps_its_lock(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TELL_SECONDS", 0.05)
    holder = text("SELECT a.state_change FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted")
    async with database(database_url, PATIENCE_SECONDS) as first, database(database_url, PATIENCE_SECONDS) as second:
        work, begun, may_end = job()
        working = asyncio.create_task(PostgresUpkeep(first, first, Partitions(first)).alone("rollups", work))
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        heard: set[object] = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(heard) < 4:
                async with second.reading() as connection:
                    heard |= set((await connection.execute(holder)).scalars())
        assert not await PostgresUpkeep(second, second, Partitions(second)).alone("rollups", job()[0]), "the lock is held"
        may_end.set()
        assert await working
        await until_run(PostgresUpkeep(second, second, Partitions(second)))
