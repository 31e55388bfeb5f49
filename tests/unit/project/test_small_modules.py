"""A module has two users, or 80 lines, or is a plug-in, so that a reader opens few files for one subject."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "serve", "sandbox")
HELD = {
    "fairlead": ("advice", "routing"),
    "fairlead_api": ("kinds", "routes", "tables"),
    "fairlead_operator": (),
    "fairlead_router": (),
    "fairlead_simulator": (),
    "fairlead_web": ("pages",),
}
"""Packages to which the rule applies, with the folders and modules that are exempt as plug-ins.

Plug-ins are pages, policies, kinds of plans, findings of advice, and a subject's routes and tables.
"""
LEAST_LINES = 80

MODULES = {
    ".".join(path.relative_to(ROOT / component).with_suffix("").parts): path
    for component in COMPONENTS
    for path in (ROOT / component).rglob("*.py")
    if path.name != "__init__.py" and "node_modules" not in path.parts
}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found & MODULES.keys()


@cache
def _users() -> dict[str, set[str]]:
    measuring = {str(path.relative_to(ROOT)): path for folder in ("benchmarks", "reproductions") for path in (ROOT / folder).rglob("*.py")}
    users = defaultdict(set)
    for name, path in (MODULES | measuring).items():
        for used in _imported(path):
            users[used].add(name)
    return users


def _starts_a_process(path: Path) -> bool:
    return path.name == "__main__.py" or 'if __name__ == "__main__":' in path.read_text()


@pytest.mark.parametrize("package", HELD)
def test_a_module_has_two_users_or_80_lines_or_is_a_plug_in(package: str) -> None:
    users = _users()
    small = {
        name: len(users[name])
        for name, path in MODULES.items()
        if name.startswith(f"{package}.")
        and name.count(".") > 1  # what stands in the package itself wires it
        and not {*name.split(".")} & {*HELD[package]}
        and len(users[name]) < 2
        and len(path.read_text().splitlines()) < LEAST_LINES
        and not _starts_a_process(path)
    }
    assert small == {}, "fold it into its user, or into a module of the same subject"
