"""Counts into how many parts the code is divided: modules, modules with a single user, and the imports of wiring
points.

`scripts/count_house.py` prints a row per package, then the number of modules that each wiring point imports. A user of
a module is another module of the product that imports it; tests do not count. A module that nobody imports is an entry
point or is loaded by name, and does not count as a module with a single user. Lines are those of the file.
"""

import argparse
import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = 60
"""Number of lines below which a module counts as small."""
WIRING = ("fairlead_api.app", "fairlead_router.main", "fairlead_web.app", "fairlead_operator.main", "fairlead.routing.scheduling.state")
"""Modules that join the parts of a component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module of the product."""

    name: str
    lines: int
    imports: frozenset[str]


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="only these packages, such as fairlead_api (default: all of the wheel)")
    parser.add_argument("--small", type=int, default=SMALL, help="lines below which a module is small (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="also name each small module with a single user, and its user")
    options = parser.parse_args()
    modules = read_modules(package_folders())
    users = users_of(modules)
    chosen = options.packages or sorted({name.partition(".")[0] for name in modules})
    print(f"{'package':22}{'modules':>9}{'lines':>9}{'one user':>10}{f'< {options.small} lines':>12}")
    for package in [*chosen, *(["all"] if len(chosen) > 1 else [])]:
        within = [one for one in modules.values() if package == "all" or one.name.partition(".")[0] == package]
        single = [one for one in within if len(users[one.name]) == 1]
        small = [one for one in single if one.lines < options.small]
        share = f"{len(single)} ({len(single) / max(1, len(within)):.0%})"
        print(f"{package:22}{len(within):>9}{sum(one.lines for one in within):>9}{share:>10}{len(small):>12}")
        if options.list and package != "all":
            for one in sorted(small, key=lambda one: one.name):
                print(f"    {one.name} ({one.lines}), used by {next(iter(users[one.name]))}")
    print("\nfan-out of wiring points (modules of the product that they import)")
    for name in WIRING:
        if name in modules and name.partition(".")[0] in chosen:
            print(f"{name:40}{len(modules[name].imports):>6}")


def package_folders() -> list[Path]:
    """Return the folders of the packages that the wheels of this repository contain."""
    folders: list[Path] = []
    for project in sorted([ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml")]):
        wheel = tomllib.loads(project.read_text(encoding="utf-8")).get("tool", {}).get("hatch", {}).get("build", {}).get("targets", {})
        folders += [project.parent / package for package in wheel.get("wheel", {}).get("packages", ())]
    return folders


def read_modules(folders: Iterable[Path]) -> dict[str, Module]:
    """Return every module by name; the `__init__.py` of a package counts as a module."""
    trees: dict[str, tuple[ast.Module, int]] = {}
    for folder in folders:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            text = path.read_text(encoding="utf-8")
            trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(text), len(text.splitlines())
    return {
        name: Module(name=name, lines=lines, imports=frozenset(imported(tree, trees) - {name})) for name, (tree, lines) in trees.items()
    }


def imported(tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """Return the names of the known modules that a module imports anywhere in its text."""
    return {name for node in ast.walk(tree) for name in _names(node, known)}


def users_of(modules: Mapping[str, Module]) -> Mapping[str, set[str]]:
    """Return, for each module, the modules that import it."""
    users: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for name in module.imports:
            users[name].add(module.name)
    return users


def _names(node: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name in known)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            for alias in names:
                member = f"{module}.{alias.name}"
                if member in known:
                    yield member
                elif module in known:
                    yield module


if __name__ == "__main__":
    main()
