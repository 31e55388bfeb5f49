"""`fairlead up --detach`: the wait for a supervisor in a session of its own."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_sandbox.detaching import start_detached
from fairlead_sandbox.errors import AlreadyRunning
from fairlead_sandbox.state_directory import StateDirectory

SUPERVISOR = """#!/bin/sh
trap 'sleep 0.2; touch "{root}/stopped"; exit 0' TERM
touch "{root}/started"
for turn in $(seq 600); do sleep 0.05; done
"""
"""A supervisor whose start takes 30 s; it needs a moment to stop."""


@pytest.fixture
def heeded(number: int) -> Iterator[None]:
    """Let the signal have its default effect; it may be ignored, as SIGINT is in the background and SIGHUP under
    nohup.
    """
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("heeded")
def test_a_wait_that_is_ended_leaves_nothing_starting(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "supervisor"
    program.write_text(SUPERVISOR.format(root=tmp_path))
    program.chmod(0o700)
    waiting = time.sleep

    def interrupted(seconds: float) -> None:
        if (tmp_path / "started").exists():
            signal.raise_signal(number)
        waiting(seconds)

    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(time, "sleep", interrupted)
    before = signal.getsignal(number)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        start_detached(StateDirectory(root=tmp_path), (), print)
    assert signal.getsignal(number) is before
    assert (tmp_path / "stopped").exists(), "it was asked to stop and waited for"


def test_who_finds_a_sandbox_running_is_told_how_to_stop_that_one(tmp_path: Path) -> None:
    directory = StateDirectory(root=tmp_path)
    lock = directory.lock()
    assert lock is not None
    with pytest.raises(AlreadyRunning, match=f"`fairlead down --state-dir {tmp_path}` stops it"):
        start_detached(directory, (), print)
    lock.release()
