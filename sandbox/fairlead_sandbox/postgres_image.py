"""The entry point of the image `postgres`, with the embedded server: `python -m … ARGUMENT…`, where the arguments are
the server's.

Like the real image's entry point, it creates the database cluster in PGDATA once, with the user, password and database
of POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, and then becomes the server. The server listens on the pod's
address.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fairlead_process.starting import one_line_errors
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.postgres import find_binaries

SOCKETS = "/var/run/postgresql"


def main(arguments: list[str]) -> None:
    """Create the database cluster if necessary, and become the server. Raises SandboxError."""
    binaries = find_binaries()
    data = Path(os.environ["PGDATA"])
    _initialise(binaries, data)
    listen = ("-c", f"listen_addresses={os.environ['SANDBOX_POD_IP']}", "-c", f"unix_socket_directories={SOCKETS}")
    server = str(binaries / "postgres")
    os.execv(server, [server, "-D", str(data), *listen, *arguments])  # noqa: S606 - its purpose


def _initialise(binaries: Path, data: Path) -> None:
    if (data / "PG_VERSION").exists():
        return
    user, password = os.environ.get("POSTGRES_USER", "postgres"), os.environ.get("POSTGRES_PASSWORD")
    if not password:
        raise SandboxError("POSTGRES_PASSWORD: is not set; the image creates no database without a password")
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(password)
        file.flush()
        options = ("-U", user, f"--pwfile={file.name}", "-E", "UTF8", "--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256")
        _run([str(binaries / "initdb"), "-D", str(data), *options])
    with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write("\nhost all all all scram-sha-256\n")
    database = os.environ.get("POSTGRES_DB", user)
    if database != "postgres":
        quoted = database.replace('"', '""')
        _run([str(binaries / "postgres"), "--single", "-D", str(data), "postgres"], f'CREATE DATABASE "{quoted}";\n')


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SandboxError(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")


if __name__ == "__main__":
    with one_line_errors("postgres"):
        main(sys.argv[1:])
