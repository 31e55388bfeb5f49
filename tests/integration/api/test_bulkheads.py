"""What keeps some connections busy leaves the others free, and nobody waits long for a lock."""

import asyncio
import time

import psycopg
import pytest

from fairlead_client.problems import ApiProblem
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.strict_system_api import NotTaken


async def outcome(calling: "asyncio.Future[object] | asyncio.Task[object]") -> tuple[int, str]:
    try:
        await calling
    except ApiProblem as problem:
        return problem.problem.status, problem.problem.type
    except NotTaken as error:
        return error.status, error.type
    return 200, ""


async def test_reports_that_wait_for_a_locked_table_take_no_connection_from_readers(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with psycopg.connect(plain(database_url)) as holder:
        holder.execute("LOCK TABLE bindings IN ACCESS EXCLUSIVE MODE")
        reports = [
            asyncio.ensure_future(
                outcome(asyncio.ensure_future(api.router.post_report(a_report(f"r{n}", bindings=(a_binding(f"s{n}", "a"),)))))
            )
            for n in range(30)
        ]
        await asyncio.sleep(0.3)
        begun = time.monotonic()
        for _ in range(5):
            assert (await api.viewer.pools()).total == 1
        assert time.monotonic() - begun < 1
        outcomes = await asyncio.wait_for(asyncio.gather(*reports), 15)
    assert set(outcomes) == {(503, "database-busy")}
    assert await outcome(asyncio.ensure_future(api.router.post_report(a_report("after", bindings=(a_binding("s1", "a"),))))) == (200, "")


async def test_many_readers_of_a_locked_table_keep_no_report_waiting(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    with psycopg.connect(plain(database_url)) as holder:
        holder.execute("LOCK TABLE migrations IN ACCESS EXCLUSIVE MODE")
        readers = [asyncio.ensure_future(outcome(asyncio.ensure_future(api.viewer.migrations({})))) for _ in range(40)]
        await asyncio.sleep(0.3)
        begun = time.monotonic()
        await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2))
        assert time.monotonic() - begun < 1
        outcomes = await asyncio.wait_for(asyncio.gather(*readers), 15)
    assert set(outcomes) == {(503, "database-busy")}


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
