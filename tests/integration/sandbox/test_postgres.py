"""Embedded Postgres under this machine's limits (as root: in a user namespace), and its state after a crash."""

import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import psycopg
import pytest

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.log_streams import Console
from fairlead_sandbox.postgres import (
    ACCOUNT,
    DATABASE,
    USER,
    PostgresServer,
    ServerUser,
    check_external,
    choose_user,
    embedded_server,
    find_binaries,
)
from fairlead_sandbox.processes import Asked, ProcessSpec
from fairlead_sandbox.state_directory import POSTGRES_UID
from fairlead_sandbox.supervisor import Supervisor
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.identities import identity_of, wait_for_end


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a short path, as a socket's path may have about 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="flpg"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@asynccontextmanager
async def supervised(server: PostgresServer, logs: Path) -> AsyncIterator[Supervisor]:
    spec = ProcessSpec(
        name="postgres",
        command=server.command(),
        readiness=Asked(check=server.is_ready),
        before_start=server.prepare,
        stop_signal=signal.SIGINT,
        stop_grace_seconds=PATIENCE_SECONDS,
        start_timeout_seconds=PATIENCE_SECONDS,
    )
    supervisor = Supervisor([spec], logs=logs, console=Console(StringIO(), names=("postgres",), coloured=False), changed=lambda: None)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


async def connect(server: PostgresServer) -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect(host=str(server.socket_directory), user=USER, dbname=DATABASE, autocommit=True)


async def rows(server: PostgresServer) -> int:
    async with await connect(server) as connection:
        found = await (await connection.execute("select count(*) from acknowledged")).fetchone()
    assert found is not None
    return int(str(found[0]))


async def test_what_was_acknowledged_survives_a_killed_server_that_is_restarted(folder: Path) -> None:
    server = embedded_server(data=folder / "pg", socket_directory=folder)
    async with supervised(server, folder) as supervisor:
        async with await connect(server) as connection:
            await connection.execute("create table acknowledged (n int)")
            await connection.execute("insert into acknowledged select generate_series(1, 1000)")
        first = supervisor.notes[0].pid
        assert first is not None
        assert identity_of(first) is not None
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while supervisor.notes[0].state != "ready" or supervisor.notes[0].pid == first:
                await asyncio.sleep(0.05)
        assert await rows(server) == 1000
        async with await connect(server) as connection:
            setting = await (await connection.execute("show fsync")).fetchone()
        assert setting == ("on",)
    assert not (folder / "pg" / "postmaster.pid").exists(), "it was stopped cleanly"
    async with supervised(server, folder):
        assert await rows(server) == 1000


async def test_a_server_left_by_a_killed_supervisor_is_replaced(folder: Path) -> None:
    server = embedded_server(data=folder / "pg", socket_directory=folder)
    server.prepare()
    stray = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await server.is_ready():
                await asyncio.sleep(0.05)
        async with supervised(server, folder) as supervisor:
            assert stray.wait(PATIENCE_SECONDS) == 0
            assert supervisor.notes[0].restarts == 0
    finally:
        stray.kill()


async def test_a_pid_file_that_names_somebody_else_is_forgotten(folder: Path) -> None:
    server = embedded_server(data=folder / "pg", socket_directory=folder)
    server.initialise()
    with subprocess.Popen(["sleep", "600"]) as somebody:
        (folder / "pg" / "postmaster.pid").write_text(f"{somebody.pid}\n{folder / 'pg'}\n")
        async with supervised(server, folder):
            assert somebody.poll() is None, "and left alone"
        somebody.kill()


def test_a_first_start_that_was_cut_short_is_repeated(folder: Path) -> None:
    (folder / "pg.making" / "base").mkdir(parents=True)
    server = embedded_server(data=folder / "pg", socket_directory=folder)
    server.initialise()
    assert (folder / "pg" / "PG_VERSION").exists()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (
            "postgresql://app:secret@127.0.0.1:1/nothing",
            r"FAIRLEAD_DATABASE_URL: postgresql://app:\*\*\*@127\.0\.0\.1:1/nothing does not answer",
        ),
        ("mysql://app@127.0.0.1/x", "'mysql' cannot be used; Fairlead stores in Postgres only"),
        ("nonsense", "not a database URL; write postgresql://"),
    ],
)
async def test_a_database_of_ones_own_that_cannot_be_used_is_one_clear_line_without_its_password(url: str, complaint: str) -> None:
    with pytest.raises(SandboxError, match=complaint) as refusal:
        await check_external(url)
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


