"""A sandbox's processes are found by their mark and ended completely."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_sandbox.marks import MARK, marked_processes
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.identities import end_processes

SLEEP = "import sys, time; sys.stdout.write('on'); sys.stdout.flush(); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture(params=[SLEEP, DEAF], ids=["obedient", "deaf"])
def child(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-S", "-c", request.param], stdout=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        started.stdout.read(2)
        yield started
        started.kill()


def test_a_marked_process_is_found_and_ended_whatever_it_does_with_the_signal(child: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    found = marked_processes(tmp_path)
    assert [identity.pid for identity in found] == [child.pid]
    assert end_processes(found, grace_seconds=0.3) == 1
    assert child.wait(PATIENCE_SECONDS) in {-signal.SIGTERM, -signal.SIGKILL}
    assert marked_processes(tmp_path) == []
    assert end_processes(found, grace_seconds=0.3) == 0
