"""What the processes of a sandbox inherit."""

from pathlib import Path

from fairlead_sandbox.runs import process_environment
from fairlead_sandbox.state_directory import StateDirectory

DIRECTORY = StateDirectory(root=Path("/s"))


def test_no_proxy_stands_between_the_parts_whatever_the_machine_uses() -> None:
    made = process_environment({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet"}, DIRECTORY)
    assert made["HTTP_PROXY"] == "http://proxy:3128"
    assert made["NO_PROXY"] == made["no_proxy"] == "intranet,127.0.0.1,localhost"


def test_every_process_carries_the_mark_by_which_it_is_found_again() -> None:
    assert process_environment({}, DIRECTORY)["FAIRLEAD_SANDBOX_STATE_DIR"] == "/s"
