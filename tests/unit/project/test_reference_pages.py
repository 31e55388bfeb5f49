"""The generated reference pages agree with the code, and leave nothing out."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fairlead_cli.subcommands import SUBCOMMANDS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("script", ["generate_settings", "generate_metrics", "generate_cli", "generate_inferencepool"])
def test_a_page_is_what_the_code_says(script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is generated in this process, as another one would take four seconds to import every program."""
    path = str(ROOT / "scripts" / f"{script}.py")
    monkeypatch.setattr(sys, "argv", [path, "--check"])
    monkeypatch.syspath_prepend(ROOT / "scripts")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(path, run_name="__main__")
    assert ended.value.code == 0, capsys.readouterr().out


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command below `fairlead`, with its path."""
    waiting = [(name, subcommand.load()) for name, subcommand in SUBCOMMANDS.items()]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        if isinstance(command, click.Group):
            waiting += [(f"{path} {name}", inner) for name, inner in command.commands.items()]


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda one: one if isinstance(one, str) else "")
def test_a_command_and_each_of_its_options_say_what_they_are_for(path: str, command: click.Command) -> None:
    assert command.help
    silent = [one.name for one in command.params if isinstance(one, click.Option) and not one.hidden and not one.help]
    assert silent == []


def test_the_page_of_settings_names_each_command_that_takes_a_variable() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [{*line.split("`")} for line in page.splitlines() if line.startswith("| `FAIRLEAD_")]
    taken = [
        {one.envvar, one.opts[0], f"fairlead {path.split()[0]}"} for path, command in commands() for one in command.params if one.envvar
    ]
    assert {"FAIRLEAD_TOKEN", "--token", "fairlead keys"} in taken
    assert [words for words in taken if not any(words <= row for row in rows)] == []


def test_the_page_of_commands_names_each_of_them() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert [path for path, _ in commands() if f"\n## fairlead {path}\n" not in page] == []
