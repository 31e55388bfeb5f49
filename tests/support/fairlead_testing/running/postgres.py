"""One real Postgres per test session, shared by all xdist workers. Each test gets a fresh database, copied from a
migrated template.

Uses FAIRLEAD_TEST_DATABASE_URL if set (a superuser URL of a throw-away server), otherwise a server as the sandbox runs
it (`fairlead_sandbox.postgres`), with settings of its own. A guard process owns the server. Every worker holds a shared
lock on a file. When the kernel has released the last lock, even after a kill, the guard stops the server and removes
its folder.

The server's data is in memory if the machine has room. Creating a database writes all of the template, and on a disk
that is busy with other work, these writes and new connections waited for seconds.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

from fairlead_sandbox.postgres import USER, PostgresServer, embedded_server
from processkube.identities import end_processes, identity_of

FAST: Mapping[str, str] = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "max_connections": "200",
    "shared_buffers": "64MB",
}
MEMORY = Path("/dev/shm")
START_SECONDS = 120
NEEDED_BYTES = 2 * 1024**3
TEMPLATE = "fairlead_template"


class PostgresProcess:
    """A server over its own data folder, which a test can start, stop and kill.

    Its socket lies in `folder`, whose path must be short because the path of a socket is limited.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] = FAST) -> None:
        self.folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return server_url(self.folder)

    @property
    def server(self) -> PostgresServer:
        """The server's commands and settings on this machine."""
        return embedded_server(data=self.folder / "data", socket_directory=self.folder, settings=self._settings)

    @property
    def pid(self) -> int:
        """The pid of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Make the data folder if needed, start the server, and return when it accepts connections."""
        server = self.server
        server.prepare()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(server.command(), stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(plain(self.url), connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Postgres did not start; see {self.folder / 'log'}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server with a fast shutdown, and return when the process has ended."""
        if self._process is not None:
            self._process.send_signal(2)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """Kill the postmaster and all its children with SIGKILL; the next start recovers from the write-ahead log."""
        if self._process is not None:
            alive = (identity_of(pid) for pid in self._pids())
            end_processes([one for one in alive if one is not None], grace_seconds=60, first_signal=signal.SIGKILL)
            self._process.wait(60)
            self._process = None

    def freeze(self) -> None:
        """Suspend the postmaster and all its children: connections stay open, but get no answer."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the suspended processes."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        """Return the pid of the postmaster and those of its children; the postmaster is first, so that it starts no
        further child.
        """
        return [self.pid, *(int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]


def place_of_servers() -> Path:
    """Return the folder for the data of test servers: in memory if there is enough room, otherwise the temporary
    folder.
    """
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= NEEDED_BYTES
    return MEMORY if in_memory else Path(tempfile.gettempdir())


def server_url(folder: Path) -> str:
    return f"postgresql+psycopg://{USER}@/postgres?host={folder}"


def plain(url: str) -> str:
    """Return the URL in the form that libpq reads."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def with_database(url: str, name: str) -> str:
    """Return the URL of another database on the same server."""
    head, _, query = url.partition("?")
    return f"{head.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@contextmanager
def shared_server() -> Iterator[str]:
    """Yield the URL of this test session's server with a migrated template. The first worker that needs the server
    starts it.
    """
    given = os.environ.get("FAIRLEAD_TEST_DATABASE_URL")
    if given:
        _ensure_template(given)
        yield given
        return
    folder = place_of_servers() / f"fl-pg-{os.environ.get('PYTEST_XDIST_TESTRUNUID', str(os.getpid()))[:12]}"
    users = _join(folder)
    try:
        with (folder / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "ready").exists():
                _start_guard(folder)
                _ensure_template(server_url(folder))
        yield server_url(folder)
    finally:
        users.close()


def _join(folder: Path) -> IO[str]:
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        users = (folder / "users.lock").open("w")
        fcntl.flock(users, fcntl.LOCK_SH)
        if (folder / "users.lock").exists() and os.fstat(users.fileno()).st_ino == (folder / "users.lock").stat().st_ino:
            return users
        users.close()  # the guard of an earlier round removed the folder between our open and our lock


def _start_guard(folder: Path) -> None:
    guard = subprocess.Popen([sys.executable, __file__, str(folder)], start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while not (folder / "ready").exists():
        if guard.poll() is not None or time.monotonic() > deadline:
            log = folder / "log"
            raise RuntimeError(f"the test Postgres did not start: {log.read_text()[-2000:] if log.exists() else 'no log'}")
        time.sleep(0.02)


def _ensure_template(url: str) -> None:
    from fairlead_api.infra.upgrading import heads, upgrade

    template = template_name(heads())
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(77)")
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (template,)).fetchone():
            return
        building = f"building_{uuid.uuid4().hex[:12]}"
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(building)))
        upgrade(with_database(url, building))
        connection.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(building), sql.Identifier(template)))


def template_name(revision: str) -> str:
    return f"{TEMPLATE}_{revision}"


@contextmanager
def fresh_database(url: str, *, template: bool = True) -> Iterator[str]:
    """Yield the URL of a new database, which is migrated, or empty with `template=False`. It is dropped afterwards."""
    from fairlead_api.infra.upgrading import heads

    name = f"test_{uuid.uuid4().hex[:16]}"
    source = template_name(heads()) if template else "template0"
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(name), sql.Identifier(source))
        )
        try:
            yield with_database(url, name)
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _guard(folder: Path) -> None:
    server = PostgresProcess(folder)
    server.start()
    (folder / "ready").touch()
    with (folder / "users.lock").open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)  # granted when the last worker is gone
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
