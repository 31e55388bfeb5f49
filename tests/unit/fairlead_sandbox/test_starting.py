"""What the processes of a sandbox inherit, and what a second start on its directory is told."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead_sandbox.errors import AlreadyRunning
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