@pytest.fixture
def confined(folder: Path) -> PostgresServer:
    """Return a server as on a machine that forbids namespaces, with binaries and data that only root may enter."""
    if os.geteuid() != 0:
        pytest.skip("only root has to become somebody else")
    binaries = find_binaries()
    package = binaries.parents[1]
    for part in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(part), folder / part, symlinks=True)
    folder.chmod(0o700)
    server = embedded_server(data=folder / "pg", socket_directory=folder)
    return replace(server, binaries=folder / binaries.relative_to(package.parent), user=ServerUser(prefix=ACCOUNT, owner=POSTGRES_UID))


async def test_where_namespaces_are_forbidden_root_runs_it_as_another_account_below_a_folder_of_its_own(
    confined: PostgresServer, folder: Path
) -> None:
    async with supervised(confined, folder) as supervisor:
        pid = supervisor.notes[0].pid
        assert confined.data.stat().st_uid == Path(f"/proc/{pid}").stat().st_uid == POSTGRES_UID
        async with await connect(confined) as connection:
            await connection.execute("create table acknowledged (n int)")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("before", [0, 4321], ids=["root's", "another's"])
async def test_data_that_another_user_left_is_taken_over(confined: PostgresServer, folder: Path, before: int) -> None:
    async with supervised(confined, folder), await connect(confined) as connection:
        await connection.execute("create table acknowledged as select 1 as n")
    for path in (confined.data, *confined.data.rglob("*")):
        os.chown(path, before, before)
    async with supervised(confined, folder):
        assert await rows(confined) == 1


async def test_every_user_that_it_can_run_as_goes_on_where_the_other_was(confined: PostgresServer, folder: Path) -> None:
    async with supervised(confined, folder), await connect(confined) as connection:
        await connection.execute("create table acknowledged as select 1 as n")
    chosen = replace(confined, user=choose_user(find_binaries()))
    for server in (chosen, confined):
        async with supervised(server, folder):
            assert await rows(server) == 1


async def test_as_another_account_it_ends_with_a_killed_supervisor(confined: PostgresServer, folder: Path) -> None:
    confined.prepare()
    parent = """
import json, subprocess, sys, time
from fairlead_sandbox.lifelines import die_with_parent
subprocess.Popen(json.loads(sys.argv[1]), preexec_fn=die_with_parent(int(sys.argv[2])))
time.sleep(600)
"""
    arguments = [json.dumps(confined.command()), str(int(signal.SIGQUIT))]
    with subprocess.Popen([sys.executable, "-c", parent, *arguments], stderr=subprocess.DEVNULL) as supervisor:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await confined.is_ready():
                await asyncio.sleep(0.05)
        postmaster = identity_of(int((confined.data / "postmaster.pid").read_text().split()[0]))
        supervisor.kill()
    assert postmaster is not None
    assert wait_for_end(postmaster, PATIENCE_SECONDS)


async def test_a_stray_of_another_account_is_found_by_a_root_that_may_not_look_into_others_processes(
    confined: PostgresServer, folder: Path
) -> None:
    """As in a container: without CAP_SYS_PTRACE, /proc shows root no working directory of such a process."""
    confined.prepare()
    finding = "import sys; from pathlib import Path; from fairlead_sandbox.postgres import stop_stray; print(stop_stray(Path(sys.argv[1])))"
    with subprocess.Popen(confined.command(), stderr=subprocess.DEVNULL) as stray:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await confined.is_ready():
                    await asyncio.sleep(0.05)
            bare = ("setpriv", "--bounding-set=-sys_ptrace,-sys_admin")
            command = [*bare, sys.executable, "-c", finding, str(confined.data)]
            found = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
            assert found.stdout == "1\n"
            assert await asyncio.to_thread(stray.wait, PATIENCE_SECONDS) == 0
        finally:
            stray.kill()
