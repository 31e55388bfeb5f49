"""The parser of `fairlead` takes every command that a document, a page or a message shows."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fairlead_cli.kubectl.main import Plugin
from fairlead_cli.main import LazyGroup
from fairlead_cli.subcommands import SUBCOMMANDS

ROOT = Path(__file__).parents[3]
FILES = [ROOT / name for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()]
DOCUMENTS = [path for path in FILES if path.suffix == ".md" and "tests" not in path.parts]
PRODUCT = ("core", "controlplane", "operator", "router", "webui", "simulator", "sandbox", "serve", "cli", "host", "helm", "examples")
PROGRAMS: dict[str, click.Group] = {"fairlead": LazyGroup(SUBCOMMANDS), "kubectl fairlead": Plugin()}
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:kubectl )?fairlead [^`\n]+)`")
COMMAND = re.compile(r"^(?:[\w.]+=\S* +)*((?:kubectl )?fairlead(?: .*)?)$")
"""A command of `fairlead`, after any variables that are set for it."""
ENDS = ("&", "|", ">", "&&", ";", "2>", "||", "<")
PLACEHOLDER = re.compile(r"\[.*\]|…|\.\.\.|[A-Z][A-Z_|/=.\[\]]*|<.*>|\$.*|\{.*")


def commands_of(document: Path) -> Iterator[tuple[str, bool]]:
    """Yield the commands in a document, each with whether it is complete; in prose, arguments may be missing."""
    text = document.read_text(encoding="utf-8")
    for block in BLOCK.findall(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if found := COMMAND.match(re.sub(r"^[$#] ", "", line.strip())):
                yield found[1], True
    for found in INLINE.findall(BLOCK.sub("", text)):
        if "[OPTIONS]" not in found:  # else it is the usage that click writes
            yield found, False


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def words_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)
    ends = [place for place, word in enumerate(words) if word in ENDS or word.startswith((">", "2>"))]
    return words[: min(ends, default=len(words))]


def fault_of(command: str, *, whole: bool) -> str | None:
    """Return the reason for which the parser refuses a command; None if it takes it."""
    words = words_of(command)
    program = "kubectl fairlead" if words[0] == "kubectl" else "fairlead"
    here: click.Command = PROGRAMS[program]
    context = click.Context(here, info_name=program, resilient_parsing=True)
    rest = words[len(program.split()) :]
    while isinstance(here, click.Group) and rest and not rest[0].startswith("-"):
        if PLACEHOLDER.fullmatch(rest[0]) or "|" in rest[0] or "/" in rest[0]:
            return None
        found = here.get_command(context, rest[0])
        if found is None:
            return f"no command {rest[0]!r} of `{context.command_path}`"
        here, rest = found, rest[1:]
        context = click.Context(here, info_name=found.name, parent=context)
    return _fault(here, context, rest, whole=whole)


def one_by_one(values: object) -> list[str]:
    """Return the words, with one word for each alternative of `a|b`."""
    words = values if isinstance(values, list | tuple) else [values]
    return [one for word in words if isinstance(word, str) for one in (word.split("|") if re.fullmatch(r"[a-z|-]+", word) else [word])]


def _fault(here: click.Command, context: click.Context, rest: list[str], *, whole: bool) -> str | None:
    try:
        given, left, _ = here.make_parser(context).parse_args(list(rest))
    except click.MissingParameter as problem:
        return problem.format_message() if whole else None
    except click.BadOptionUsage as problem:
        return problem.format_message() if whole else None
    except click.UsageError as problem:
        return problem.format_message()
    if left and not isinstance(here, click.Group):
        return f"{left} are too many"
    for param in here.params:
        values = given.get(param.name or "")
        for value in one_by_one(values):
            if not PLACEHOLDER.fullmatch(value) and not isinstance(param.type, click.Path | click.File):
                try:
                    param.type_cast_value(context, (value,) if param.multiple or param.nargs != 1 else value)
                except click.BadParameter as problem:
                    return problem.format_message()
        if whole and param.required and not one_by_one(values):
            return f"{param.name} is missing"
    return None


FOUND = [(name_of(document), command, whole) for document in DOCUMENTS for command, whole in dict.fromkeys(commands_of(document))]


def test_commands_are_found() -> None:
    shown = {command for _, command, whole in FOUND if whole}
    assert len(FOUND) > 150 and len(shown) > 50
    assert any(command.startswith("kubectl fairlead status") for command in shown)


@pytest.mark.parametrize("name", [name_of(document) for document in DOCUMENTS])
def test_a_documents_commands_are_those_of_the_parser(name: str) -> None:
    faults = {command: fault_of(command, whole=whole) for document, command, whole in FOUND if document == name}
    assert {command: fault for command, fault in faults.items() if fault} == {}


@pytest.mark.parametrize("folder", PRODUCT)
def test_a_command_in_a_message_a_page_or_an_example_is_one_of_the_parser(folder: str) -> None:
    """Commands in backticks, as in remedies; an f-string's expressions stand for values."""
    files = [path for path in FILES if path.relative_to(ROOT).parts[0] == folder and path.suffix in {".py", ".html", ".yaml", ".txt"}]
    shown = {command for path in files for command in INLINE.findall(path.read_text(encoding="utf-8"))}
    faults = {command: fault_of(command, whole=False) for command in shown}
    assert {command: fault for command, fault in faults.items() if fault} == {}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("fairlead pools shew chat", "no command 'shew'"),
        ("fairlead pools list --watched", "No such option"),
        ("fairlead up --routers 9", "9 is not in the range"),
        ("fairlead change scale chat", "is missing"),
        ("fairlead pools list chat extra", "extra"),
        ("kubectl fairlead up", "no command 'up'"),
        ("fairlead replay --url http://h:99999 --generate conversation", None),
        ("fairlead pools list --url http://h:99999 | head", "cannot be used"),
    ],
)
def test_a_command_that_is_none_is_found(command: str, told: str | None) -> None:
    fault = fault_of(command, whole=True)
    assert fault is None if told is None else told in (fault or "")
