"""Builds the site: `python -m docs.site.build [--out FOLDER] [--release NAME=FOLDER …]`.

Each version has a folder of its own in the site: this checkout under its version, and a checkout of each release that
`--release` names. A warning of the generator or a dead link is an error: exit code 1.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from docs.site.checking import faults_of
from docs.site.staging import stage

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "docs" / "site"
REDIRECT = '<!doctype html><meta charset="utf-8"><title>Fairlead</title><meta http-equiv="refresh" content="0; url={version}/index.html">\n'


def main(arguments: Sequence[str] | None = None) -> int:
    """Build every requested version, and return the exit code."""
    options = _options(arguments)
    versions = {_version(ROOT): ROOT, **dict(_release(one) for one in options.release)}
    if not all(_built(root, version, options.out / version) for version, root in versions.items()):
        return 1
    _join(options.out, list(versions))
    faults = faults_of(options.out)
    print("\n".join(faults) or f"{sum(1 for _ in options.out.rglob('*.html'))} pages, no dead link: {options.out / 'index.html'}")
    return 1 if faults else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m docs.site.build", description="Builds the documents as a site.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "site", help="the site's folder, by default dist/site")
    parser.add_argument("--release", action="append", default=[], metavar="NAME=FOLDER", help="an older version, and a checkout of it")
    return parser.parse_args(arguments)


def _release(given: str) -> tuple[str, Path]:
    name, _, folder = given.partition("=")
    if not name or not (Path(folder) / "docs" / "README.md").is_file():
        raise SystemExit(f"--release {given}: write NAME=FOLDER, with a checkout of that release in FOLDER")
    return name, Path(folder)


def _version(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def _built(root: Path, version: str, out: Path) -> bool:
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "sources"
        stage(root, sources)
        strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--fresh-env", "-d", str(Path(folder) / "doctrees")]
        defined = ["-D", f"version={version}", "-D", f"release={version}"]
        command = [sys.executable, "-m", "sphinx", *strict, *defined, "-c", str(HERE), str(sources), str(out)]
        return subprocess.run(command, check=False).returncode == 0


def _join(out: Path, versions: list[str]) -> None:
    """Write the files that all versions share: the list of versions, which every page shows, and the start page."""
    (out / "versions.js").write_text(f"window.fairleadVersions = {json.dumps(versions)};\n", encoding="utf-8")
    (out / "index.html").write_text(REDIRECT.format(version=versions[0]), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
