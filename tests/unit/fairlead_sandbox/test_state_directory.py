"""The state directory: its lock, its note, its private files, and short socket paths."""

import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_sandbox.state_directory import POSTGRES_UID, ProcessNote, RunNote, StateDirectory, write_private


def test_one_supervisor_at_a_time_may_hold_the_directory(tmp_path: Path) -> None:
    directory = StateDirectory(root=tmp_path)
    assert not directory.is_locked()
    lock = directory.lock()
    assert lock is not None
    assert directory.lock() is None
    assert directory.is_locked()
    lock.release()
    assert not directory.is_locked()


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = StateDirectory(root=tmp_path)
    note = RunNote(
        phase="ready",
        supervisor_pid=7,
        supervisor_started_ticks=8,
        ports={"api": 8080},
        urls={"api": "http://127.0.0.1:8080"},
        processes=(ProcessNote(name="api", state="ready", pid=9, started_ticks=10, restarts=2),),
    )
    directory.write_run(note)
    assert directory.read_run() == note
    assert stat.S_IMODE(directory.run_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"phase": "ready", "colour": 1, "processes": []}', '{"phase": "ready"}'])
def test_a_note_that_is_not_ours_is_no_note(tmp_path: Path, text: str) -> None:
    directory = StateDirectory(root=tmp_path)
    directory.run_file.write_text(text)
    assert directory.read_run() is None


def test_the_socket_moves_to_a_short_folder_when_the_path_would_be_too_long(tmp_path: Path) -> None:
    near = StateDirectory(root=Path("/srv/f"))
    far = StateDirectory(root=Path("/srv") / ("deep" * 20))
    assert near.socket_directory == Path("/srv/f/run")
    assert len(str(far.socket_directory)) < 70
    assert far.socket_directory != StateDirectory(root=Path("/srv") / ("deep" * 21)).socket_directory


def test_the_socket_moves_where_its_path_is_no_list_of_folders() -> None:
    cut = StateDirectory(root=Path("/srv/one, two")).socket_directory
    assert "," not in str(cut)
    assert cut != StateDirectory(root=Path("/srv/one, three")).socket_directory


def give_away(folder: Path, account: int) -> None:
    try:
        shutil.chown(folder, account)
    except OSError as error:  # root of a namespace that knows no other account can do it as little as anybody else
        pytest.skip(f"only root can give a folder away: {error}")


def test_root_goes_on_where_postgres_ran_as_its_own_user_and_with_nobody_elses_folder() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # a longer path has its socket elsewhere
        directory = StateDirectory(root=Path(short))
        directory.create()
        assert directory.socket_directory.parent == directory.root
        give_away(directory.socket_directory, POSTGRES_UID)
        directory.create()
        give_away(directory.socket_directory, 4321)
        with pytest.raises(SandboxError, match="belongs to another user"):
            directory.create()


def test_a_state_directory_in_a_checkout_is_never_committed(tmp_path: Path) -> None:
    StateDirectory(root=tmp_path / "any-name").create()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert subprocess.check_output(["git", "-C", str(tmp_path), "status", "--porcelain"], text=True) == ""


def test_a_folder_that_had_files_keeps_its_own_rules_of_what_is_committed(tmp_path: Path) -> None:
    rules = tmp_path / ".gitignore"
    rules.write_text("build/\n")
    StateDirectory(root=tmp_path).create()
    assert rules.read_text() == "build/\n"


def test_secrets_are_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made = load_or_create(path)
    assert load_or_create(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len({made.admin, made.operator, made.router}) == 3
    assert [entry.split(":")[0] for entry in made.bootstrap.split(",")] == ["admin", "system-operator", "system-router"]


def test_a_damaged_secrets_file_is_refused_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("{}")
    with pytest.raises(SandboxError, match="not a token file; delete it"):
        load_or_create(path)
    assert path.read_text() == "{}"


def test_a_private_file_is_replaced_as_a_whole_and_leaves_no_temporary_one(tmp_path: Path) -> None:
    write_private(tmp_path / "x", "one")
    write_private(tmp_path / "x", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "two"


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match=r"--state-dir .*file/x: cannot be created"):
        StateDirectory(root=tmp_path / "file" / "x").create()


def test_a_directory_runs_the_chart_or_the_processes_and_never_both(tmp_path: Path) -> None:
    with_chart, without = StateDirectory(root=tmp_path / "a"), StateDirectory(root=tmp_path / "b")
    for directory in (with_chart, without):
        directory.create()
        directory.refuse_chart()
    with_chart.claim_for_chart()
    with_chart.claim_for_chart()
    with pytest.raises(SandboxError, match=r"^--chart: .*/a was started with it; use --chart again, or choose another --state-dir$"):
        with_chart.refuse_chart()
    load_or_create(without.secrets)
    with pytest.raises(SandboxError, match=r"^--chart: .*/b was started without it"):
        without.claim_for_chart()
