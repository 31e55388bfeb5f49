"""`make test` skips a lane while no file below it changed, so all modules that its tests import must be below it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SOURCES = (
    "core",
    "controlplane",
    "operator",
    "router",
    "simulator",
    "webui",
    "cli",
    "host",
    "sandbox",
    "serve",
    "cluster/src",
    "tests/support",
    ".",
)
"""Folders from which packages are imported; the last one has the packages `benchmarks` and `reproductions`."""


def lanes() -> dict[str, list[Path]]:
    """Return, for each resting lane, the folders and files whose change makes it run again."""
    simulated = next(iter(re.findall(r"^SIMULATED := (.*)$", MAKEFILE, re.MULTILINE)))
    rules = re.findall(r"^\$\(PASSED\)(\w+): \$\(call files,(.*)\) ?(.*)\|", MAKEFILE, re.MULTILINE)
    return {name: [ROOT / one for one in f"{folders} {files}".replace("$(SIMULATED)", simulated).split()] for name, folders, files in rules}


def files_of(lane: str) -> list[Path]:
    """Return the Python files of a lane's tests."""
    (command,) = re.findall(rf"^{lane}: .*?\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    folders = re.findall(r" ((?:cluster/)?tests\S*)", command)
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


@cache
def imported(path: Path) -> frozenset[Path]:
    """Return the files of this repository that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return frozenset(file for name in names for file in [file_of(name)] if file is not None)


@cache
def file_of(name: str) -> Path | None:
    """Return the file of a module of this repository; None for any other name."""
    places = [ROOT / source / Path(*name.split(".")) for source in SOURCES]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


@pytest.mark.parametrize("lane", lanes())
def test_a_lane_runs_again_when_anything_that_its_tests_import_changed(lane: str) -> None:
    below, seen, waiting = lanes()[lane], set[Path](), files_of(lane)
    assert waiting
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += imported(path)
    unseen = {str(path.relative_to(ROOT)) for path in seen if not any(path.is_relative_to(one) for one in below)}
    assert unseen == set(), "the Makefile's rule of this lane does not name them"
