"""The checks of `make static`: code, advisories, licenses and secrets. Each prints a line, and its findings.

    .venv/bin/python scripts/static_checks.py [code] [advisories] [licenses] [secrets]

A finding is either fixed or justified. In the code it is justified by ruff's `# noqa: S… (reason)`, whose numbers are
bandit's; otherwise in a table of this script. Exit code 1 = something was found.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".venv-tools/static/bin"
ADVISORIES = ROOT / "scripts/advisories.json"
PRODUCT = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve", "cluster/src", "scripts")
SERVICE_SECONDS = 10
"""Seconds to wait for the service of advisories. The vendored file is compared in any case."""

NOT_ASKED: Mapping[str, str] = {
    "B101": "internal invariants are checked with assert",
    "B311": "the randomness of routing is injected and is not cryptography",
    "B404": "starting processes is the sandbox's purpose",
    "B603": "starting processes is the sandbox's purpose",
    "B604": "a page's frame is called `shell` here; real shells are B602 and B605",
    "B607": "programs are found by PATH",
    "B106": "an empty string means that there is no token",
    "B403": "B301 judges each call of pickle, so the import is not reported",
}
"""Rules of bandit that are not checked, each with the reason. ruff's S rules are checked in addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a check looked at, in words, and its findings."""

    looked_at: str
    found: tuple[str, ...]


# Code


