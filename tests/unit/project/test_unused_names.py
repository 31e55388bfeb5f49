"""Every function, class and constant of the product is used in the product."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
PACKAGES = ("core/", "controlplane/", "operator/", "router/", "webui/", "simulator/", "sandbox/", "serve/", "cli/", "host/", "cluster/src/")
USERS = (*PACKAGES, "benchmarks/", "reproductions/", "migrations/", "scripts/", "helm/", "examples/", "pyproject.toml")
PLAIN = re.compile(r" *@(property|cache|cached_property|staticmethod|classmethod|override|dataclass|(async)?contextmanager|final)\b")
DEFINED = re.compile(r" *(?:(?:async )?def|class) (\w+)|([A-Z_][A-Z_0-9]*)(?:: [^=\n]+)? = ")
CALLED_BY_OTHERS = {"format_commands", "format_epilog", "handle_exit", "preprocess", "ignore_aliases"}
"""Methods that override a method of another package's class."""
FOR_CHECKS = {"filter_names", "global_names", "backfill"}
"""Functions that the template rules call on the renderer, and functions for future migrations of rows."""


def words(path: str) -> list[str]:
    return re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8", errors="ignore"))


def defined_in(source: str) -> Iterator[str]:
    """Yield the names that a module defines, except those that a decorator registers, as commands and routes."""
    handed_on = False
    for line in source.splitlines():
        if found := DEFINED.match(line):
            name = found[1] or found[2]
            if not handed_on and not name.startswith("__"):
                yield name
        handed_on = (line.lstrip().startswith("@") and not PLAIN.match(line)) or line.strip() == ")"


def definitions() -> Iterator[tuple[str, str]]:
    for path in FILES:
        if path.startswith(PACKAGES) and path.endswith(".py") and "/testing/" not in path:
            yield from ((path, name) for name in defined_in((ROOT / path).read_text(encoding="utf-8")))


def test_what_is_defined_is_used() -> None:
    used = Counter(
        word
        for path in FILES
        if path.startswith(USERS) and path.endswith((".py", ".html", ".toml", ".yaml", ".txt"))
        for word in words(path)
    )
    defined = list(definitions())
    assert len(defined) > 5_000
    kept = CALLED_BY_OTHERS | FOR_CHECKS
    assert [(path, name) for path, name in defined if used[name] == 1 and name not in kept] == []
    assert {name for name in kept if used[name] != 1} == set(), "these need no exception"


def test_a_definition_is_found_unless_a_decorator_hands_it_on() -> None:
    plain = "A = 1\nB: int = 2\ndef c(): ...\n@cache\ndef d(): ...\nclass E:\n    async def f(self): ...\n"
    handed_on = "@group.command(\n    1\n)\ndef g(): ...\n@routes.get\ndef h(): ...\n"
    assert list(defined_in(plain + handed_on)) == ["A", "B", "c", "d", "E", "f"]
