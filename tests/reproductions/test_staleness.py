from dataclasses import replace
from pathlib import Path

import pytest
from reproductions import staleness
from reproductions.runs import workload
from reproductions.sections import Context
from reproductions.staleness_figures import hits, in_time, lost, points, seed_range
from reproductions.staleness_runs import (
    DELAYS,
    LATE,
    LOADS,
    NOISES,
    POLICIES,
    PRESET,
    SMALL_CACHE,
    SOURCES,
    Trial,
    by_trial,
    cell,
    run_trials,
    trials,
)

from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead_simulator.experiments.arrival_plans import ideal_hits
from fairlead_simulator.experiments.cells import CellResult, simulate_cell


def one_cell(trial: Trial, requests: int = 300) -> CellResult:
    loaded = workload("conversation", requests=requests, max_input=PRESET.max_input_tokens)
    return simulate_cell(loaded, ideal_hits(loaded)[0], cell(trial, 0, 8.0, 6250.0, 20))[0]


def test_the_section_has_a_table_per_knob_and_its_plot(tmp_path: Path) -> None:
    text = staleness.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Late news: the choice of the instance",
        "### Late news: the turns",
        "### Whose word: own counters or the engines'",
        "### Wrong lengths",
        "### Bursts",
        "### Wrong cache sizes",
        "### What decides robustness",
    ]
    assert text.count("| --- |") == 7
    assert all(text.count(f"| `{policy}` |") >= 4 for policy in POLICIES)
    assert "Several routers, each blind to what the others send, are in the section" in text
    assert "| nan |" not in text
    assert (tmp_path / "images/benchmarks/staleness-delay.png").stat().st_size > 10_000
    assert "(images/benchmarks/staleness-delay.png)" in text


def test_every_trial_runs_once_and_can_be_run() -> None:
    every = trials()
    assert len(set(every)) == len(every)
    for one in every:
        BUILT_IN.check_parameters(one.policy, dict(one.weights))


def test_every_policy_meets_every_delay_at_both_loads_and_every_noise() -> None:
    every = set(trials())
    assert {Trial(policy=policy, load=load, delay=delay) for policy in POLICIES for load in LOADS for delay in DELAYS} <= every
    assert {Trial(policy=policy, noise=noise) for policy in POLICIES for noise in NOISES} <= every


def test_a_router_that_looks_at_nothing_loses_nothing_by_late_and_wrong_news() -> None:
    prompt = one_cell(Trial(policy="round-robin", load=1.0)).figures
    blind = one_cell(Trial(policy="round-robin", load=1.0, delay=LATE, noise=NOISES[-1])).figures
    served = [replace(one, load_cv=0.0, belief_exact=None, belief_error=None) for one in (blind, prompt)]
    assert served[0] == served[1]
    assert blind.load_cv != prompt.load_cv
    assert blind.belief_error != prompt.belief_error


def test_with_one_prefill_in_flight_late_news_costs_even_that_router() -> None:
    prompt = one_cell(Trial(policy="round-robin", in_flight=1)).figures
    late = one_cell(Trial(policy="round-robin", in_flight=1, delay=LATE)).figures
    assert late.attainment < prompt.attainment - 0.2


def test_a_mistaken_router_believes_in_another_cache_than_its_engines_have() -> None:
    spec = cell(Trial(policy="heimdall", cache=SMALL_CACHE, believed=4.0), 0, 8.0, 6250.0, 20).spec
    assert spec.preset.dram_tokens == round(SMALL_CACHE * PRESET.cache_tokens)
    assert spec.first_table().engine.kv_cache_tokens == pytest.approx(PRESET.cache_tokens, abs=4)
    plain = cell(Trial(policy="heimdall"), 0, 8.0, 6250.0, 20).spec
    assert plain.preset is PRESET
    assert plain.first_table().engine.kv_cache_tokens == PRESET.cache_tokens


def test_the_knobs_reach_the_run() -> None:
    trial = Trial(policy="ear", load=0.5, in_flight=4, delay=0.5, noise=0.3, spread="none")
    made = cell(trial, 3, 8.0, 6250.0, 20)
    assert (made.plan.rate, made.plan.spread, made.plan.seed, made.spec.seed) == (4.0, "none", 3, 3)
    assert (made.quality.delay_seconds, made.quality.token_noise, made.spec.prefills_in_flight) == (0.5, 0.3, 4)
    weights = cell(SOURCES["KV use"], 0, 8.0, 6250.0, 20).spec.parameters
    assert weights == {"queue_weight": 0.0, "prefix_weight": 0.0}


def test_results_belong_to_the_trial_they_were_run_for(tmp_path: Path) -> None:
    wanted = (Trial(policy="ear", delay=0.5), Trial(policy="round-robin"), Trial(policy="ear"))
    saturation, runs = run_trials(Context(docs=tmp_path, seeds=2, quick=True, say=lambda _: None), wanted)
    assert saturation > 0
    assert tuple(runs) == wanted
    for trial, results in runs.items():
        assert [(one.cell.label, one.cell.quality.delay_seconds, one.cell.plan.seed) for one in results] == [
            (trial.policy, trial.delay, seed) for seed in range(2)
        ]


def test_losses_are_against_no_delay_and_means_are_over_seeds() -> None:
    base = one_cell(Trial(policy="ear"), requests=40)
    found = [replace(base, figures=replace(base.figures, attainment=value, hit_rate=value / 2)) for value in (1.0, 0.9, 0.8, 0.6)]
    prompt, late = Trial(policy="ear"), Trial(policy="ear", delay=LATE)
    runs = by_trial((prompt, late), found, 2)
    assert in_time(runs, prompt) == pytest.approx(0.95)
    assert hits(runs, late) == pytest.approx(0.35)
    assert lost(runs, prompt) == pytest.approx(0.25)
    assert seed_range(runs, late) == pytest.approx(0.2)


@pytest.mark.parametrize(("share", "text"), [(0.0461, "4.6 points"), (-0.0001, "0.0 points"), (-0.031, "-3.1 points")])
def test_points_are_percentage_points_without_a_negative_zero(share: float, text: str) -> None:
    assert points(share) == text
