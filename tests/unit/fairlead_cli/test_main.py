"""The command line: quick, complete, and never a traceback."""

import io
import subprocess
import sys

import click
import pytest

from fairlead.errors import InvalidInput
from fairlead_cli import main as command_line
from fairlead_cli.subcommands import SUBCOMMANDS


def replace_up(monkeypatch: pytest.MonkeyPatch, problem: BaseException) -> None:
    def broken() -> None:
        raise problem

    monkeypatch.setattr(command_line, "_load", lambda name, command: click.Command(name=name, callback=broken))


@pytest.mark.parametrize(
    ("problem", "code", "line"),
    [
        (InvalidInput("spec.replicas", -1, "write 0 or more"), 2, "fairlead: spec.replicas: -1 cannot be used; write 0 or more\n"),
        (FileNotFoundError(2, "No such file or directory", "trace.jsonl"), 1, "fairlead: trace.jsonl: No such file or directory\n"),
        (ConnectionRefusedError("connection refused"), 1, "fairlead: connection refused\n"),
        (ZeroDivisionError("division\nby zero"), 1, "fairlead: ZeroDivisionError: division by zero (set FAIRLEAD_DEBUG=1 to see where)\n"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1_or_2_where_an_input_is_wrong(
    problem: Exception, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_up(monkeypatch, problem)
    assert command_line.run(["up"]) == code
    assert capsys.readouterr().err == line


def test_ctrl_c_is_exit_code_130_and_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    replace_up(monkeypatch, KeyboardInterrupt())
    assert command_line.run(["up"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_question_that_nobody_is_there_to_answer_is_a_failure_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "_load", lambda name, command: click.Command(name=name, callback=lambda: click.confirm("Apply?")))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert command_line.run(["up"]) == 1
    assert "nothing was changed; pass --yes" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["bogus"], ["up", "--routers", "0"], ["up", "--no-such-option"], ["logs", "a", "b"]])
def test_a_wrong_command_line_is_exit_code_2_and_one_line_with_what_to_do(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairlead: ") and error.count("\n") == 1
    assert "; see `fairlead" in error or "; write" in error


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "output", "error"),
    [
        (">&-", "--version", 0, "", ""),
        (">&-", "bogus", 2, "", "fairlead: No such command 'bogus'; see `fairlead --help`\n"),
        ("2>&-", "bogus", 2, "", ""),
        ("<&- >&- 2>&-", "bogus", 2, "", ""),
    ],
)
def test_a_standard_stream_that_is_closed_is_as_if_nobody_read_it(closed: str, arguments: str, code: int, output: str, error: str) -> None:
    shell = f'exec "$0" -m fairlead_cli.main {arguments} {closed}'
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(["/bin/sh", "-c", shell, sys.executable], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, output, error)


def test_a_subcommand_whose_packages_are_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fairlead_sandbox.commands", None)
    assert command_line.run(["up"]) == 1
    assert "`fairlead up` is not completely installed" in (error := capsys.readouterr().err)
    assert "install fairlead[sandbox]" in error


def test_the_help_lists_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["--help"]) == 0
    output = capsys.readouterr().out
    assert all(f"  {name} " in output for name in SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_can_be_imported_and_says_how_it_is_used(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run([name, "--help"]) == 0
    assert f"Usage: fairlead {name}" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom fairlead_cli.main import run\nrun(['--help'])\n"
        "heavy = {'aiohttp', 'fastapi', 'httpx', 'kopf', 'kubernetes', 'numpy', 'psycopg', 'rich', 'sqlalchemy', 'uvicorn', 'yaml'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
