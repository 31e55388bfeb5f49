"""Work that occupies some connections leaves the others free, and no caller waits long for a lock."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import psycopg
import pytest

from fairlead_api.infra.database import JOBS, READS, REPORTS, Bulkhead
from fairlead_client.problems import ApiProblem
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.strict_system_api import NotTaken
from fairlead_testing.waiting import PATIENCE_SECONDS


async def outcome(calling: Awaitable[object]) -> tuple[int, str]:
    try:
        await calling
    except ApiProblem as problem:
        return problem.problem.status, problem.problem.type
    except NotTaken as error:
        return error.status, error.type
    return 200, ""


@asynccontextmanager
async def crowd(call: Callable[[], Awaitable[object]], bulkhead: Bulkhead, database_url: str) -> AsyncIterator[set[tuple[int, str]]]:
    """Let forty callers call repeatedly; yield their outcomes once all connections of the bulkhead wait.

    A further caller would be refused, as most of them are.
    """
    done = asyncio.Event()
    outcomes: set[tuple[int, str]] = set()

    async def call_again_and_again() -> None:
        while not done.is_set():
            outcomes.add(await outcome(call()))

    callers = [asyncio.create_task(call_again_and_again()) for _ in range(40)]
    with psycopg.connect(plain(database_url), autocommit=True) as watcher:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while waiting_for_a_lock(watcher, bulkhead) < bulkhead.connections:
                await asyncio.sleep(0.05)
    yield outcomes
    done.set()
    await asyncio.wait_for(asyncio.gather(*callers), PATIENCE_SECONDS)


def waiting_for_a_lock(watcher: "psycopg.Connection[tuple[object, ...]]", bulkhead: Bulkhead) -> int:
    """Return the number of the bulkhead's connections that wait for a lock now."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND application_name = %s"
    )
    found = watcher.execute(query, (f"fairlead-api {bulkhead.name}",)).fetchone()
    assert found is not None
    return int(str(found[0]))


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, patience=3) as instance:
        yield instance


async def test_reports_that_wait_for_a_locked_table_take_no_connection_from_readers(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    numbers = itertools.count()

    async def report() -> None:
        number = next(numbers)
        await api.router.post_report(a_report(f"r{number}", bindings=(a_binding(f"s{number}", "a"),)))

    with psycopg.connect(plain(database_url)) as holder:
        holder.execute("LOCK TABLE bindings IN ACCESS EXCLUSIVE MODE")
        async with crowd(report, REPORTS, database_url) as outcomes:
            for _ in range(5):
                assert (await api.viewer.pools()).total == 1
        assert outcomes == {(503, "database-busy")}
    assert await outcome(report()) == (200, "")


async def test_many_readers_of_a_locked_table_keep_no_report_waiting(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with psycopg.connect(plain(database_url)) as holder:
        holder.execute("LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE")
        async with crowd(lambda: api.viewer.migrations({}), READS, database_url) as outcomes:
            for number in range(5):
                await api.router.post_report(a_report(f"r{number}", bindings=(a_binding(f"s{number}", "a"),)))
                await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2 + number))
        assert outcomes == {(503, "database-busy")}


async def test_a_full_disk_refuses_for_now(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        connection.execute("CREATE TRIGGER full_disk BEFORE INSERT ON bindings EXECUTE FUNCTION full_disk()")
    with pytest.raises(NotTaken) as caught:
        await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))
    assert caught.value.is_database_outage


async def test_as_many_jobs_as_hold_their_locks_at_once_find_connections_for_their_work(api: ApiInstance) -> None:
    """Each holds one connection and waits for a second one of another group, as in one group all would wait for each
    other.
    """
    together, done = asyncio.Barrier(JOBS.connections), list[str]()

    async def work(name: str, now: datetime) -> None:
        await together.wait()
        await api.app.state.budgets.look(now)
        done.append(name)

    names = [f"job-{number}" for number in range(JOBS.connections)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(api.app.state.upkeep.alone(name, partial(work, name), api.clock()) for name in names))
    assert sorted(done) == names
