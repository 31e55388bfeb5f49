"""Runs the commands of a document as a reader types them: in their order, in one shell, in the folder of a checkout.

No command is skipped silently. A command that a test did before or cannot run has a stand-in, and a stand-in that
matches no command of the document is an error.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead_testing.running.sandbox import ROOT
from fairlead_testing.waiting import PATIENCE_SECONDS

DONE = "true"
"""The stand-in for a command whose effect a test's fixture has had already."""
READERS_HAVE = ("curl", "helm", "kubectl")
"""Programs that the documents may use though `make test` does not install them."""
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MARK = "@@ended"


@dataclass(frozen=True, slots=True)
class Ran:
    """A command, its exit code, and all its output."""

    command: str
    code: int
    said: str


def commands_of(document: str) -> list[str]:
    """Return the commands of a document's `console` blocks, with their continuation lines and without their output."""
    found: list[str] = []
    for line in "\n".join(_BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))).splitlines():
        if line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif found and found[-1].endswith("\\"):
            found[-1] += "\n" + line
    return found


def checkout(folder: Path, **links: Path) -> Path:
    """Return a folder that looks like a checkout with its environment; `links` are further links in it, by name."""
    folder.mkdir(parents=True)
    environment = Path(sys.executable).parents[1]
    for name, target in {"examples": ROOT / "examples", "helm": ROOT / "helm", ".venv": environment, **links}.items():
        (folder / name).symlink_to(target)
    return folder


def run_commands(
    document: str, folder: Path, stand_ins: Mapping[str, str], replaced: Mapping[str, str], *programs: Path, **variables: str
) -> list[Ran]:
    """Run the document's commands in one shell, and return each with its result.

    `stand_ins` has the commands to run instead of commands that begin with its keys. `replaced` has replacements for
    addresses. The folders `programs` come first in PATH. Skips the test if this machine lacks a program that readers
    have.
    """
    commands = commands_of(document)
    assert commands, f"{document} has no command"
    for shown in stand_ins:
        assert any(one.startswith(shown) for one in commands), f"{document} does not show {shown!r} any more"
    typed = [_typed(one, stand_ins, replaced) for one in commands]
    script = "\n".join(f"{one}\nprintf '\\n{_MARK} %d\\n' $?" for one in typed)
    path = ":".join(map(str, (*programs, Path(sys.executable).parent, os.environ["PATH"])))
    for program in READERS_HAVE:
        if any(one.startswith(f"{program} ") for one in typed) and not shutil.which(program, path=path):
            pytest.skip(f"{program} is not on PATH")
    environment = {**os.environ, "PATH": path, "COLUMNS": "200", **variables}
    ended = subprocess.run(
        ["bash", "-c", f"{script}\nkill $(jobs -p) 2>/dev/null; true"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=10 * PATIENCE_SECONDS,
        check=False,
    )
    return _read(commands, ended.stdout)


def failures(ran: list[Ran]) -> list[Ran]:
    """Return the commands that did not exit with 0."""
    return [one for one in ran if one.code]


def _typed(command: str, stand_ins: Mapping[str, str], replaced: Mapping[str, str]) -> str:
    typed = next((instead for shown, instead in stand_ins.items() if command.startswith(shown)), command)
    for address, instead in replaced.items():
        typed = typed.replace(address, instead)
    return typed


def _read(commands: list[str], output: str) -> list[Ran]:
    parts = re.split(rf"\n{_MARK} (\d+)\n", output)
    assert len(parts) == 2 * len(commands) + 1, output[-3000:]
    return [Ran(command, int(code), said) for command, said, code in zip(commands, parts[::2], parts[1::2], strict=False)]
