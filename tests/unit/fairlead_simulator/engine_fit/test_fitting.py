"""Costs are fitted to records, and judged by later records."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_client.resources.engine_fits import EngineCosts, EngineFit
from fairlead_simulator.engine_fit.fitting import fit
from fairlead_simulator.engine_fit.records import ServedRecord, edges
from fairlead_simulator.engine_fit.replaying import alone_seconds, replay
from fairlead_simulator.errors import RecordsUnusable
from fairlead_testing.builders.served_records import COSTS, served_records
from fairlead_testing.examples import examples

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def fitted(records: list[ServedRecord], judges: list[ServedRecord] | None = None) -> EngineFit:
    return fit(records, "records", NOW, judges=judges, max_batched_tokens=2048)


@examples(3)
@given(factors=st.lists(st.floats(0.4, 2.5), min_size=8, max_size=8), seed=st.integers(0, 99))
def test_records_made_by_the_model_are_predicted_within_a_few_percent(factors: list[float], seed: int) -> None:
    names = [field.name for field in fields(EngineCosts) if field.name != "max_batched_tokens"]
    costs = replace(COSTS, **{name: getattr(COSTS, name) * factor for name, factor in zip(names, factors, strict=True)})
    found = fitted(served_records(costs, count=200, seed=seed))
    assert found.ttft.mean_error < 0.06
    assert found.tpot.mean_error < 0.04
    assert found.ttft.correlation is not None
    assert found.ttft.correlation > 0.97


def test_the_same_records_give_the_same_fit() -> None:
    records = served_records(count=120)
    assert fitted(records) == fitted(records)


def test_what_an_engine_had_cached_unrecorded_does_not_draw_the_fit() -> None:
    random = Random(1)
    records = served_records()
    shorter = [
        replace(one, ttft=COSTS.overhead_seconds + COSTS.decode_fixed) if one.new_tokens > 800 and random.random() < 0.15 else one
        for one in records
    ]
    wrong = sum(one != other for one, other in zip(records, shorter, strict=True))
    found = fitted(shorter)
    assert found.contradicting >= 0.8 * wrong > 0
    assert found.ttft.mean_error < 0.12


def test_a_fit_is_judged_by_records_it_did_not_see() -> None:
    slower = served_records(replace(COSTS, prefill_per_token=2 * COSTS.prefill_per_token), count=120, seed=7)
    found = fitted(served_records(count=120), judges=slower)
    assert found.ttft.mean_error > 0.2
    assert found.fitted == 120


def test_records_beside_requests_that_nobody_recorded_are_left_out() -> None:
    records = [replace(one, in_flight=1) for one in served_records(count=120)]
    assert not edges(records)[0]
    assert edges([replace(records[0], in_flight=5), *records[1:]])[0]
    assert edges(records)[-1]


def test_a_prompt_alone_takes_what_the_replay_says() -> None:
    record = ServedRecord(at=0.0, engine="a", prompt_tokens=5_000, cached_tokens=512, output_tokens=3, ttft=1.0, tpot=1.0)
    assert replay([record], COSTS).ttft[0] == pytest.approx(alone_seconds(record, COSTS))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda records: records[:40], "holds 40 records; a fit needs 100"),
        (lambda records: [replace(one, ttft=0.5) for one in records], "ttft: is 0.5 in every record"),
        (lambda records: [replace(one, tpot=0.02) for one in records], "tpot: is 0.02 in every record"),
        (lambda records: [replace(one, tpot=None) for one in records], "tpot: no record has one"),
        (lambda records: [replace(one, prompt_tokens=600, cached_tokens=0) for one in records], "prompt_tokens less cached_tokens: is 600"),
        (lambda records: [replace(one, at=0.0) for one in records], "can be used for the fit"),
    ],
)
def test_records_that_tell_nothing_are_refused_with_the_reason(change: object, words: str) -> None:
    with pytest.raises(RecordsUnusable, match=words):
        fitted(change(served_records(count=150)))  # type: ignore[operator]
