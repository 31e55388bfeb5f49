"""Postgres is killed, frozen or replaced by its standby, under an API that is not restarted.

A frozen Postgres is silent: all its processes are stopped, with their connections open. That no caller waits two
seconds for it is shown in virtual time, by tests/unit/fairlead_api/infra/test_pulse.py. A fenced primary still answers
but takes no writes, so its clients must leave it.
"""

import asyncio
import gc
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from fairlead.reports.batches import Report
from fairlead_client.lines import BindingsLine, SyncedLine
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole, LoginLinkRequest, TokenRequest
from fairlead_sandbox.postgres import USER, find_binaries
from fairlead_testing.running.api import CHAT, SECRETS, ApiInstance, a_binding, a_report, a_state, an_instance, running_api, until_ready
from fairlead_testing.running.postgres import PostgresProcess, place_of_servers, plain
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.running.strict_system_api import NotTaken
from fairlead_testing.waiting import PATIENCE_SECONDS

REPLICATED = {"max_connections": "60", "shared_buffers": "32MB", "wal_level": "replica", "max_wal_senders": "4"}
READS = ("/v1/pools", "/v1/pools/default/chat", "/v1/sessions", "/v1/migrations", "/v1/decisions", "/v1/audit", "/v1/tokens")
AWAY = ("killed", "frozen")
REPLACED = ("primary-killed", "primary-fenced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that a test takes away and restores."""

    url: str
    strike: Callable[[], None]
    mend: Callable[[], None]
    server: PostgresProcess
    """The server that serves after the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """A primary whose commits wait for the standby."""

    primary: PostgresProcess
    standby: PostgresProcess

    @property
    def url(self) -> str:
        """Return a URL that leads to the server that takes writes."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"postgresql+psycopg://{USER}@/postgres?host={hosts}&target_session_attrs=read-write"

    def fence(self) -> None:
        with psycopg.connect(plain(self.primary.url), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        with psycopg.connect(plain(self.standby.url), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(wait => true)")


@pytest.fixture
def servers(migrated_cluster: Path) -> Iterator[Servers]:
    with tempfile.TemporaryDirectory(prefix="fl-fail-", dir=place_of_servers()) as folder:
        primary, standby = (PostgresProcess(Path(folder) / name, REPLICATED) for name in ("a", "b"))
        for server in (primary, standby):
            server.folder.mkdir()
        shutil.copytree(migrated_cluster, primary.folder / "data")
        primary.start()
        try:
            source = f"host={primary.folder} user={USER} application_name=standby"
            copy = ["-d", source, "-D", str(standby.server.data), "-R", "-X", "stream", "-c", "fast"]
            subprocess.run([*standby.server.user.prefix, str(find_binaries() / "pg_basebackup"), *copy], check=True, capture_output=True)
            standby.start()
            with psycopg.connect(plain(primary.url), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")
            yield Servers(primary=primary, standby=standby)
        finally:
            standby.kill()
            primary.kill()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield a database for the fault of the test's parameter, which is one of AWAY or of REPLACED."""
    if request.param in AWAY:
        server: PostgresProcess = request.getfixturevalue("own_postgres")
        strike, mend = (server.kill, server.start) if request.param == "killed" else (server.freeze, server.thaw)
        yield Database(url=server.url, strike=strike, mend=mend, server=server)
        if request.param == "frozen":
            server.thaw()  # a test that failed meanwhile left it frozen, and it would not stop
        return
    pair: Servers = request.getfixturevalue("servers")
    strike = pair.primary.kill if request.param == "primary-killed" else pair.fence
    yield Database(url=pair.url, strike=strike, mend=pair.promote, server=pair.standby)


@asynccontextmanager
async def client_of(api: ApiInstance, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = StreamingAsgiTransport(api.app)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url="http://api.test", transport=transport, headers=headers, timeout=PATIENCE_SECONDS) as http:
        yield http


@asynccontextmanager
async def following(api: ApiInstance) -> AsyncIterator[set[str]]:
    """Yield the sessions whose bindings a router's stream brings; it must not end within the block."""
    seen: set[str] = set()
    synced = asyncio.Event()

    async def follow() -> None:
        async for line in api.router.stream("router-9"):
            if isinstance(line, BindingsLine):
                seen.update(binding.session for binding in line.bindings)
            elif isinstance(line, SyncedLine):
                synced.set()

    follower = asyncio.create_task(follow())
    await asyncio.wait_for(synced.wait(), PATIENCE_SECONDS)
    yield seen
    assert not follower.done()
    follower.cancel()
    await asyncio.wait([follower])


@dataclass(slots=True)
class Asking:
    """Routers, which send each report again until it is taken, and people, who read."""

    answers: Counter[str] = field(default_factory=Counter)
    statuses: set[int] = field(default_factory=set)
    refused: int = 0
    acknowledged: list[Report] = field(default_factory=list)

    async def each_is_answered(self, times: int) -> None:
        before = self.answers.copy()
        while any(self.answers[name] - before[name] < times for name in before):
            await asyncio.sleep(0.02)

    async def read(self, name: str, http: httpx.AsyncClient, ending: asyncio.Event) -> None:
        while not ending.is_set():
            self.statuses.add((await http.get("/v1/sessions")).status_code)
            self.answers[name] += 1
            await asyncio.sleep(0.01)

    async def write(self, name: str, api: ApiInstance, ending: asyncio.Event) -> None:
        number = 0
        while not ending.is_set():
            number += 1
            report = a_report(f"{name}-{number}", router=f"router-{name}", bindings=(a_binding(f"{name}-{number}", "a"),))
            while not await self._is_taken(report, api):
                self.answers[name] += 1
                await asyncio.sleep(0.05)
            self.acknowledged.append(report)
            self.answers[name] += 1

    async def _is_taken(self, report: Report, api: ApiInstance) -> bool:
        try:
            await api.router.post_report(report)
        except NotTaken as error:
            if not error.is_database_outage:
                raise
            self.statuses.add(error.status)
            self.refused += 1
            return False
        return True


@asynccontextmanager
async def asking(api: ApiInstance) -> AsyncIterator[Asking]:
    """Let routers report and people read while the block runs, and until their first reports are taken."""
    asked, ending = Asking(), asyncio.Event()
    async with client_of(api, SECRETS["viewer"]) as http, asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(4):
            asked.answers[f"w{number}"] = 0
            tasks.create_task(asked.write(f"w{number}", api, ending))
        for number in range(3):
            asked.answers[f"r{number}"] = 0
            tasks.create_task(asked.read(f"r{number}", http, ending))
        yield asked
        ending.set()


@pytest.mark.parametrize("database", AWAY + REPLACED, indirect=True)
async def test_everybody_is_answered_and_no_acknowledged_report_and_no_line_of_a_stream_is_lost(database: Database) -> None:
    async with running_api(database.url, patience=3) as api:
        await until_ready(api)
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        async with following(api) as seen:
            async with asking(api) as asked:
                await asked.each_is_answered(3)
                await asyncio.to_thread(database.strike)
                await asked.each_is_answered(2)  # what it asked at the fault, and what it asked after that
                while asked.refused < 8:
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(database.mend)
                await asked.each_is_answered(3)
            assert asked.statuses == {200, 503}
            await until_ready(api)
            await api.router.post_report(a_report("last", bindings=(a_binding("after", "a"),)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "after" not in seen:
                    await asyncio.sleep(0.05)
        for report in asked.acknowledged[:60]:
            assert (await api.router.post_report(report)).duplicate
        taken = len(asked.acknowledged) + 1
        sessions = await api.viewer.sessions({"limit": 100})
        assert (sessions.total, {one.version for one in sessions.items}) == (taken, {1})
        assert (await api.admin.audit_verification()).intact
    with psycopg.connect(plain(database.server.url)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT (router, id)) FROM reports").fetchone() == (taken, taken)
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)


@pytest.mark.parametrize("database", AWAY, indirect=True)
async def test_with_every_pooled_connection_hit_reads_go_stale_and_writes_and_readiness_say_so(database: Database) -> None:
    async with running_api(database.url, patience=3, background=True) as api:
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
        secret = (await api.admin.create_token(TokenRequest(name="person", role=AccessRole.ADMIN, days=1))).secret or ""
        person = await api.base.login((await api.admin.create_login_link(LoginLinkRequest(role=AccessRole.VIEWER))).token)
        reader = api.base.with_token(person.token)
        before = await reader.pools()
        async with client_of(api, secret) as http:
            await asyncio.gather(*(http.get(path) for path in READS * 3))  # all connections for reads are open now
            database.strike()
            reads = await asyncio.gather(*(http.get(path) for path in READS * 3))
            again = await asyncio.gather(*(http.get(path) for path in READS))
            unknown = await http.get("/v1/sessions?q=never-asked-before")
            refused = []
            for refusing in (
                api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),))),
                api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2)),
            ):
                with pytest.raises(NotTaken) as caught:
                    await refusing
                refused.append(caught.value.is_database_outage)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await http.get("/readyz")).status_code != 503:
                    await asyncio.sleep(0.05)
            assert (await http.get("/healthz")).status_code == 200
            assert await reader.pools() == before  # the last good answer, for a person seen lately
            database.mend()
            assert {answer.status_code for answer in (*reads, *again)} == {200}
            assert {answer.headers["x-fairlead-stale"] for answer in (*reads, *again)} == {"database-unavailable"}
            assert (unknown.status_code, unknown.headers["retry-after"]) == (503, "2")
            assert refused == [True, True]

            await until_ready(api)
            fresh = [await http.get(path) for path in READS * 5]
            assert {(answer.status_code, "x-fairlead-stale" in answer.headers) for answer in fresh} == {(200, False)}
            assert not (await api.router.post_report(a_report("r1", bindings=(a_binding("s1", "a"),)))).duplicate
    gc.collect()  # an attempt to connect that was given up is closed with its objects, which its exception keeps in a cycle
    with psycopg.connect(plain(database.url)) as connection:  # everything was closed with the API, also what was frozen
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fairlead-api%'"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while connection.execute(query).fetchone() != (0,):
                connection.rollback()
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("database", AWAY, indirect=True)
async def test_who_was_revoked_reads_nothing_while_the_database_is_away(database: Database) -> None:
    async with running_api(database.url, patience=3) as api, running_api(database.url, patience=3) as replica:
        kept = await api.admin.create_token(TokenRequest(name="ada", role=AccessRole.VIEWER))
        revoked = await api.admin.create_token(TokenRequest(name="eve", role=AccessRole.VIEWER))
        https = [httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(one.app)) for one in (api, replica)]

        async def statuses(path: str) -> list[int]:
            headers = [{"authorization": f"Bearer {token.secret}"} for token in (kept, revoked)]
            return [(await http.get(path, headers=one)).status_code for http in https for one in headers]

        async with asyncio.timeout(PATIENCE_SECONDS):
            while await statuses("/v1/pools") != [200, 200, 200, 200]:
                await asyncio.sleep(0.05)
        await api.admin.revoke_token(revoked.id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await statuses("/v1/pools") != [200, 401, 200, 401]:
                await asyncio.sleep(0.05)
        await statuses("/v1/audit/verification")
        database.strike()
        assert await statuses("/v1/pools") == [200, 503, 200, 503]
        assert await statuses("/v1/audit/verification") == [503, 503, 503, 503]
        database.mend()
        for http in https:
            await http.aclose()


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
