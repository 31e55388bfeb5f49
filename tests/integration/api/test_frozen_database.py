"""A database that is silent instead of away: every process of a real Postgres stopped, with its connections open."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import psycopg
import pytest

from fairlead_client.lines import BindingsLine, SyncedLine
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, TokenRequest
from fairlead_testing.running.api import CHAT, SECRETS, ApiInstance, a_binding, a_report, a_state, an_instance, running_api, until_ready
from fairlead_testing.running.postgres import PostgresProcess, plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.running.strict_system_api import NotTaken

MOST_SECONDS = 2.0
READS = ("/v1/pools", "/v1/pools/default/chat", "/v1/sessions", "/v1/migrations", "/v1/decisions", "/v1/audit", "/v1/tokens")


@asynccontextmanager
async def client_of(api: ApiInstance, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = StreamingAsgiTransport(api.app)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url="http://api.test", transport=transport, headers=headers, timeout=60) as http:
        yield http


async def timed(http: httpx.AsyncClient, path: str) -> tuple[float, httpx.Response]:
    begun = time.monotonic()
    answer = await http.get(path)
    return time.monotonic() - begun, answer


async def test_with_every_pooled_connection_frozen_reads_go_stale_and_writes_and_readiness_say_so_in_two_seconds(
    own_postgres: PostgresProcess,
) -> None:
    async with running_api(own_postgres.url, background=True) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        secret = (await api.admin.create_token(TokenRequest(name="person", role=AccessRole.ADMIN, days=1))).secret or ""
        async with client_of(api, secret) as http:
            await asyncio.gather(*(http.get(path) for path in READS * 3))  # all connections for reads are open now
            own_postgres.freeze()
            try:
                first = await asyncio.gather(*(timed(http, path) for path in READS * 3), timed(http, "/readyz"))
                second = await asyncio.gather(*(timed(http, path) for path in READS), timed(http, "/v1/sessions?q=never-asked-before"))
                begun = time.monotonic()
                with pytest.raises(NotTaken) as refused:
                    await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))
                writing_seconds = time.monotonic() - begun
                readiness_seconds, readiness = await timed(http, "/readyz")
            finally:
                own_postgres.thaw()
            *reads, (early_seconds, _) = first
            assert max(seconds for seconds, _ in reads) < MOST_SECONDS
            assert early_seconds < 0.5
            assert {answer.status_code for _, answer in reads} == {200}
            assert {answer.headers["x-fairlead-stale"] for _, answer in reads} == {"database-unavailable"}
            *again, (unknown_seconds, unknown) = second
            assert max(seconds for seconds, _ in again) < 0.5
            assert (unknown.status_code, unknown.headers["retry-after"], unknown_seconds < 0.5) == (503, "2", True)
            assert refused.value.is_database_outage
            assert writing_seconds < MOST_SECONDS
            assert (readiness.status_code, readiness_seconds < 0.5) == (503, True)

            await until_ready(api)
            fresh = [await http.get(path) for path in READS * 5]
            assert {(answer.status_code, "x-fairlead-stale" in answer.headers) for answer in fresh} == {(200, False)}
            assert not (await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))).duplicate
    with psycopg.connect(plain(own_postgres.url)) as connection:  # everything was closed with the API, also what was frozen
        async with asyncio.timeout(10):
            while connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fairlead-api%'").fetchone() != (
                0,
            ):
                connection.rollback()
                await asyncio.sleep(0.05)


async def test_who_asks_while_the_database_freezes_is_answered_in_two_seconds(own_postgres: PostgresProcess) -> None:
    async with running_api(own_postgres.url) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        slowest: list[float] = []
        statuses: set[int] = set()
        ended = asyncio.Event()

        async def read_for_ever(http: httpx.AsyncClient) -> None:
            while not ended.is_set():
                seconds, answer = await timed(http, "/v1/sessions")
                slowest.append(seconds)
                statuses.add(answer.status_code)

        async def write_for_ever(number: int) -> None:
            count = 0
            while not ended.is_set():
                begun = time.monotonic()
                try:
                    await api.router.post_report(a_report(f"w{number}-{count}", bindings=(a_binding(f"s{number}", "a"),)))
                    count += 1
                except NotTaken as error:
                    statuses.add(error.status)
                    await asyncio.sleep(0.02)
                slowest.append(time.monotonic() - begun)

        async with client_of(api, SECRETS["viewer"]) as http:
            asking = [asyncio.create_task(read_for_ever(http)) for _ in range(3)]
            asking += [asyncio.create_task(write_for_ever(number)) for number in range(3)]
            await asyncio.sleep(0.5)
            own_postgres.freeze()
            try:
                await asyncio.sleep(4)
            finally:
                own_postgres.thaw()
            await until_ready(api)
            await asyncio.sleep(0.5)
            ended.set()
            await asyncio.gather(*asking)
        assert max(slowest) < MOST_SECONDS
        assert statuses == {200, 503}


async def test_streams_of_routers_go_on_after_a_freeze_and_miss_nothing(own_postgres: PostgresProcess) -> None:
    async with running_api(own_postgres.url) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        seen: set[str] = set()
        synced = asyncio.Event()

        async def follow() -> None:
            async for line in api.router.stream("router-1"):
                if isinstance(line, BindingsLine):
                    seen.update(binding.session for binding in line.bindings)
                elif isinstance(line, SyncedLine):
                    synced.set()

        follower = asyncio.create_task(follow())
        await asyncio.wait_for(synced.wait(), 10)
        own_postgres.freeze()
        await asyncio.sleep(3)
        own_postgres.thaw()
        await until_ready(api)
        await api.router.post_report(a_report("r1", bindings=(a_binding("after", "a"),)))
        async with asyncio.timeout(15):
            while "after" not in seen:
                await asyncio.sleep(0.05)
        assert not follower.done()
        follower.cancel()
        await asyncio.wait([follower])


async def test_a_database_that_takes_no_writes_refuses_them_for_now_and_goes_on_being_read(database_url: str) -> None:
    async with running_api(database_url) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        secret = (await api.admin.create_token(TokenRequest(name="person", role=AccessRole.VIEWER, days=1))).secret or ""
    name = database_url.split("?")[0].rsplit("/", 1)[-1]
    with psycopg.connect(plain(database_url), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    async with running_api(database_url) as api, client_of(api, secret) as http:
        await until_ready(api)
        pools = await http.get("/v1/pools")
        assert (pools.status_code, "x-fairlead-stale" in pools.headers) == (200, False)
        assert (await http.get("/readyz")).json() == {"status": "ready", "database": "read-only"}
        for refusing in (
            api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),))),
            api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2)),
        ):
            with pytest.raises(NotTaken, match="takes no writes") as refused:
                await refusing
            assert refused.value.is_database_outage
        with pytest.raises(ApiProblem, match="takes no writes") as caught:
            await api.admin.create_token(TokenRequest(name="other", role=AccessRole.VIEWER, days=1))
        assert (caught.value.problem.status, caught.value.problem.type) == (503, "database-unavailable")
        assert caught.value.retry_after_seconds is not None
