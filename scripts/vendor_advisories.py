"""Writes scripts/advisories.json from a git repository of pypa/advisory-database (CC-BY-4.0), for locked packages.

    .venv/bin/python scripts/vendor_advisories.py <git directory>

It takes only facts from the database: identifiers, packages and versions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from static_checks import ADVISORIES, locked

SOURCE = "https://github.com/pypa/advisory-database"


def git(repository: str, *arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=True).stdout


def advisories(repository: str) -> Iterator[dict[str, Any]]:
    """Yield the advisories about locked packages that are not withdrawn."""
    names = locked()
    for path in git(repository, "ls-tree", "-r", "--name-only", "HEAD", "vulns/").splitlines():
        if path.split("/")[1] in names and path.endswith(".yaml"):
            yield from read(yaml.safe_load(git(repository, "show", f"HEAD:{path}")))


def read(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each package that an advisory names."""
    for affected in document.get("affected") or () if "withdrawn" not in document else ():
        ranges = [one for one in affected.get("ranges") or () if one["type"] == "ECOSYSTEM"]
        is_listed = not ranges or any("last_affected" in event for one in ranges for event in one["events"])
        yield {
            "id": document["id"],
            "aliases": document.get("aliases") or [],
            "package": affected["package"]["name"].lower(),
            "ranges": [] if is_listed else [pair for one in ranges for pair in pairs(one["events"])],
            "versions": affected.get("versions") or [] if is_listed else [],
        }


def pairs(events: list[Mapping[str, str]]) -> Iterator[tuple[str, str | None]]:
    """Yield the bounds of each range: its first version, and the first version after it; None = all newer versions."""
    low: str | None = None
    for event in events:
        if "introduced" in event:
            low = event["introduced"]
        elif "fixed" in event and low is not None:
            yield low, event["fixed"]
            low = None
    if low is not None:
        yield low, None


def main(repository: str) -> None:
    """Write the file."""
    as_of = git(repository, "log", "-1", "--format=%cs").strip()
    found = sorted(advisories(repository), key=lambda one: (one["package"], one["id"]))
    head = {"source": SOURCE, "license": "CC-BY-4.0", "commit": git(repository, "rev-parse", "HEAD").strip(), "as_of": as_of}
    lines = ",\n".join(f" {json.dumps(one)}" for one in found)
    ADVISORIES.write_text(json.dumps(head)[:-1] + ', "advisories": [\n' + lines + "\n]}\n", encoding="utf-8")
    print(f"{len(found)} advisories as of {as_of}")


if __name__ == "__main__":
    main(sys.argv[1])
