"""Whom a command asks that was told neither address nor token."""

from pathlib import Path

import pytest

from fairlead_cli import main as command_line
from fairlead_cli.asking import place

URL = "http://127.0.0.1:8080"


def test_a_state_directory_without_a_sandbox_is_not_replaced_by_another_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_STATE_DIR", str(tmp_path))
    assert command_line.run(["pools", "list"]) == 2
    error = capsys.readouterr().err
    assert f"FAIRLEAD_STATE_DIR: '{tmp_path}' cannot be used; nothing of yours runs there" in error
    assert place((URL,), None) == ((URL,), None), "an address that is given needs no sandbox"


@pytest.mark.parametrize("named", [None, ""])
def test_without_a_sandbox_the_usual_address_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_STATE_DIR", raising=False)
    if named is not None:
        monkeypatch.setenv("FAIRLEAD_STATE_DIR", named)
    assert place((), None) == ((URL,), None)
