"""What a start of Postgres finds in its folders, with a stand-in for initdb."""

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.identities import POSTGRES_ACCOUNT
from fairlead_sandbox.postgres import PostgresServer, ServerUser, stop_stray

INITDB = """#!/bin/sh
ls "$2/.." >"$2/../seen"
echo 16 >"$2/PG_VERSION"
mkdir "$2/base"
"""
"""Notes what lies in the state directory while it runs. Like the real one, it writes PG_VERSION first."""


def server(root: Path, user: ServerUser | None = None) -> PostgresServer:
    (root / "run").mkdir()
    initdb = root / "initdb"
    initdb.write_text(INITDB)
    initdb.chmod(0o755)
    return PostgresServer(binaries=root, data=root / "postgres", socket_directory=root / "run", user=user or ServerUser(), settings={})


def initialised(root: Path, user: ServerUser | None = None) -> PostgresServer:
    (root / "postgres").mkdir()
    (root / "postgres" / "PG_VERSION").write_text("16\n")
    return server(root, user)


def test_a_cluster_stands_in_its_place_only_once_initdb_has_ended(tmp_path: Path) -> None:
    killed = tmp_path / "postgres.making"
    killed.mkdir()
    (killed / "PG_VERSION").write_text("16\n")
    (killed / "half").touch()
    server(tmp_path).initialise()
    seen = (tmp_path / "seen").read_text().split()
    assert ("postgres" in seen, "postgres.making" in seen) == (False, True)
    assert sorted(path.name for path in (tmp_path / "postgres").iterdir()) == ["PG_VERSION", "base"]
    assert not killed.exists()


def test_a_folder_of_the_user_is_refused_and_kept(tmp_path: Path) -> None:
    made = server(tmp_path)
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "dump.sql").write_text("precious")
    with pytest.raises(SandboxError, match=r"/postgres is not empty and holds no Postgres database; .*--state-dir$"):
        made.prepare()
    assert (tmp_path / "postgres" / "dump.sql").read_text() == "precious"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    server(tmp_path).initialise()
    assert (tmp_path / "postgres" / "base").is_dir()


@pytest.mark.parametrize("content", ["", "nonsense", f"{os.getpid()}\n"], ids=["empty", "unreadable", "of somebody else"])
def test_what_a_crash_left_blocks_no_start(content: str, tmp_path: Path) -> None:
    made = initialised(tmp_path)
    left = [made.data / "postmaster.pid", *(made.socket_directory / name for name in (".s.PGSQL.5432", ".s.PGSQL.5432.lock"))]
    for path in left:
        path.write_text(content)
    made.prepare()
    assert [path.name for path in left if path.exists()] == []


def test_the_pid_file_of_a_server_that_has_not_written_it_yet_stays(tmp_path: Path) -> None:
    data = initialised(tmp_path).data
    (data / "postmaster.pid").touch()
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(Path(sleep).resolve(), tmp_path / "postgres-16")  # known by the name that the kernel gives it
    with subprocess.Popen([tmp_path / "postgres-16", "600"], cwd=data) as running:
        assert stop_stray(data) == 0
        running.kill()
    assert (data / "postmaster.pid").exists()
    assert stop_stray(data) == 0
    assert not (data / "postmaster.pid").exists()


def test_the_url_names_the_socket_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "r&d +100%25?#"
    folder.mkdir()
    url = make_url(server(folder).url)
    assert url.query == {"host": str(folder / "run")}
    assert (url.drivername, url.username, url.database) == ("postgresql+psycopg", "fairlead", "fairlead")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_the_user_that_root_becomes_can_reach_its_folders_at_every_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made = initialised(tmp_path, ServerUser(account=POSTGRES_ACCOUNT))
    made.prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711
    assert made.socket_directory.stat().st_uid == pwd.getpwnam(POSTGRES_ACCOUNT).pw_uid
