"""The known capability of a pool's engines: measurements outlive the routers that made them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import NOTHING_KNOWN, REMEMBERED_SECONDS, EngineCapability, Figure, Source
from fairlead.reports.engines import Quantity
from fairlead.routing.knowledge.engine_memories import decode_coefficients
from fairlead.tables import EngineFigures
from fairlead_api.pools.capabilities import (
    DecodeLine,
    Remembered,
    capability_of,
    known_line,
    line_of,
    measured,
    memory_of,
    of_instance,
    remembering,
)
from fairlead_client.resources.instances import LearntOfEngines
from fairlead_testing.builders.routing import table
from fairlead_testing.builders.served_records import a_fit

NOW = datetime(2026, 11, 29, tzinfo=UTC)
AT = NOW.timestamp()
ENGINE = EngineFigures(prefill_tokens_per_second=6250.0)
TOLD = LearntOfEngines(
    router="r0",
    quantity=Quantity.PREFILL,
    learnt=1 / 20_000,
    declared=1 / 6250,
    samples=50,
    error=None,
    declared_error=None,
    in_use=True,
    value=21_000.0,
    value_samples=41,
    age_seconds=20.0,
    p10=19_000.0,
    p50=21_000.0,
    p90=23_000.0,
)
SEEN = measured([TOLD])


def speed(now_measured: EngineCapability, before: Remembered | None, kind: str = "a", fit: bool = False, at: datetime = NOW) -> Figure:
    return capability_of(now_measured, before, kind, a_fit() if fit else None, ENGINE, at).prefill_tokens_per_second


def test_what_a_router_measured_is_told_with_its_spread_samples_and_age() -> None:
    found = SEEN.prefill_tokens_per_second
    assert (found.value, found.source, found.samples, found.age_seconds) == (21_000.0, Source.MEASURED, 41, 20.0)
    assert found.spread is not None
    assert found.spread.p90 == 23_000.0
    assert measured([replace(TOLD, value=None)]) == NOTHING_KNOWN, "too few prefills to go by"


def test_an_engine_that_two_routers_asked_for_its_cache_counts_once_and_prefills_of_both_count() -> None:
    asked = [replace(TOLD, router=router, quantity=Quantity.KV_CACHE, value=1_000.0, value_samples=4) for router in ("r0", "r1")]
    assert measured(asked).kv_cache_tokens.samples == 4
    assert measured([TOLD, replace(TOLD, router="r1")]).prefill_tokens_per_second.samples == 2 * 41
    assert measured([]).kv_cache_tokens.samples == 0


def test_an_instance_has_its_own_speed_and_the_size_of_the_cache_that_was_measured_over_its_pool() -> None:
    cache = replace(TOLD, quantity=Quantity.KV_CACHE, value=1_000.0, value_samples=4)
    found = of_instance(ENGINE.declared, measured([TOLD, cache]))
    assert (found.kv_cache_tokens.value, found.kv_cache_tokens.source) == (1_000.0, Source.MEASURED)
    assert found.prefill_tokens_per_second == ENGINE.declared.prefill_tokens_per_second, "the pool's mean is not this instance's speed"


@given(st.booleans(), st.booleans(), st.booleans())
def test_the_best_source_decides_whatever_the_values_are(live: bool, before: bool, fit: bool) -> None:
    memory = Remembered(
        at=AT - 60.0, kind="a", capability=replace(SEEN, prefill_tokens_per_second=replace(SEEN.prefill_tokens_per_second, value=9.0))
    )
    found = speed(SEEN if live else NOTHING_KNOWN, memory if before else None, fit=fit)
    expected = 21_000.0 if live else 9.0 if before else a_fit().costs.prefill_tokens_per_second() if fit else 6250.0
    assert found.value == expected
    assert found.source is (Source.MEASURED if live or before else Source.FITTED if fit else Source.DECLARED)


STEPS = replace(TOLD, quantity=Quantity.DECODE, learnt=0.03, value=0.03, line=[0.01, 0.2, 0.5])


def test_a_router_that_starts_gets_the_line_of_decode_steps_and_not_only_their_mean() -> None:
    few = replace(STEPS, router="r1", value_samples=3, line=[9.0, 9.0, 9.0])
    line = line_of([few, STEPS, TOLD, replace(STEPS, router="r2", value_samples=900, line=[])], AT)
    assert line == DecodeLine(coefficients=(0.01, 0.2, 0.5), at=AT - 20.0)
    memory = memory_of(measured([STEPS]), table(1), AT, known_line(line, None, "a", None, AT))
    assert decode_coefficients(memory) == (0.01, 0.2, 0.5)
    assert decode_coefficients(memory_of(measured([STEPS]), table(1), AT)) == (0.03, 0.0, 0.0), "where no line was reported"


def test_the_line_outlives_the_routers_that_fitted_it_also_while_others_report_none_for_a_week_on_the_same_engine() -> None:
    memory = remembering(measured([STEPS]), None, "a", AT, line_of([STEPS], AT))
    later = remembering(measured([replace(STEPS, line=[])]), memory, "a", AT + 3600.0, None)
    assert known_line(None, later, "a", None, AT + 3600.0) == (0.01, 0.2, 0.5)
    assert known_line(None, later, "b", None, AT + 3600.0) == ()
    assert known_line(None, later, "a", None, AT + REMEMBERED_SECONDS) == ()
    fitted = known_line(None, None, "a", a_fit(), AT)
    costs = a_fit().costs
    assert fitted[0] + fitted[1] * 0.08 + fitted[2] * 0.01 == pytest.approx(
        costs.decode_fixed + 8_000 * costs.decode_per_context_token + costs.decode_per_sequence
    )


def test_a_pool_at_zero_remembers_what_its_engines_did_and_how_long_ago() -> None:
    memory = remembering(SEEN, None, "a", AT)
    later = datetime.fromtimestamp(AT + 3600.0, UTC)
    again = remembering(NOTHING_KNOWN, memory, "a", AT + 1800.0)
    assert again is not None
    assert speed(NOTHING_KNOWN, again, at=later).age_seconds == 3620.0
    assert speed(NOTHING_KNOWN, again, at=later).value == 21_000.0


def test_another_engine_or_a_week_makes_it_forgotten() -> None:
    memory = remembering(SEEN, None, "a", AT)
    assert speed(NOTHING_KNOWN, memory, "b").source is Source.DECLARED
    assert remembering(NOTHING_KNOWN, memory, "b", AT) is None
    assert speed(NOTHING_KNOWN, memory, at=datetime.fromtimestamp(AT + REMEMBERED_SECONDS, UTC)).source is Source.DECLARED
