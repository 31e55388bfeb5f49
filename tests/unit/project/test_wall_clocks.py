"""Wall clocks are read only in listed places.

Elsewhere a decision would depend on the difference of two times between which the clock may be set.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPONENTS = ("core", "controlplane", "operator", "router", "simulator", "webui", "cli", "host", "sandbox", "serve")
WALL = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
NAMED = {
    "core/fairlead_process/clock.py": "makes the clocks that all others use",
    "controlplane/fairlead_api/upkeep/jobs.py": "APScheduler runs jobs by the wall clock, so it is watched for being set back",
    "cli/fairlead_cli/keys.py": "the date until which a person wants a key",
    "cli/fairlead_cli/tokens.py": "whether a date that the API wrote is over, in words for a person",
    "simulator/fairlead_simulator/engine_server/served_instance.py": "what engines say in `created`",
    "simulator/fairlead_simulator/engine_server/kv_events.py": "the times of batches, as vLLM writes them",
    "simulator/fairlead_simulator/engine_server/command.py": "what engines say in `created`, and ids",
}
"""Modules that read the wall clock, and the date for which they do; a date is read by people or programs."""


def readings(source: str) -> Iterator[int]:
    """Yield the lines that read a wall clock, called or passed on."""
    if not any(f".{name}" in source for _, name in WALL):
        return  # most files: parsing them all takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in WALL:
            yield node.lineno


@pytest.mark.parametrize("line", ["x(clock=time.time)", "time.time() - began", "datetime.now(UTC)", "date.today()", "time.time_ns()"])
def test_a_reading_is_found(line: str) -> None:
    assert list(readings(line)) == [1]


def test_monotonic_clocks_and_clocks_that_are_arguments_are_none() -> None:
    assert list(readings("time.monotonic() - self._clock() + now()")) == []


def test_wall_clocks_are_read_in_named_places_only() -> None:
    found = {
        f"{path.relative_to(ROOT)}": lines
        for component in COMPONENTS
        for path in sorted((ROOT / component).rglob("*.py"))
        if (lines := list(readings(path.read_text(encoding="utf-8"))))
    }
    unnamed = {place: lines for place, lines in found.items() if place not in NAMED}
    assert not unnamed, f"{unnamed} read a wall clock: measure durations by SteadyClock or time.monotonic, or name the place and its reason"
    assert set(NAMED) == set(found), "a named place reads no wall clock any more"
