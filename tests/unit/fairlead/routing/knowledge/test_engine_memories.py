"""Which earlier observations are believed: possible ones of the same engines, at most a week old, in present tokens."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import REMEMBERED_SECONDS, UNKNOWN, EngineCapability, Figure, Source, declared
from fairlead.reports.engines import EngineMemory
from fairlead.routing.knowledge.engine_memories import believed, decode_coefficients, joined, keep
from fairlead.routing.knowledge.estimators import PrefillTimes
from fairlead.routing.knowledge.prefill_speeds import ENOUGH_PREFILLS, RecalledSpeed
from fairlead.tables import EngineFacts
from fairlead_testing.builders.routing import entry, table

NOW = 1e9
POOL_TABLE = table([entry("a", revision="r1"), entry("b", revision="r2")])


def seen(value: float, age: float | None = 10.0, source: Source = Source.MEASURED) -> Figure:
    return Figure(value=value, source=source, samples=20, age_seconds=age)


def memory(
    speed: Figure = UNKNOWN, step: Figure = UNKNOWN, size: Figure = UNKNOWN, *, at: float = NOW, counted_by: float = 4.0
) -> EngineMemory:
    known = EngineCapability(prefill_tokens_per_second=speed, decode_step_seconds=step, bytes_per_token=size)
    return replace(keep(POOL_TABLE, known, (), at), counted_by=counted_by)


def speed_of(kept: EngineMemory | None) -> float | None:
    return None if kept is None else kept.known.prefill_tokens_per_second.value


@given(value=st.floats(allow_nan=True, allow_infinity=True), age=st.none() | st.floats(-1e9, 1e9), passed=st.floats(-1e6, 1e9))
def test_only_a_plausible_speed_of_the_last_week_is_believed(value: float, age: float | None, passed: float) -> None:
    found = speed_of(believed(memory(seen(value, age)), POOL_TABLE, NOW + passed))
    holds = age is not None and age >= 0 and age + max(0.0, passed) <= REMEMBERED_SECONDS and 1 <= value <= 1e9
    assert found == (value if holds else None)


def test_what_was_only_declared_is_not_remembered() -> None:
    assert believed(memory(declared(6250.0)), POOL_TABLE, NOW) is None
    assert speed_of(believed(memory(seen(9_000.0, source=Source.FITTED)), POOL_TABLE, NOW)) == 9_000.0


@pytest.mark.parametrize("change", [{"uid": "other"}, {"model": "other"}, {"revisions": ("r0",)}])
def test_of_another_pool_model_or_revision_nothing_is_believed(change: dict[str, str]) -> None:
    kept = memory(seen(9_000.0))
    assert believed(kept, POOL_TABLE, NOW) is not None
    assert believed(replace(kept, **change), POOL_TABLE, NOW) is None  # type: ignore[arg-type]
    assert believed(replace(kept, revisions=("r2", "r9")), POOL_TABLE, NOW) is not None, "one of them still runs"
    assert believed(replace(kept, revisions=()), POOL_TABLE, NOW) is not None, "who gave it has checked the engine"


@given(counted_by=st.floats(0.5, 64.0), now_by=st.sampled_from([1024, 512, 256, 700]))
def test_a_speed_is_counted_in_the_tokens_of_now(counted_by: float, now_by: int) -> None:
    of = replace(POOL_TABLE, engine=replace(POOL_TABLE.engine, block_tokens=now_by, block_bytes=2048))
    kept = replace(memory(seen(9_000.0), seen(0.02), counted_by=counted_by), decode_fit=(0.01, 0.5, 0.1))
    found = believed(kept, of, NOW)
    assert found is not None
    assert speed_of(found) == pytest.approx(9_000.0 * counted_by / (2048 / now_by))
    assert found.decode_fit == pytest.approx((0.01, 0.5 * (2048 / now_by) / counted_by, 0.1))


def test_of_two_the_better_source_counts_and_of_equal_ones_the_newer() -> None:
    older = replace(memory(seen(8_000.0, 50.0), seen(0.03, 5.0)), decode_fit=(0.01, 0.0, 0.0))
    newer = memory(seen(9_000.0, 10.0), seen(0.02, 60.0), seen(3.5))
    for both in (joined(older, newer), joined(newer, older)):
        assert both is not None
        assert speed_of(both) == 9_000.0
        assert both.known.decode_step_seconds.value == 0.03
        assert both.known.bytes_per_token.value == 3.5
        assert decode_coefficients(both) == (0.01, 0.0, 0.0)
    fitted = memory(seen(7_000.0, 0.0, Source.FITTED))
    assert speed_of(joined(fitted, older)) == speed_of(joined(older, fitted)) == 8_000.0
    assert joined(None, older) is older
    assert joined(older, None) is older


def test_a_step_without_a_fit_takes_always_as_long() -> None:
    assert decode_coefficients(memory(step=seen(0.02))) == (0.02, 0.0, 0.0)
    assert decode_coefficients(memory(speed=seen(9_000.0))) == ()
    assert decode_coefficients(replace(memory(), decode_fit=(0.01, 0.0, 0.0))) == (), "nobody knows how old it is"


@given(factor=st.floats(2.5, 100.0), tokens=st.integers(1, 999))
def test_short_prefills_that_are_faster_contradict_a_recalled_speed_which_does_not_come_back(factor: float, tokens: int) -> None:
    recalled, figure = RecalledSpeed(), seen(1_000.0)
    recalled.take(figure, 0.0)
    given_up = [recalled.observe(tokens, tokens / (1_000.0 * factor)) for _ in range(ENOUGH_PREFILLS)]
    assert given_up == [False] * (ENOUGH_PREFILLS - 1) + [True]
    recalled.take(figure, 1.0)
    assert recalled.value is None
    recalled.take(seen(1_000.0 * factor), 2.0)
    assert recalled.value == 1_000.0 * factor


def test_a_pool_goes_by_no_recalled_speed_once_its_short_prefills_contradict_it() -> None:
    times = PrefillTimes(EngineFacts(type="vllm", port=8000, prefill_tokens_per_second=6_250.0))
    times.recall(seen(1_000.0), 0.0)
    for number in range(ENOUGH_PREFILLS):
        assert times.observed_speed == 1_000.0
        times.observe("i0", 100, 0, 0.01, 1.0 + number)
    assert times.observed_speed is None, "prefills so short tell no speed of their own"
