"""A default that a document writes beside a setting's or a field's name is the one of the code.

As in "`FAIRLEAD_KEEP_COST_DAYS` (400 days)", "kept 400 days (`FAIRLEAD_KEEP_COST_DAYS`)" and "`holdFor` (2 minutes)".
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.routing.policies.catalogue import BUILT_IN

ROOT = Path(__file__).parents[3]
FILES = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines()
DOCUMENTS = [name for name in FILES if "/decisions/" not in name]
UNITS = {
    **dict.fromkeys(("s", "second", "seconds"), 1),
    **dict.fromkeys(("ms", "milliseconds"), 0.001),
    **dict.fromkeys(("m", "minute", "minutes", "min"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("day", "days"), 86400),
    **dict(zip(("%", "", "KiB", "MiB", "GiB"), (0.01, 1, 1024, 1024**2, 1024**3), strict=True)),
}
WORDS = {word: number for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)}
QUANTITY = re.compile(rf"(?:(\d[\d,]*(?:\.\d+)?)|\b({'|'.join(WORDS)}|a|an)\b) ?({'|'.join(filter(None, UNITS))})?(?![\w.%])")


AFTER = re.compile(rf"(?: [a-z]+){{0,2}} \(({QUANTITY.pattern})[);,]|, ({QUANTITY.pattern}) by default")
WITHIN = re.compile(rf", ({QUANTITY.pattern})\)")
BEFORE = re.compile(rf"({QUANTITY.pattern})(?: by default)? \($")


@cache
def settings() -> dict[str, float]:
    """Return the default of each variable that is a number, from the generated page; in seconds if its unit is a
    time.
    """
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    found = {}
    for name, default in re.findall(r"^\| `(FAIRLEAD_\w+)` \| [^|]* \| `(\d+(?:\.\d+)?)`[^|]*\|", page, re.MULTILINE):
        found[name] = float(default) * (86400 if name.endswith("_DAYS") else 1)
    return found


@cache
def parameters() -> dict[str, float]:
    """Return the default of each parameter of the default policy that is a number."""
    facts = BUILT_IN.parameters("fairlead")
    return {name: one.default for name, one in facts.items() if isinstance(one.default, int | float) and not isinstance(one.default, bool)}


@cache
def fields() -> dict[str, float]:
    """Return the default of each field of a pool that is a quantity; for fields with one name, only if they agree."""
    schema = yaml.safe_load((ROOT / "crds" / "inferencepools.fairlead.dev.yaml").read_text(encoding="utf-8"))
    spec = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found: dict[str, set[float]] = {}
    _walk(spec, "", found)
    return {name: values.copy().pop() for name, values in found.items() if len(values) == 1}


def _walk(schema: dict[str, Any], path: str, found: dict[str, set[float]]) -> None:
    for name, field in schema.get("properties", {}).items():
        whole = f"{path}.{name}".lstrip(".")
        if (value := value_of(str(field.get("default", "")))) is not None:
            parts = whole.split(".")
            for start in range(len(parts)):
                found.setdefault(".".join(parts[start:]), set()).add(value)
        _walk(field, whole, found)
        _walk(field.get("items", {}), whole, found)


def value_of(text: str) -> float | None:
    """Return a quantity in seconds, bytes or as a plain number; None if the text is none."""
    found = QUANTITY.fullmatch(text)
    if found is None:
        return None
    number = float(found[1].replace(",", "")) if found[1] else WORDS.get(found[2], 1)
    return number * UNITS[found[3] or ""]


def said_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield names in backticks, each with the quantity in brackets after it, beside it there, or before its
    brackets.
    """
    text = re.sub(r"\s+", " ", text)
    for found in re.finditer(r"`(?:spec\.)?([\w.\[\]]+)`(?: of the API)?", text):
        name, before, after = (
            found[1].replace("[]", ""),
            text[max(0, found.start() - 40) : found.start()],
            text[found.end() : found.end() + 40],
        )
        beside = None if before.endswith(" + ") else (WITHIN if before.endswith("(") else AFTER).match(after)
        if beside:
            yield name, next(said for said in beside.groups() if said)
        elif (earlier := BEFORE.search(before)) and after.startswith(")"):
            yield name, earlier[1]


def faults(text: str) -> list[str]:
    known = {**fields(), **settings(), **parameters()}
    return [
        f"{name}: {said}, not {known[name]:g}" for name, said in said_of(text) if name in known and abs(_number(said) - known[name]) > 1e-9
    ]


def _number(said: str) -> float:
    value = value_of(said)
    assert value is not None
    return value


def test_defaults_are_found() -> None:
    known = {**fields(), **settings(), **parameters()}
    said = [name for page in DOCUMENTS for name, _ in said_of((ROOT / page).read_text(encoding="utf-8")) if name in known]
    assert len(said) > 20


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_default_in_a_document_is_that_of_the_code(name: str) -> None:
    assert faults((ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("for 400 days (`FAIRLEAD_KEEP_COST_DAYS`)", False),
        ("for 300 days (`FAIRLEAD_KEEP_COST_DAYS`)", True),
        ("a sample (`FAIRLEAD_DECISION_SAMPLE_RATE`, 5 %)", False),
        ("a sample (`FAIRLEAD_DECISION_SAMPLE_RATE`, 50 %)", True),
        ("every ten seconds (`FAIRLEAD_OPERATOR_RESYNC_SECONDS`)", False),
        ("at most `spec.scaling.zero.holdFor` (3 minutes)", True),
        ("the answer of `spec.routing.handOverAfter` (5 s)", False),
        ("in `FAIRLEAD_KEPT_PROMPTS_BYTES` (32 MiB)", True),
        ("up to `FAIRLEAD_MAX_RETRIES` times (3)", True),
        ("on 1 + `FAIRLEAD_MAX_RETRIES` (3) instances", False),
        ("wait until `queue_timeout_seconds` (60 s) and", False),
        ("wait until `queue_timeout_seconds` (6 s) and", True),
    ],
)
def test_a_wrong_default_is_found(text: str, *, wrong: bool) -> None:
    assert bool(faults(text)) is wrong
