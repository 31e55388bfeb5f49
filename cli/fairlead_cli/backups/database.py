"""The part of a backup from the database, by PostgreSQL's own tools: a snapshot for the backup, one transaction for the
restore.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fairlead.errors import FairleadError
from fairlead_api.infra.connections import connected, libpq_url
from fairlead_cli.backups.archive import Head

_CHUNK = 1 << 20


class ToolFailed(FairleadError):
    """pg_dump or pg_restore is missing, too old, or ended with an error."""


class NotEmpty(FairleadError):
    """The database to be restored already has Fairlead's tables."""


@contextmanager
def snapshot(url: str) -> Iterator[tuple[str, psycopg.Connection]]:
    """Yield the name of a database snapshot that other connections can use until the block ends, and a connection that
    uses it.
    """
    with connected(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [name] = connection.execute("SELECT pg_export_snapshot()").fetchone() or ("",)
        yield name, connection


def schema(connection: psycopg.Connection) -> str | None:
    """Return the database's newest migration; None for a database without Fairlead's tables."""
    if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row[0])


def now(connection: psycopg.Connection) -> datetime:
    """Return the time at which the connection's transaction began, by the server's clock."""
    [at] = connection.execute("SELECT now()").fetchone() or (None,)
    assert isinstance(at, datetime)
    return at


def head(connection: psycopg.Connection) -> Head | None:
    """Return the audit log's newest entry; None for an empty log."""
    row = connection.execute("SELECT id, chain FROM audit_log ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else Head(id=row[0], chain=row[1])


@contextmanager
def dumping(url: str, name: str, version: int) -> Iterator[Callable[[], bytes]]:
    """Yield a function that returns the next bytes of a dump of the snapshot `name`. `version` is the server's, such as
    180006. Raises ToolFailed.
    """
    arguments = ("--format=custom", f"--snapshot={name}")
    with _running("pg_dump", url, version, arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout
        yield lambda: output.read(_CHUNK)


def restore(url: str, version: int, dump: IO[bytes]) -> None:
    """Restore a dump into an empty database. If the restore fails or this process dies, the database stays empty.
    Raises ToolFailed.
    """
    arguments = ("--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges")
    with _running("pg_restore", url, version, arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            shutil.copyfileobj(dump, process.stdin, _CHUNK)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, and says why


@contextmanager
def _running(tool: str, url: str, version: int, arguments: tuple[str, ...], **pipes: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield the running tool, connected to the database, with the password only in its environment."""
    place = conninfo_to_dict(libpq_url(url))
    password = place.pop("password", None)
    environment = {**_environment(), **({} if password is None else {"PGPASSWORD": str(password)})}
    command = [found(tool, version // 10_000), *arguments, f"--dbname={make_conninfo('', **place)}"]
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, env=environment, stderr=errors, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            errors.seek(0)
            raise ToolFailed(f"{tool}: {_first_line(errors.read().decode(errors='replace'))}")


def _environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}


def _first_line(said: str) -> str:
    lines = [line.split("error: ", 1)[-1] for line in said.splitlines() if "error: " in line] or said.splitlines() or ["it gave no reason"]
    return lines[0].strip()


def found(tool: str, major: int) -> str:
    """Return the path of the first `tool` that can be used with a server of this major version. Raises ToolFailed."""
    seen = []
    for path in _candidates(tool):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if (number := re.search(r"(\d+)[.\d]*\s", f"{said} ")) and int(number[1]) >= major:
            return path
        seen.append(said.strip())
    has = f"this machine has {', '.join(seen)}" if seen else "there is none on PATH"
    raise ToolFailed(f"{tool} of PostgreSQL {major} or newer is needed, and {has}: install it (Debian: postgresql-client-{major})")


def _candidates(tool: str) -> Iterator[str]:
    if (path := shutil.which(tool)) is not None:
        yield path
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):  # where Debian keeps one of each version
        if (folder / tool).exists():
            yield str(folder / tool)
    try:
        from fairlead_sandbox.postgres import find_binaries

        yield str(find_binaries() / tool)
    except (ImportError, FairleadError):
        return
