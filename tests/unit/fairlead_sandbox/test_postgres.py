"""A start of Postgres with various contents of its folders, with a script in place of initdb."""

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from fairlead_sandbox import postgres
from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.postgres import ACCOUNT, PostgresServer, ServerUser, choose_user, stop_stray
from fairlead_sandbox.state_directory import POSTGRES_UID

INITDB = """#!/bin/sh
ls "$2/.." >"$2/../seen"
echo 16 >"$2/PG_VERSION"
mkdir "$2/base"
"""
"""A script that records the contents of the state directory. Like the real initdb, it writes PG_VERSION first."""


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
        while Path(f"/proc/{running.pid}/comm").read_text() != "postgres-16\n":  # the kernel names it after it closed our pipe
            time.sleep(0.001)
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


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")


@as_root
def test_the_data_is_the_users_that_root_becomes_at_every_start_and_the_rest_stays_roots(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made = initialised(tmp_path, ServerUser(prefix=ACCOUNT, owner=POSTGRES_UID))
    (made.data / "base").mkdir()
    (made.data / "base" / "link").symlink_to(tmp_path)
    os.chown(made.socket_directory, POSTGRES_UID, POSTGRES_UID)  # as an earlier release left it
    made.prepare()
    owners = {path.lstat().st_uid for path in (made.data, *made.data.rglob("*"))}
    assert (owners, made.socket_directory.stat().st_uid) == ({POSTGRES_UID}, 0)
    assert (stat.S_IMODE(tmp_path.stat().st_mode), tmp_path.stat().st_uid) == (0o700, os.getuid())


@as_root
def test_root_becomes_another_account_where_namespaces_are_forbidden_and_says_what_it_needs_where_it_can_do_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(tmp_path)
    (tmp_path / "initdb").write_text("#!/bin/sh\nexec true\n")
    monkeypatch.setattr(postgres, "NAMESPACE", ("false",))
    assert choose_user(tmp_path) == ServerUser(prefix=ACCOUNT, owner=POSTGRES_UID)
    monkeypatch.setattr(postgres, "ACCOUNT", ("no-such-program",))
    with pytest.raises(SandboxError, match=r"unshare --user.*setpriv.*CAP_DAC_OVERRIDE.*FAIRLEAD_DATABASE_URL$"):
        choose_user(tmp_path)
