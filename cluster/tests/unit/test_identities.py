"""Processes are identified by pid and start time, and ended completely."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from processkube.identities import ProcessIdentity, end_processes, identity_of, is_alive, send_signal
from processkube.testing.waiting import PATIENCE_SECONDS

SLEEP = "import sys, time; sys.stdout.write('on'); sys.stdout.flush(); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture(params=[SLEEP, DEAF], ids=["obedient", "deaf"])
def child(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-S", "-c", request.param], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.read(2)
        yield started
        started.kill()


def test_a_process_is_ended_whatever_it_does_with_the_signal(child: "subprocess.Popen[bytes]") -> None:
    identity = identity_of(child.pid)
    assert identity is not None
    assert end_processes([identity], grace_seconds=0.3) == 1
    assert child.wait(PATIENCE_SECONDS) in {-signal.SIGTERM, -signal.SIGKILL}
    assert end_processes([identity], grace_seconds=0.3) == 0


def test_a_reused_pid_is_not_taken_for_the_process_that_had_it_before(child: "subprocess.Popen[bytes]") -> None:
    now = identity_of(child.pid)
    assert now is not None
    before = replace(now, started_ticks=now.started_ticks - 1)
    assert is_alive(now)
    assert not is_alive(before)
    assert not send_signal(before, signal.SIGKILL)
    assert child.poll() is None


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while identity_of(ended.pid) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert ended.returncode is None, "nobody has waited for it yet"


def test_nothing_is_known_of_a_pid_that_does_not_exist() -> None:
    assert identity_of(2**22 + 1) is None
    assert not is_alive(ProcessIdentity(pid=2**22 + 1, started_ticks=1))
