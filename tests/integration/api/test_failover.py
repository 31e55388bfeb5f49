"""A primary that goes away and a standby that is promoted: a real streaming replica, an API that is not restarted."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from fairlead_client.lines import BindingsLine, SyncedLine
from fairlead_sandbox.postgres import USER, find_binaries
from fairlead_testing.running.api import CHAT, ApiInstance, a_binding, a_report, a_state, an_instance, running_api, until_ready
from fairlead_testing.running.postgres import PostgresProcess, place_of_servers, plain
from fairlead_testing.running.strict_system_api import NotTaken
from fairlead_testing.waiting import PATIENCE_SECONDS

REPLICATED = {"max_connections": "60", "shared_buffers": "32MB", "wal_level": "replica", "max_wal_senders": "4"}
WRITERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """A primary, whose commits wait for the standby."""

    primary: PostgresProcess
    standby: PostgresProcess

    @property
    def url(self) -> str:
        """Leads to whichever takes writes."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"postgresql+psycopg://{USER}@/postgres?host={hosts}&target_session_attrs=read-write"

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


@dataclass(slots=True)
class Writing:
    """What routers do: each report is sent again until it is taken."""

    taken: int = 0
    refused: int = 0


@asynccontextmanager
async def writing(api: ApiInstance) -> AsyncIterator[Writing]:
    """Routers report while the block runs, and until what they began with is taken."""
    counted, ending = Writing(), asyncio.Event()

    async def write(name: str) -> None:
        number = 0
        while not ending.is_set():
            number += 1
            report = a_report(f"{name}-{number}", router=f"router-{name}", bindings=(a_binding(f"{name}-{number}", "a"),))
            while True:
                try:
                    await api.router.post_report(report)
                    break
                except NotTaken as error:
                    if not error.is_database_outage:
                        raise
                    counted.refused += 1
                    await asyncio.sleep(0.05)
            counted.taken += 1

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(write(str(number)))
        yield counted
        ending.set()


async def more(counted: Writing) -> None:
    before = counted.taken
    while counted.taken < before + 2 * WRITERS:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("fenced", [False, True], ids=["killed", "fenced"])
async def test_after_a_promotion_everything_goes_on_without_a_restart_and_no_report_is_lost(servers: Servers, *, fenced: bool) -> None:
    """A fenced primary still answers, but takes no writes: what is connected to it must leave it."""
    async with running_api(servers.url, patience=3) as api:
        await until_ready(api)
        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        told: set[str] = set()
        synced = asyncio.Event()

        async def follow() -> None:
            async for line in api.router.stream("router-9"):
                if isinstance(line, BindingsLine):
                    told.update(binding.session for binding in line.bindings)
                elif isinstance(line, SyncedLine):
                    synced.set()

        follower = asyncio.create_task(follow())
        await asyncio.wait_for(synced.wait(), PATIENCE_SECONDS)
        async with writing(api) as counted:
            await more(counted)
            if fenced:
                with psycopg.connect(plain(servers.primary.url), autocommit=True) as connection:
                    connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                    connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                    connection.execute("SELECT pg_reload_conf()")
            else:
                servers.primary.kill()
            while counted.refused < 2 * WRITERS:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(servers.promote)
            await more(counted)
        await api.router.post_report(a_report("last", bindings=(a_binding("after", "a"),)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "after" not in told:
                await asyncio.sleep(0.05)
        assert not follower.done()
        follower.cancel()
        await asyncio.wait([follower])
        assert (await api.viewer.sessions({})).total == counted.taken + 1
        assert (await api.admin.audit_verification()).intact
    with psycopg.connect(plain(servers.standby.url)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT (router, id)) FROM reports").fetchone() == (
            counted.taken + 1,
            counted.taken + 1,
        )
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
