"""A database that is silent instead of away: every process of a real Postgres stopped, with its connections open.

That nobody waits for it two seconds is shown in virtual time, by tests/unit/fairlead_api/infra/test_pulse.py.
"""

import asyncio
import gc
from collections import Counter
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
from fairlead_testing.waiting import PATIENCE_SECONDS

READS = ("/v1/pools", "/v1/pools/default/chat", "/v1/sessions", "/v1/migrations", "/v1/decisions", "/v1/audit", "/v1/tokens")


@asynccontextmanager
async def client_of(api: ApiInstance, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = StreamingAsgiTransport(api.app)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url="http://api.test", transport=transport, headers=headers, timeout=PATIENCE_SECONDS) as http:
        yield http


async def test_with_every_pooled_connection_frozen_reads_go_stale_and_writes_and_readiness_say_so(own_postgres: PostgresProcess) -> None:
    async with running_api(own_postgres.url, patience=3, background=True) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        secret = (await api.admin.create_token(TokenRequest(name="person", role=AccessRole.ADMIN, days=1))).secret or ""
        async with client_of(api, secret) as http:
            await asyncio.gather(*(http.get(path) for path in READS * 3))  # all connections for reads are open now
            own_postgres.freeze()
            try:
                reads = await asyncio.gather(*(http.get(path) for path in READS * 3))
                again = await asyncio.gather(*(http.get(path) for path in READS))
                unknown = await http.get("/v1/sessions?q=never-asked-before")
                with pytest.raises(NotTaken) as refused:
                    await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))
                readiness = await http.get("/readyz")
            finally:
                own_postgres.thaw()
            assert {answer.status_code for answer in (*reads, *again)} == {200}
            assert {answer.headers["x-fairlead-stale"] for answer in (*reads, *again)} == {"database-unavailable"}
            assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "2")
            assert refused.value.is_database_outage
            assert readiness.status_code == 503

            await until_ready(api)
            fresh = [await http.get(path) for path in READS * 5]
            assert {(answer.status_code, "x-fairlead-stale" in answer.headers) for answer in fresh} == {(200, False)}
            assert not (await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))).duplicate
    gc.collect()  # an attempt to connect that was given up is closed with its objects, which its exception keeps in a cycle
    with psycopg.connect(plain(own_postgres.url)) as connection:  # everything was closed with the API, also what was frozen
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fairlead-api%'"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while connection.execute(query).fetchone() != (0,):
                connection.rollback()
                await asyncio.sleep(0.05)


async def test_who_asks_while_the_database_freezes_is_answered_though_it_stays_frozen(own_postgres: PostgresProcess) -> None:
    async with running_api(own_postgres.url, patience=3) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        answers: Counter[str] = Counter()
        statuses: set[int] = set()
        ended = asyncio.Event()

        async def read_for_ever(name: str, http: httpx.AsyncClient) -> None:
            while not ended.is_set():
                statuses.add((await http.get("/v1/sessions")).status_code)
                answers[name] += 1

        async def write_for_ever(name: str) -> None:
            while not ended.is_set():
                try:
                    await api.router.post_report(a_report(f"{name}-{answers[name]}", bindings=(a_binding(f"s-{name}", "a"),)))
                except NotTaken as error:
                    statuses.add(error.status)
                    await asyncio.sleep(0.02)
                answers[name] += 1

        async def each_is_answered(times: int) -> None:
            before = answers.copy()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(answers[name] - before[name] < times for name in names):
                    await asyncio.sleep(0.02)

        names = [f"{kind}{number}" for kind in ("reader", "writer") for number in range(3)]
        async with client_of(api, SECRETS["viewer"]) as http:
            asking = [
                asyncio.create_task(read_for_ever(name, http) if name.startswith("reader") else write_for_ever(name)) for name in names
            ]
            await each_is_answered(3)
            own_postgres.freeze()
            try:
                await each_is_answered(2)  # what it asked when the database froze, and what it asked after that
            finally:
                own_postgres.thaw()
            await until_ready(api)
            await each_is_answered(3)
            ended.set()
            await asyncio.gather(*asking)
        assert statuses == {200, 503}


async def test_streams_of_routers_go_on_after_a_freeze_and_miss_nothing(own_postgres: PostgresProcess) -> None:
    async with running_api(own_postgres.url, patience=3) as api:
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
        await asyncio.wait_for(synced.wait(), PATIENCE_SECONDS)
        own_postgres.freeze()
        await asyncio.sleep(3)
        own_postgres.thaw()
        await until_ready(api)
        await api.router.post_report(a_report("r1", bindings=(a_binding("after", "a"),)))
        async with asyncio.timeout(PATIENCE_SECONDS):
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
