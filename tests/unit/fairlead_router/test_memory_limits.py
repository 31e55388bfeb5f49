"""A router's memory limits follow from its settings: a process with that much memory has enough, none gets half."""

from dataclasses import replace

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.limits import MEMORY_STEP, budget_lines, memory_limits, needed_memory
from fairlead_router.main import main
from fairlead_router.settings import MEBIBYTE, Sizes
from fairlead_testing.examples import examples

GIBIBYTE = 1024 * MEBIBYTE

largest = st.integers(1024, 512 * MEBIBYTE)
sizes = st.builds(
    Sizes,
    max_body_bytes=largest,
    max_upload_bytes=largest,
    kept_prompts_bytes=st.integers(0, GIBIBYTE),
    body_memory_bytes=st.none() | st.integers(512 * MEBIBYTE, 8 * GIBIBYTE),
)


@given(sizes)
@examples(300)
def test_a_process_with_the_memory_that_its_settings_need_has_enough(settings: Sizes) -> None:
    needed = needed_memory(settings)
    assert memory_limits(settings, needed).fit
    assert needed % MEMORY_STEP == 0


@given(sizes)
@examples(300)
def test_no_more_is_asked_for_than_a_step_beyond_what_is_used(settings: Sizes) -> None:
    """With less memory, either the router does not fit, or bodies have less than their usual share."""
    less = needed_memory(settings) - MEMORY_STEP
    limits = memory_limits(settings, less - 1)
    assert not limits.fit or limits.bodies < less // 4


def test_the_default_is_one_gibibyte() -> None:
    assert needed_memory(Sizes()) == GIBIBYTE


def test_a_larger_body_needs_more() -> None:
    assert needed_memory(replace(Sizes(), max_body_bytes=256 * MEBIBYTE)) > 2 * GIBIBYTE


def test_help_says_what_the_settings_in_the_environment_come_to() -> None:
    shown = CliRunner().invoke(main, ["--help"], env={"FAIRLEAD_BODY_MEMORY_BYTES": str(100 * MEBIBYTE), "FAIRLEAD_MAX_CONNECTIONS": "77"})
    words = " ".join(shown.output.split())
    assert shown.exit_code == 0
    assert "clients 77, operators 64, other routers 256" in words
    assert "100 MiB in progress together, 32 MiB each at most" in words
    assert "758 MiB: process 256 MiB, kept prompts 64 MiB, reading one body 288 MiB, bodies in progress 150 MiB" in words
    assert "768 MiB is enough" in words


def test_help_is_shown_for_settings_that_cannot_be_used_too() -> None:
    shown = CliRunner().invoke(main, ["--help"], env={"FAIRLEAD_MAX_BODY_BYTES": "plenty"})
    assert shown.exit_code == 0
    assert "FAIRLEAD_MAX_BODY_BYTES: 'plenty' cannot be used" in shown.output


def test_a_process_with_too_little_says_what_to_do() -> None:
    words = dict(budget_lines(Sizes(), 512 * MEBIBYTE))
    assert "router.resources" in words["Memory"]
    assert "router.resources" not in dict(budget_lines(Sizes(), GIBIBYTE))["Memory"]
