"""No test asserts that an action takes less than a number of seconds, as on a busy machine it takes more.

A test may wait until a generous deadline, and may assert a least duration. Work is counted (`fairlead_testing.steps`),
and time is virtual (`fairlead_testing.worlds.virtual_time`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LANES = ("tests/unit", "tests/contract", "tests/integration", "tests/e2e", "tests/chaos", "tests/simulation", "cluster/tests")
STOPWATCHES = {"monotonic", "perf_counter", "process_time", "thread_time"}
DEADLINES = {"deadline", "end"}
"""Names of the moment at which a test stops waiting."""


def _reads(node: ast.AST, names: set[str]) -> bool:
    """Return whether the expression contains a stopwatch, or a name that was set by one."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in STOPWATCHES) or (isinstance(part, ast.Name) and part.id in (names | STOPWATCHES))
        for part in ast.walk(node)
    )


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _measured(function: ast.AST) -> set[str]:
    """Return the names that hold a moment or a duration of a stopwatch."""
    found = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target, value in _pairs(node.targets[0], node.value):
                if isinstance(target, ast.Name) and _reads(value, found):
                    found.add(target.id)
    return found - DEADLINES


def claims(source: str) -> Iterator[int]:
    """Yield the lines that assert that a duration is short."""
    if not any(name in source for name in STOPWATCHES):
        return
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        measured = _measured(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
                terms = [node.test.left, *node.test.comparators]
                for left, order, right in zip(terms, node.test.ops, terms[1:], strict=False):
                    if not isinstance(order, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                        continue
                    small, large = (left, right) if isinstance(order, ast.Lt | ast.LtE) else (right, left)
                    if _reads(small, measured) and not _reads(large, measured | DEADLINES):
                        yield node.lineno


@pytest.mark.parametrize(
    "claim",
    [
        "begun = time.process_time(); work(); assert time.process_time() - begun < 0.2",
        "begun = monotonic(); work(); took = monotonic() - begun; assert took <= 15",
        "since = time.perf_counter(); assert 15 > time.perf_counter() - since",
        "since = time.monotonic(); assert 1 < time.monotonic() - since < 2",
    ],
)
def test_a_claim_of_a_short_time_is_found(claim: str) -> None:
    assert list(claims(f"def test():\n    {claim}")) == [2]


@pytest.mark.parametrize(
    "claim",
    [
        "deadline = time.monotonic() + PATIENCE_SECONDS; assert time.monotonic() < deadline",
        "begun = time.monotonic(); assert time.monotonic() - begun >= 0.1",
        "begun = time.monotonic(); assert requests < 5 * (time.monotonic() - begun)",
        "assert waited < 5",
    ],
)
def test_patience_a_least_time_and_a_rate_are_none(claim: str) -> None:
    assert list(claims(f"def test():\n    {claim}")) == []


def test_no_test_claims_that_something_takes_less_than_so_many_seconds() -> None:
    found = {
        f"{path.relative_to(ROOT)}": lines
        for lane in LANES
        for path in sorted((ROOT / lane).rglob("*.py"))
        if path != Path(__file__) and (lines := list(claims(path.read_text(encoding="utf-8"))))
    }
    assert not found, f"{found} claim a time: count the work, use virtual time, or wait for what must come"
