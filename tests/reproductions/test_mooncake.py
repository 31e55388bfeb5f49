"""The Mooncake section: its structure from a quick run, and the arithmetic of its figures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reproductions import mooncake
from reproductions.mooncake_oscillation import correlation, lagged, smoothed, spread
from reproductions.mooncake_rejection import capacities, verdict
from reproductions.mooncake_runs import LoadSample, Trial, older_than_mean, requests_of, run_trials
from reproductions.sections import Context


def quick(docs: Path) -> Context:
    return Context(docs=docs, seeds=2, quick=True, say=lambda _: None)


def test_the_section_has_a_table_per_claim_and_its_plots(tmp_path: Path) -> None:
    text = mooncake.write(quick(tmp_path))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Refusing early",
        "### Loads out of step",
        "### Replicating hot prefixes",
        "### What a cache gives up",
    ]
    assert text.count("| --- |") == 4
    assert " nan" not in text
    for name in ("oscillation", "replication"):
        assert (tmp_path / f"images/benchmarks/mooncake-{name}.png").stat().st_size > 10_000
        assert f"(images/benchmarks/mooncake-{name}.png)" in text


def test_only_the_baseline_wastes_prefills(tmp_path: Path) -> None:
    context = quick(tmp_path)
    loaded = requests_of(context, 250)
    base, early, forecast = run_trials(
        context, loaded, [Trial(decode_instances=1, rate=40.0, mode=mode) for mode in ("AfterPrefill", "Load", "Predicted")]
    )
    assert base.refused_prefilled > 0
    assert 0 < base.wasted_share < 1
    assert (early.refused_prefilled, early.wasted_share, forecast.refused_prefilled, forecast.wasted_share) == (0, 0, 0, 0)
    for outcome in (base, early, forecast):
        assert outcome.refused == round(outcome.figures.rejected_share * outcome.figures.requests)


def test_only_what_replicates_fetches_prefixes(tmp_path: Path) -> None:
    context = quick(tmp_path)
    loaded = requests_of(context, 250)
    centric = Trial(decode_instances=8, rate=10.0)
    aware = replace(centric, parameters=(("preset", "mooncake-cache-aware"),))
    fetching, alone = run_trials(context, loaded, [centric, aware])
    assert fetching.fetched_tokens > 0
    assert alone.fetched_tokens == 0


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ((30.0, 20.0, 10.0), "**reproduced**, 30 → 20 → 10."),
        ((30.0, 20.0, 25.0), "**not reproduced**, 30 → 20 → 25: fewer than the baseline with early and predicted."),
        ((30.0, 20.0, 40.0), "**not reproduced**, 30 → 20 → 40: fewer than the baseline with early."),
        ((30.0, 40.0, 50.0), "**not reproduced**, 30 → 40 → 50: fewer than the baseline with neither."),
        ((100.0, 101.0, 101.0), "no difference, 100 → 101 → 101."),
        ((101.0, 100.0, 99.0), "no difference, 101 → 100 → 99."),
        ((0.0, 0.0, 0.0), "no difference, 0 → 0 → 0."),
        ((5.0, 0.0, 0.0), "**not reproduced**, 5 → 0 → 0: fewer than the baseline with early and predicted."),
    ],
)
def test_the_verdict_follows_the_refusals(refused: tuple[float, ...], said: str) -> None:
    assert verdict(refused) == said


def test_a_decode_met_at_random_is_likelier_a_long_one() -> None:
    assert older_than_mean([10.0, 10.0]) == 0.0
    assert older_than_mean([0.0, 20.0]) == 0.5
    assert older_than_mean([]) == 0.0


def test_capacities_count_what_fits_and_what_a_cache_saves(tmp_path: Path) -> None:
    found = capacities(requests_of(quick(tmp_path), 250))
    assert found.prefill > found.prefill_cold > 0
    assert found.full_step < 0.1
    assert found.decode > 0


def test_a_lag_is_found_where_decode_load_follows_prefill_load() -> None:
    wave = np.sin(np.arange(400) / 40)
    loads = [LoadSample(at=float(at), prefill=float(wave[at]), decode=float(wave[at - 15])) for at in range(100, 400)]
    _, _, most, lag = lagged(loads)
    assert most == pytest.approx(1.0)
    assert lag == 15


def test_series_too_short_or_flat_are_not_correlated() -> None:
    assert correlation(np.array([1.0]), np.array([2.0])) == 0.0
    assert correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0.0
    assert spread(np.array([])) == 0.0
    assert lagged([])[0] == 0.0
    assert smoothed(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
