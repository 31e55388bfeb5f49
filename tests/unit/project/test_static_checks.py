"""Findings that `make static` reports, and findings that it leaves out."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import static_checks  # type: ignore[import-not-found]
import vendor_advisories  # type: ignore[import-not-found]

RANGES: dict[str, Any] = {"package": "x", "id": "PYSEC-1", "aliases": [], "versions": ["0.9"], "ranges": [["1.0", "1.4"], ["2.0", None]]}


@pytest.mark.parametrize(
    ("version", "hit"), [("0.9", True), ("0.8", False), ("1.0", True), ("1.3.9", True), ("1.4", False), ("1.10", False), ("2.1rc1", True)]
)
def test_an_advisory_is_about_the_versions_of_its_ranges(version: str, hit: bool) -> None:
    assert static_checks.hits(RANGES, {"x": version}) is hit
    assert not static_checks.hits(RANGES, {"y": version})


def test_ranges_are_read_from_events_and_lists_where_the_end_is_in_it() -> None:
    events = [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2"}]
    assert list(vendor_advisories.pairs(events)) == [("0", "1.2"), ("2", None)]
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "2"}]}]
    listed = {"id": "A", "affected": [{"package": {"name": "X"}, "versions": ["1", "2"], "ranges": ranges}]}
    (entry,) = vendor_advisories.read(listed)
    assert (entry["package"], entry["ranges"], entry["versions"]) == ("x", [], ["1", "2"])
    assert list(vendor_advisories.read({**listed, "withdrawn": "2024-01-01"})) == []


def test_the_vendored_file_says_where_it_is_from_and_of_when() -> None:
    text = static_checks.ADVISORIES.read_text(encoding="utf-8")
    document = static_checks.json.loads(text)
    assert document["source"] == vendor_advisories.SOURCE
    assert {"as_of", "commit", "license"} <= document.keys()
    assert {one["package"] for one in document["advisories"]} <= static_checks.locked().keys()


FAKES = {
    "a private key": "-----BEGIN " + "PRIVATE KEY-----",
    "an AWS key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "a GitHub token": "ghp_" + "a" * 36,
    "a Slack token": "xoxb-" + "1" * 24,
    "a Google key": "AIza" + "b" * 35,
    "a Hugging Face token": "hf_" + "c" * 34,
    "a key of a model's API": "sk-proj-" + "d" * 44,
    "a JSON web token": "eyJ" + "e" * 24 + ".eyJ" + "f" * 24 + "." + "g" * 24,
    "a PyPI token": "pypi-" + "h" * 64,
}


def test_each_kind_of_secret_is_found_at_its_line_and_not_in_binary_files() -> None:
    assert FAKES.keys() == static_checks.SECRETS.keys()
    for kind, text in FAKES.items():
        content = f"first\nkey = {text}\n".encode()
        assert list(static_checks.secrets_in(content)) == [(2, kind)]
        assert list(static_checks.secrets_in(b"\0" + content)) == []


@pytest.mark.parametrize(
    ("source", "reasoned"),
    [
        ("a\nb  # noqa: S608 (bound)\n", True),
        ("a\nb  # noqa: S105, S608\n", True),
        ("# ruff: noqa: S608 (constants)\na\nb\n", True),
        ("a\nb  # noqa: S105\n", False),
        ("a  # noqa: S608 (of another line)\nb\n\n", False),
    ],
)
def test_a_finding_is_reasoned_where_it_stands(source: str, reasoned: bool) -> None:
    assert static_checks.is_reasoned({"test_id": "B608", "line_range": [2]}, source) is reasoned


def test_no_license_that_is_not_permitted_passes_unreasoned() -> None:
    for text in ("Apache-2.0", "MIT License", "BSD-3-Clause", "Mozilla Public License 2.0 (MPL 2.0)"):
        assert static_checks.PERMITTED.search(text)
    for text in ("GPL-3.0-or-later", "AGPL-3.0", "Proprietary", ""):
        assert not static_checks.PERMITTED.search(text)
