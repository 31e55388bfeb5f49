"""ARCHITECTURE.md gives a reason for each library that Fairlead depends on directly, and for no other."""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "tests" / "tools"
WHOLE_LOCKS = ("docs.txt", "guidellm.txt", "static.txt", "vllm.txt")
"""Lock files made from the `.in` file beside them, including all indirect dependencies."""


def names(requirements: Iterable[str]) -> set[str]:
    return {found[0].lower() for line in requirements if (found := re.match(r"[A-Za-z][\w.-]*", line))}


def of_python() -> set[str]:
    documents = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in (".", "cluster")]
    lists: list[list[str]] = []
    for document in documents:
        project = document["project"]
        lists += [document["build-system"]["requires"], project["dependencies"], *project.get("optional-dependencies", {}).values()]
        lists += document.get("dependency-groups", {}).values()
    return {name for one in lists for name in names(one)} - {document["project"]["name"] for document in documents}


def of_the_tools() -> set[str]:
    lists = [path for path in (*TOOLS.glob("*.in"), *TOOLS.glob("*.txt")) if path.name not in WHOLE_LOCKS]
    manifests = [json.loads((folder / "package.json").read_text()) for folder in (ROOT / "webui", TOOLS / "identity_provider")]
    from_npm = {name for one in manifests for key in ("dependencies", "devDependencies") for name in one.get(key, ())}
    return {name for path in lists for name in names(path.read_text().splitlines())} | from_npm | {"uv"}


def vendored() -> set[str]:
    folders = (ROOT / "webui" / "fairlead_web" / "static" / "vendor", ROOT / "tests" / "e2e" / "web" / "vendor")
    return {path.stem.removeprefix("LICENSE-") for folder in folders for path in folder.glob("LICENSE-*.txt")}


def test_each_library_has_its_reason_once_and_no_other_has_one() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Dependencies, one line each")[1]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    told = [name.strip() for row in rows for name in row.split(",") if name.strip() not in {"Library", "---"}]
    assert sorted(told) == sorted(of_python() | of_the_tools() | vendored())
