"""Commands that a message tells a person to run act on the sandbox of the message."""

from pathlib import Path

import pytest

from fairlead_sandbox.command_lines import command_line


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_STATE_DIR", raising=False)
    return tmp_path


def test_the_sandbox_of_this_folder_is_found_by_the_bare_command(here: Path) -> None:
    assert command_line("down", here / ".fairlead") == "fairlead down"


def test_another_sandbox_is_named_in_a_way_that_a_shell_takes_as_it_is(here: Path) -> None:
    assert command_line("down", here / "other") == f"fairlead down --state-dir {here}/other"
    assert command_line("login", Path("/my state")) == "fairlead login --state-dir '/my state'"


def test_the_variable_says_which_sandbox_the_bare_command_finds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_STATE_DIR", "other")
    assert command_line("down", here / "other") == "fairlead down"
    assert command_line("down", here / ".fairlead") == f"fairlead down --state-dir {here}/.fairlead"
    monkeypatch.setenv("FAIRLEAD_STATE_DIR", "")
    assert command_line("down", here / ".fairlead") == "fairlead down"
