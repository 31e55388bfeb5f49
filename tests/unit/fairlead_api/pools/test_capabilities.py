"""What a pool's engines can do, by all that is known: what was measured outlives the routers that measured."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fairlead.capabilities import NOTHING_KNOWN, REMEMBERED_SECONDS, EngineCapability, Figure, Source
from fairlead.reports.engines import Quantity
from fairlead.tables import EngineFigures
from fairlead_api.pools.capabilities import Remembered, capability_of, measured, remembering
from fairlead_client.resources.instances import LearntOfEngines
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


@given(st.booleans(), st.booleans(), st.booleans())
def test_the_best_source_decides_whatever_the_values_are(live: bool, before: bool, fit: bool) -> None:
    memory = Remembered(
        at=AT - 60.0, kind="a", capability=replace(SEEN, prefill_tokens_per_second=replace(SEEN.prefill_tokens_per_second, value=9.0))
    )
    found = speed(SEEN if live else NOTHING_KNOWN, memory if before else None, fit=fit)
    expected = 21_000.0 if live else 9.0 if before else a_fit().costs.prefill_tokens_per_second() if fit else 6250.0
    assert found.value == expected
    assert found.source is (Source.MEASURED if live or before else Source.FITTED if fit else Source.DECLARED)


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
