"""The environment of a sandbox's processes, and the message of a second start on the same directory."""

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

import pytest

from fairlead_sandbox.errors import AlreadyRunning, SandboxError, StartFailed
from fairlead_sandbox.ports import claim_ports
from fairlead_sandbox.runs import PreparedRun, SupervisedRun, process_environment
from fairlead_sandbox.state_directory import StateDirectory

DIRECTORY = StateDirectory(root=Path("/s"))


def test_no_proxy_stands_between_the_parts_whatever_the_machine_uses() -> None:
    made = process_environment({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet"}, DIRECTORY)
    assert made["HTTP_PROXY"] == "http://proxy:3128"
    assert made["NO_PROXY"] == made["no_proxy"] == "intranet,127.0.0.1,localhost"


def test_every_process_carries_the_mark_by_which_it_is_found_again() -> None:
    assert process_environment({}, DIRECTORY)["FAIRLEAD_SANDBOX_STATE_DIR"] == "/s"


async def prepare(known: Mapping[str, int]) -> PreparedRun:
    raise AssertionError("the directory is held")


def test_a_second_start_is_told_the_commands_that_reach_the_first(tmp_path: Path) -> None:
    directory = StateDirectory(root=tmp_path)
    lock = directory.lock()
    assert lock is not None
    with pytest.raises(AlreadyRunning) as refused:
        asyncio.run(SupervisedRun(directory, {}, None, prepare).run())
    lock.release()
    told = f"`fairlead status --state-dir {tmp_path}` shows it, `fairlead down --state-dir {tmp_path}` stops it"
    assert str(refused.value).endswith(told)


def test_a_terminal_that_has_gone_hides_no_failure_and_skips_no_clean_stop(tmp_path: Path) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def no_summary() -> Callable[[bool], str]:
        raise SandboxError("no login link")

    async def nothing_to_start(known: Mapping[str, int]) -> PreparedRun:
        return PreparedRun(nodes=(), ports={}, urls={}, claims=claim_ports({}), summary=no_summary)

    directory = StateDirectory(root=tmp_path)
    with pytest.raises(StartFailed, match="no login link"):
        asyncio.run(SupervisedRun(directory, {}, Gone(), nothing_to_start).run())
    note = directory.read_run()
    assert note is not None
    assert (note.phase, note.supervisor_pid) == ("failed", None)
