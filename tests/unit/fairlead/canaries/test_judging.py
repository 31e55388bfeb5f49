"""The judge of canaries: which revisions it stops, which it lets pass, and how seldom it stops a good one at any
look.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import log
from random import Random
from typing import Any

import pytest
from benchmarks.canary import one_run, traffic
from hypothesis import given
from hypothesis import strategies as st

from fairlead.canaries.bets import GRID, Bets
from fairlead.canaries.judging import Judge, judged
from fairlead.canaries.sessions import METRICS
from fairlead.canaries.verdicts import CanaryRules, StepVerdict
from fairlead.reports.canaries import CanarySample
from fairlead.rollout_specs import CanarySpec
from fairlead.schemas.shapes import shape_at
from fairlead.tables import PoolKey
from fairlead_testing.examples import examples

RULES = CanaryRules(warming_seconds=0.0)
POOL = PoolKey(namespace="default", name="chat")


def sessions(count: int, seed: int = 1, **canary: float) -> Iterator[CanarySample]:
    """Yield sessions of four requests each. Every other session is on the canary, where the named figures are
    multiplied.
    """
    random = Random(seed)
    for number in range(count):
        ours = number % 2 == 0
        for turn in range(4):
            one = CanarySample(
                pool=POOL,
                at=float(10 * number + turn),
                step="s",
                session=str(number),
                canary=ours,
                prompt_tokens=1000,
                cached_tokens=500,
                ttft_seconds=random.lognormvariate(0.0, 0.1),
                tpot_seconds=random.lognormvariate(-4.0, 0.1),
                output_tokens=int(100 * random.lognormvariate(0.0, 0.2)),
            )
            yield replace(one, **{name: getattr(one, name) * factor for name, factor in canary.items()}) if ours else one


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"ttft_seconds": 1.3}, "time to first token"),
        ({"tpot_seconds": 1.3}, "time per token"),
        ({"cached_tokens": 0.2}, "cache hits"),
        ({"output_tokens": 2.0}, "tokens of an answer"),
        ({"output_tokens": 0.4}, "tokens of an answer"),
    ],
)
def test_what_is_worse_goes_back_and_the_verdict_names_it(changed: dict[str, Any], word: str) -> None:
    found = judged(sessions(600, **changed), RULES, 0.0)
    assert found.verdict is StepVerdict.BACK
    assert word in found.reason


def test_failures_go_back() -> None:
    random = Random(1)
    samples = (replace(one, failed=one.canary and random.random() < 0.1) for one in sessions(800))
    found = judged(samples, RULES, 0.0)
    assert found.verdict is StepVerdict.BACK
    assert "failed requests" in found.reason


@pytest.mark.parametrize("better", [{}, {"ttft_seconds": 0.7}, {"tpot_seconds": 0.7}, {"cached_tokens": 1.8}])
def test_what_is_as_good_or_better_goes_on_with_its_evidence(better: dict[str, Any]) -> None:
    found = judged(sessions(800, **better), RULES, 0.0)
    assert found.verdict is StepVerdict.GO
    assert (found.canary_sessions, found.other_sessions, found.requests) == (400, 400, 3200)
    assert all(one.low is not None and one.high is not None and one.low <= one.change <= one.high for one in found.estimates)


def test_few_sessions_decide_nothing() -> None:
    assert judged(sessions(20, ttft_seconds=1.05), RULES, 0.0).verdict is StepVerdict.WAIT
    assert judged((), RULES, 0.0).reason == "no pair of sessions yet"


def test_a_cold_cache_makes_a_canary_neither_slow_nor_a_case_of_lost_hits_while_it_warms() -> None:
    def cold(one: CanarySample) -> CanarySample:
        """Return a request without hits that takes as long as the same prompt takes without hits on other instances."""
        missed = (one.canary and one.at < 2000) or int(one.session) % 5 == 0
        return replace(one, cached_tokens=0, ttft_seconds=2 * (one.ttft_seconds or 0)) if missed else one

    found = judged((cold(one) for one in sessions(800)), replace(RULES, warming_seconds=2000.0), 0.0)
    assert found.verdict is StepVerdict.GO


def test_a_session_that_both_arms_served_counts_for_neither() -> None:
    samples = [replace(one, session="s", canary=turn % 2 == 0) for turn, one in enumerate(sessions(1))]
    found = judged(samples, RULES, 0.0)
    assert (found.canary_sessions, found.other_sessions) == (0, 0)


def test_a_talkative_session_is_one_witness() -> None:
    slow = (replace(one, session="s" if one.canary else one.session) for one in sessions(400, ttft_seconds=3.0))
    assert judged(slow, RULES, 0.0).verdict is StepVerdict.WAIT


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=80))
@examples(60)
def test_both_arms_exchanged_gives_the_mirror_image(differences: list[float]) -> None:
    one, other = Bets(scaled=True), Bets(scaled=True)
    for difference in differences:
        one.add(difference)
        other.add(-difference)
    there, back = one.interval(0.01), other.interval(0.01)
    assert (there.low is None) == (back.high is None)
    assert there.low is None or back.high is None or there.low == pytest.approx(-back.high)


def test_at_whatever_time_it_is_asked_a_good_revision_is_hardly_ever_stopped() -> None:
    """By chance at most 1 % of these runs are stopped. More than 3 of 60 would happen once in 300 times without a
    fault.
    """
    stops = sum(one_run(seed, 2000, 0.5, 0.0).stopped is not None for seed in range(60))
    assert stops <= 3


def test_a_bound_that_is_read_after_every_pair_is_wrong_as_seldom_as_promised() -> None:
    wrong = 0
    for seed in range(200):
        random, bets, failed = Random(seed), Bets(scaled=True), False
        for number in range(150):
            bets.add(random.gauss(0.0, 0.3) * (5 if random.random() < 0.05 else 1))
            if number % 5 == 4 and not failed:
                low = bets.interval(0.05).low
                failed = low is not None and low >= 0.0
        wrong += failed
    assert wrong <= 18, "5 % of 200 are 10, and 18 or more have a chance of 1 %"


@pytest.mark.parametrize("slower", [0.1, 0.3])
def test_a_slower_revision_is_found(slower: float) -> None:
    for seed in range(3):
        run = one_run(seed, 12_000, 0.5, slower)
        assert run.stopped is not None


def test_it_may_be_asked_at_any_time_without_an_effect_on_what_it_says_later() -> None:
    asked, silent = Judge(RULES, 0.0), Judge(RULES, 0.0)
    for sample in traffic(Random(4), 2000, 0.5, 0.1):
        asked.add(sample)
        silent.add(sample)
        asked.judgement()
    assert asked.judgement() == silent.judgement()


@pytest.mark.parametrize(
    ("limit", "changed"),
    [(25, {"output_tokens": 4.0}), (100, {"output_tokens": 12.0}), (25, {"output_tokens": 0.2}), (80, {"cached_tokens": 0.0})],
)
def test_any_limit_that_a_spec_may_set_stops_what_is_certainly_beyond_it(limit: int, changed: dict[str, Any]) -> None:
    rules = replace(RULES, stop_above=limit / 100, go_below=2.0)
    whole = (replace(one, cached_tokens=1000) for one in sessions(600))
    found = judged((_times(one, changed) if one.canary else one for one in whole), rules, 0.0)
    assert found.verdict is StepVerdict.BACK


def _times(one: CanarySample, changed: dict[str, Any]) -> CanarySample:
    return replace(one, **{name: round(getattr(one, name) * by) for name, by in changed.items()})


def test_every_limit_lies_within_the_effects_that_are_tried() -> None:
    shape = shape_at(CanarySpec, "stopAbove")
    assert shape is not None
    most = (shape.maximum or 0) / 100
    for metric in METRICS:
        assert (log(1 + most * metric.stop) if metric.is_ratio else most * metric.stop) <= GRID[-1], metric.name
