"""A state directory whose supervisor was killed: status is correct, down cleans up, both may be repeated."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from fairlead_sandbox.ending import bring_down
from fairlead_sandbox.marks import MARK
from fairlead_sandbox.state_directory import ProcessNote, RunNote, StateDirectory
from fairlead_sandbox.status_board import show
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.identities import identity_of


@pytest.fixture
def stray(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], env=environment) as started:
        yield started
        started.kill()


@pytest.fixture
def directory(tmp_path: Path, stray: "subprocess.Popen[bytes]") -> StateDirectory:
    made = StateDirectory(root=tmp_path)
    made.create()
    identity = identity_of(stray.pid)
    assert identity is not None
    made.write_run(
        RunNote(
            phase="ready",
            supervisor_pid=2**22 + 1,
            supervisor_started_ticks=1,
            urls={"api": "http://127.0.0.1:8080"},
            processes=(
                ProcessNote(name="kubelet", state="ready", pid=identity.pid, started_ticks=identity.started_ticks, restarts=3),
                ProcessNote(name="api", state="ready", pid=2**22 + 2, started_ticks=1, probe="http://127.0.0.1:9/readyz"),
                ProcessNote(name="definitions", state="done"),
            ),
        )
    )
    return made


def status_of(directory: StateDirectory) -> tuple[bool, str]:
    text = io.StringIO()
    with contextlib.redirect_stderr(text):  # what is wrong goes there, the table to the output
        running = show(directory, Console(file=text, width=200))
    return running, text.getvalue()


def test_status_tells_what_is_dead_and_what_is_left(directory: StateDirectory, stray: "subprocess.Popen[bytes]") -> None:
    running, text = status_of(directory)
    assert not running
    kubelet, api, definitions = [line.split() for line in text.splitlines() if line.split()[:1] in (["kubelet"], ["api"], ["definitions"])]
    assert kubelet[1] == str(stray.pid)
    assert kubelet[3:] == ["3", "ready"]
    assert "dead" in api
    assert "done" in definitions
    assert f"1 of its processes are left, `fairlead down --state-dir {directory.root}` ends them" in text
    assert "http://127.0.0.1:8080" not in text, "nothing answers there"


def test_down_ends_what_is_left_and_may_be_repeated(directory: StateDirectory, stray: "subprocess.Popen[bytes]") -> None:
    assert bring_down(directory) == f"no supervisor ran in {directory.root}; ended 1 stray processes"
    assert stray.wait(PATIENCE_SECONDS) != 0
    assert bring_down(directory) == f"nothing was running in {directory.root}"
    assert status_of(directory)[0] is False


def test_a_directory_that_never_was_a_sandbox_is_fine_too(tmp_path: Path) -> None:
    missing = StateDirectory(root=tmp_path / "none")
    assert bring_down(missing) == f"no sandbox in {missing.root}"
    running, text = status_of(missing)
    assert not running
    assert "`fairlead up` starts one" in text
    assert not missing.root.exists(), "asking makes nothing"