def check_code() -> Outcome:
    """Run bandit over the packages of the product."""
    command = [TOOLS / "bandit", "-q", "-r", *PRODUCT, "-s", ",".join(NOT_ASKED), "-f", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    found = [one for one in report["results"] if not is_reasoned(one, (ROOT / one["filename"]).read_text(encoding="utf-8"))]
    lines = report["metrics"]["_totals"]["loc"]
    reasoned = len(report["results"]) - len(found)
    words = f"bandit over {lines:,} lines; {reasoned} findings have a reason beside them, {len(NOT_ASKED)} rules are switched off"
    return Outcome(
        looked_at=words, found=tuple(f"{one['filename']}:{one['line_number']} {one['test_id']} {one['issue_text']}" for one in found)
    )


def is_reasoned(finding: Mapping[str, Any], source: str) -> bool:
    """Return whether a `noqa` with the rule's number is at the finding's lines, or applies to the whole file."""
    rule, lines = f"S{finding['test_id'][1:]}", source.split("\n")
    if re.search(rf"^# ruff: noqa: [^\n]*\b{rule}\b", source, re.MULTILINE):
        return True
    span = finding["line_range"]
    return any(re.search(rf"# noqa: [^\n]*\b{rule}\b", line) for line in lines[min(span) - 1 : max(span) + 1])


# Advisories


@cache
def locked() -> dict[str, str]:
    """Return the version of each locked package, except our own, by its normalised name."""
    document = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    return {one["name"]: one["version"] for one in document["package"] if "registry" in one["source"]}


def check_advisories() -> Outcome:
    """Compare the locked packages with the vendored file, and ask a service if one can be reached."""
    packages, vendored = locked(), json.loads(ADVISORIES.read_text(encoding="utf-8"))
    found = [
        f"{one['package']} {packages[one['package']]}: {', '.join([one['id'], *one['aliases']])}"
        for one in vendored["advisories"]
        if hits(one, packages)
    ]
    age = (datetime.now(UTC).date() - date.fromisoformat(vendored["as_of"])).days
    file = f"{len(packages)} locked packages with {len(vendored['advisories'])} vendored advisories, {age} days old"
    asked = ask_service(packages)
    if asked is None:
        return Outcome(looked_at=f"{file}; no advisory service was reachable, so newer advisories were not checked", found=tuple(found))
    return Outcome(looked_at=f"{file}, and with osv.dev as of now", found=(*found, *asked))


def hits(advisory: Mapping[str, Any], packages: Mapping[str, str]) -> bool:
    """Return whether an advisory applies to the locked version of its package."""
    try:
        version = Version(packages[advisory["package"]])
    except (KeyError, InvalidVersion):
        return False
    if str(version) in advisory["versions"]:
        return True
    return any(Version(low) <= version and (high is None or version < Version(high)) for low, high in advisory["ranges"])


def ask_service(packages: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the findings of pip-audit from osv.dev; None if it does not answer in time."""
    listed = "\n".join(f"{name}=={version}" for name, version in packages.items())
    command = [
        TOOLS / "pip-audit",
        "--vulnerability-service",
        "osv",
        "--no-deps",
        "--disable-pip",
        "--requirement",
        "/dev/stdin",
        "--format",
        "json",
    ]
    try:
        done = subprocess.run(
            [*command, "--timeout", "5"], input=listed, capture_output=True, text=True, timeout=SERVICE_SECONDS, check=False
        )
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return tuple(f"{one['name']} {one['version']}: {found['id']}" for one in report["dependencies"] for found in one.get("vulns", ()))


# Licenses

PERMITTED = re.compile(
    r"apache|\bbsd\b|\bmit\b|mit-cmu|\bisc\b|python software foundation|psf|0bsd|unlicense|zlib|mozilla public license 2|mpl-2\.0|cc0|hpnd|blueoak",
    re.IGNORECASE,
)
LICENSE_REASONS: Mapping[str, str] = {
    "psycopg": "LGPL-3.0: used as a library by import, unchanged",
    "psycopg-binary": "the same",
    "psycopg-pool": "the same",
    "pyzmq": "BSD; its wheel holds libzmq under MPL-2.0",
    "cel-python": "declares none; its wheel holds the text of Apache-2.0",
    "djlint": "GPL-3.0: lints templates where Fairlead is developed, and is in no image",
}
"""Packages without a permitted license, each with the reason why it may be used."""


def check_licenses() -> Outcome:
    """Check the license that each installed package declares."""
    installed = {normalised(one.metadata["Name"]): one for one in distributions() if one.metadata["Name"]}
    packages = {name: one for name, one in installed.items() if name in locked()}
    found = [f"{name}: {license_of(one) or 'no license declared'}" for name, one in packages.items() if not is_permitted(name, one)]
    return Outcome(
        looked_at=f"{len(packages)} installed packages declare a permitted license, {len(LICENSE_REASONS)} have a reason in this script",
        found=tuple(sorted(found)),
    )


def normalised(name: str) -> str:
    """Return a package's name in the form in which registries compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license_of(package: Distribution) -> str:
    """Return the license from a package's metadata: an expression, a classifier, or the first words of a text."""
    metadata = package.metadata
    classifiers = [one.rpartition("::")[2].strip() for one in metadata.get_all("Classifier") or () if one.startswith("License ::")]
    return " ".join(filter(None, [metadata.get("License-Expression"), *classifiers, (metadata.get("License") or "")[:80]]))


def is_permitted(name: str, package: Distribution) -> bool:
    """Return whether the package's license is permitted, or its use is justified."""
    return name in LICENSE_REASONS or bool(PERMITTED.search(license_of(package)))


# Secrets

SECRETS: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN (?:RSA |EC |OPENSSH |DSA |PGP |ENCRYPTED )?PRIVATE KEY(?: BLOCK)?-----"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}"),
    "a Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{34,}\b"),
    "a key of a model's API": re.compile(r"\bsk-(?:proj-|ant-)?[A-Za-z0-9_-]{40,}"),
    "a JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    "a PyPI token": re.compile(r"\bpypi-[A-Za-z0-9_-]{60,}"),
}
SECRET_REASONS: Mapping[str, str] = {}
"""Files with a text that looks like a secret, each with the reason why it is not a secret."""


def check_secrets() -> Outcome:
    """Check every file that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [name for name in listed if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    found = [
        f"{name}:{line} looks like {kind}"
        for name in files
        if name not in SECRET_REASONS
        for line, kind in secrets_in((ROOT / name).read_bytes())
    ]
    return Outcome(looked_at=f"{len(files):,} files for {len(SECRETS)} kinds of secrets", found=tuple(found))


def secrets_in(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that contain a secret, each with the kind of secret; nothing for a binary file."""
    if b"\0" in content[:8000]:
        return
    text = content.decode(errors="replace")
    for kind, pattern in SECRETS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, kind


CHECKS: Mapping[str, Callable[[], Outcome]] = {
    "code": check_code,
    "advisories": check_advisories,
    "licenses": check_licenses,
    "secrets": check_secrets,
}


def main(names: list[str]) -> int:
    """Run the named checks, or all, and return the exit code."""
    unknown = set(names) - set(CHECKS)
    if unknown:
        print(f"unknown check: {', '.join(sorted(unknown))}; write one of {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    is_clean = True
    for name in names or CHECKS:
        outcome = CHECKS[name]()
        is_clean = is_clean and not outcome.found
        print(f"{name}: {outcome.looked_at}: {len(outcome.found) or 'nothing'} found")
        for line in outcome.found:
            print(f"  {line}")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
