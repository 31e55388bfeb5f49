"""Property tests set their number of examples in one way, which follows the profile that pytest was started with."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from fairlead_testing.examples import examples
from processkube.testing.examples import FEW

ROOT = Path(__file__).parents[3]
HOME = ROOT / "cluster/src/processkube/testing/examples.py"
SOURCES = [path for folder in ("tests", "cluster/tests", "cluster/src/processkube/testing") for path in (ROOT / folder).rglob("*.py")]


WORDS = ("settings", "max_examples", "stateful_step_count")


def _own_numbers(source: str) -> Iterator[int]:
    """Yield the lines that set or import a number of examples or steps without `examples`."""
    if not any(word in source for word in WORDS):
        return  # most files: parsing them all takes seconds
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="hypothesis", names=names) if any(one.name == "settings" for one in names):
                yield node.lineno
            case ast.Attribute(attr="settings", value=ast.Name(id="hypothesis")):
                yield node.lineno
            case ast.keyword(arg="max_examples" | "stateful_step_count"):
                yield node.lineno


def test_no_test_sets_a_number_of_examples_past_the_profile() -> None:
    exempt = {HOME, Path(__file__)}
    found = [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES if path not in exempt for line in _own_numbers(path.read_text())]
    assert found == [], "say @examples(number) of fairlead_testing.examples, which runs them all in the nightly lane"


@pytest.fixture(params=["few", "all", "here"])
def profile(request: pytest.FixtureRequest) -> Iterator[str]:
    before = settings.get_current_profile_name()
    settings.load_profile(request.param)
    try:
        yield request.param
    finally:
        settings.load_profile(before)


@pytest.mark.parametrize("wanted", [3, 200])
def test_a_test_runs_as_many_examples_as_its_profile_allows(wanted: int, profile: str) -> None:
    ran = 0

    @examples(wanted)
    @given(st.integers())
    def counted(number: int) -> None:
        nonlocal ran
        ran += 1

    counted()
    assert ran == (min(wanted, FEW) if profile == "few" else wanted)


def test_a_test_that_names_no_number_obeys_the_profile_too(profile: str) -> None:
    assert settings().max_examples == (FEW if profile == "few" else 100)


def test_a_state_machine_takes_as_many_steps_as_its_profile_allows(profile: str) -> None:
    steps: list[int] = []

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            steps.append(0)

        @rule()
        def step(self) -> None:
            steps[-1] += 1

    run_state_machine_as_test(Machine, settings=examples(30, steps=40))
    assert len(steps) == (FEW if profile == "few" else 30)
    assert max(steps) == (FEW if profile == "few" else 40)


@pytest.mark.parametrize("profile", ["few", "all"], indirect=True)
def test_each_run_has_the_same_examples(profile: str) -> None:
    runs: list[list[int]] = []

    @examples(40)
    @given(st.integers())
    def seen(number: int) -> None:
        runs[-1].append(number)

    for _ in range(2):
        runs.append([])
        seen()
    assert runs[0] == runs[1]
