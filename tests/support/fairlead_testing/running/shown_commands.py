"""The commands of a document, run as a reader types them: in their order, in one shell, in the folder of a checkout.

None is left out without a word: whatever a test did before or cannot do here has a stand-in, and a stand-in that
stands for none of the document's commands is an error.
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
"""A stand-in for what a test's fixture has done."""
READERS_HAVE = ("curl", "helm", "kubectl")
"""Programs that the documents may use though `make test` does not install them."""
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_MARK = "@@ended"


@dataclass(frozen=True, slots=True)
class Ran:
    """One command, its exit code, and all that it printed."""

    command: str
    code: int
    said: str


def commands_of(document: str) -> list[str]:
    """The commands of its `console` blocks, each with the lines that continue it and without what it prints."""
    found: list[str] = []
    for line in "\n".join(_BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))).splitlines():
        if line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif found and found[-1].endswith("\\"):
            found[-1] += "\n" + line
    return found


def checkout(folder: Path, **links: Path) -> Path:
    """A folder that looks like a checkout with its environment; `links` are further names in it."""
    folder.mkdir(parents=True)
    environment = Path(sys.executable).parents[1]
    for name, target in {"examples": ROOT / "examples", "helm": ROOT / "helm", ".venv": environment, **links}.items():
        (folder / name).symlink_to(target)
    return folder


def run_commands(
    document: str, folder: Path, stand_ins: Mapping[str, str], replaced: Mapping[str, str], *programs: Path, **variables: str
) -> list[Ran]:
    """Run them in one shell. `stand_ins` are run in the place of commands that begin so; `replaced` are addresses, and
    `programs` folders before all others of PATH. Skips the test where this machine lacks a program that readers have.
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
    """Those that did not end with 0."""
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
