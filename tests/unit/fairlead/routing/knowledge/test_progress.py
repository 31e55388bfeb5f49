"""Whether an engine makes progress, in virtual time: engines that compute in all possible ways, and engines that
hang.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.knowledge.progress import (
    LEAST_SECONDS,
    LONGEST_TRIAL_SECONDS,
    PLAUSIBLE_STEP_SECONDS,
    TIMES_LONGEST,
    TRIAL_SECONDS,
    UNMEASURED_SECONDS,
    EngineProgress,
    Life,
    Movement,
)

WORK = GivenWork(requests=3)
NOTHING = GivenWork(requests=0)
HALF_AN_HOUR = 1800.0


@dataclass
class Engine:
    """An engine whose steps take these seconds, one after the other. It is observed as a router observes engines."""

    steps: Iterator[float]
    now: float = 1_000.0
    running: int = 3
    progress: EngineProgress = field(default_factory=EngineProgress)
    done: int = 0
    hangs: bool = False
    tokens_a_step: int = 1
    usage: float = 0.5
    work: GivenWork = WORK
    _ends_at: float = 0.0

    def __post_init__(self) -> None:
        self._ends_at = self.now + next(self.steps)

    def compute(self, until: float) -> None:
        while not self.hangs and self._ends_at <= until:
            self.done += 1
            self._ends_at += next(self.steps)
        self.now = until

    def page(self) -> Movement:
        counts = (float(self.done * self.tokens_a_step), 7.0)
        return Movement(running=self.running, counts=counts, gauges=(float(self.running), self.usage))

    def look(self, seconds: float = 1.0) -> Life:
        self.compute(self.now + seconds)
        return self.progress.saw(self.page(), self.work, self.now)

    def lives(self, seconds: float, each: float = 1.0) -> set[Life]:
        return {self.look(each) for _ in range(int(seconds / each))}

    def found_after(self, most: float = 700.0) -> float:
        """Return the seconds from now until the engine is found to be stalled."""
        begun = self.now
        while self.look() is not Life.STALLED:
            assert self.now - begun <= most
        return self.now - begun


def every(seconds: float) -> Iterator[float]:
    return (seconds for _ in count())


@given(step=st.floats(0.005, 1.0), into=st.floats(0, 1))
def test_a_known_engine_that_hangs_is_found_within_fifteen_seconds(step: float, into: float) -> None:
    engine = Engine(every(step))
    assert Life.STALLED not in engine.lives(60)
    engine.compute(engine.now + into)
    engine.hangs = True
    assert engine.found_after() <= 15
    assert engine.lives(120) == {Life.STALLED}
    engine.hangs = False
    engine.compute(engine.now + 2 * step + 1)
    assert engine.look() is Life.ACTIVE, "it goes on"


@given(longest=st.floats(1.0, 15.0), others=st.floats(0.01, 1.0))
def test_an_engine_gets_four_times_as_long_as_its_longest_step_took(longest: float, others: float) -> None:
    engine = Engine(iter([others] * 50 + [longest] * 3 + [others] * 100_000))
    engine.lives(120)
    engine.hangs = True
    allowed = engine.found_after()
    assert min(TIMES_LONGEST * longest, LEAST_SECONDS) <= allowed <= TIMES_LONGEST * (longest + 2) + 2


@given(steps=st.lists(st.floats(0.01, 8.0), min_size=1, max_size=60), each=st.lists(st.floats(0.9, 3.0), min_size=1, max_size=10))
def test_no_engine_whose_steps_end_within_eight_seconds_is_ever_stalled(steps: list[float], each: list[float]) -> None:
    """It is saturated or not, and observed each second or at odd times, for half an hour."""
    engine = Engine(step for _ in count() for step in steps)
    until, pause = engine.now + HALF_AN_HOUR, iter(pause for _ in count() for pause in each)
    while engine.now < until:
        assert engine.look(next(pause)) is not Life.STALLED


@given(growth=st.floats(1.0, 2.5), first=st.floats(0.05, 4.0))
def test_steps_that_grow_with_the_load_are_no_stall(growth: float, first: float) -> None:
    lengths = [min(first * growth**number, 14.0) for number in range(12) for _ in range(10)]
    engine = Engine(length for _ in count() for length in lengths)
    assert Life.STALLED not in engine.lives(HALF_AN_HOUR)


@given(seconds=st.floats(5.0, 70.0), error=st.floats(0.3, 3.5))
def test_a_long_prefill_in_one_step_is_no_stall_when_it_was_expected(seconds: float, error: float) -> None:
    """The engine does not split prompts, and computes 100,000 tokens without any visible progress."""
    engine = Engine(iter([0.05] * 2000 + [seconds] + [0.05] * 100_000))
    engine.lives(90)
    engine.work = GivenWork(requests=3, longest_prefill_seconds=seconds / error)
    assert Life.STALLED not in engine.lives(30 + seconds)


@given(step=st.floats(0.2, 4.0))
def test_a_long_prefill_in_parts_moves_only_the_used_share_of_the_cache(step: float) -> None:
    engine = Engine(every(step), tokens_a_step=0)
    found = set()
    for second in range(100):
        engine.usage = 0.1 + 0.005 * int(second / step)
        found.add(engine.look())
    assert Life.STALLED not in found


def test_a_prefill_like_one_that_has_ended_gets_no_further_time() -> None:
    engine = Engine(every(0.1))
    engine.work = GivenWork(requests=1, longest_prefill_seconds=20.0)
    engine.lives(30)
    engine.work = GivenWork(requests=1, longest_prefill_seconds=20.0, prefilled_seconds=20.0)
    engine.look()
    engine.work = GivenWork(requests=1, longest_prefill_seconds=20.0)
    engine.hangs = True
    assert engine.found_after() <= 15


def test_an_engine_that_holds_pieces_back_computes_all_the_same() -> None:
    """A tool parser buffers the answer: no byte is sent for minutes, but the engine counts its tokens."""
    engine = Engine(every(0.05))
    assert engine.lives(HALF_AN_HOUR) <= {Life.UNMEASURED, Life.ACTIVE}


def test_tokens_that_come_are_progress_though_its_metrics_stand_still() -> None:
    engine = Engine(every(0.1))
    engine.lives(30)
    engine.hangs = True
    for _ in range(600):
        engine.progress.moved(engine.now)
        assert engine.look() is Life.ACTIVE


def test_the_steps_of_a_new_engine_are_unmeasured_and_get_a_minute() -> None:
    engine = Engine(iter([50.0, *[0.1] * 10_000]))
    assert engine.lives(49) == {Life.UNMEASURED, Life.SLOW}
    assert Life.ACTIVE in engine.lives(20)
    hung = Engine(every(1e9))
    assert UNMEASURED_SECONDS <= hung.found_after() <= UNMEASURED_SECONDS + 2


def test_an_engine_that_nothing_waits_for_is_idle_though_it_says_that_it_runs_requests() -> None:
    """SGLang repeats its figures for 30 s after its last request, other engines permanently after an aborted one."""
    engine = Engine(every(0.1))
    engine.lives(30)
    engine.hangs, engine.work = True, NOTHING
    assert engine.lives(HALF_AN_HOUR) == {Life.IDLE}
    engine.work = WORK
    assert engine.look() is not Life.STALLED, "its time runs from the first request that waits for it"
    assert engine.found_after() <= 15


def test_what_waits_in_front_of_an_engine_that_runs_nothing_gets_a_minute() -> None:
    """It may wait for an image or a grammar. After a minute, an engine that hung while it was idle is found too."""
    engine = Engine(every(0.1), running=0)
    engine.lives(5)
    engine.hangs = True
    assert UNMEASURED_SECONDS - 2 <= engine.found_after() <= UNMEASURED_SECONDS + 2


def test_what_goes_past_the_scheduler_is_no_sign_of_a_stall_in_an_engine_that_runs_nothing() -> None:
    engine = Engine(every(0.1), running=0, work=GivenWork(requests=0, others=5))
    engine.lives(5)
    engine.hangs = True
    assert engine.lives(HALF_AN_HOUR) == {Life.IDLE}


def test_a_stalled_engine_is_tried_again_ever_more_seldom_while_nothing_moves() -> None:
    engine = Engine(every(0.1))
    engine.lives(30)
    engine.hangs = True
    engine.found_after()
    trials = []
    for _ in range(6):
        engine.work, begun = NOTHING, engine.now
        while not engine.progress.on_trial:
            assert engine.look() is Life.STALLED
        trials.append(engine.now - begun)
        engine.work = WORK
        while engine.progress.on_trial:
            assert engine.look() is Life.STALLED, "it is still not known to live"
    assert trials[0] == pytest.approx(TRIAL_SECONDS, abs=2)
    assert trials == sorted(trials)
    assert trials[-1] == pytest.approx(LONGEST_TRIAL_SECONDS, abs=2)
    engine.hangs = False
    assert engine.look(5.0) is Life.ACTIVE
    assert engine.progress.stalled_seconds == 0


def test_an_engine_that_hung_and_went_on_is_found_again_within_a_minute() -> None:
    engine = Engine(every(0.1))
    engine.lives(30)
    for _ in range(5):
        engine.hangs = True
        assert engine.found_after() <= TIMES_LONGEST * PLAUSIBLE_STEP_SECONDS + 2
        engine.lives(100)
        engine.hangs = False
        engine.lives(10)


def test_a_longest_step_is_forgotten_within_the_hour() -> None:
    engine = Engine(iter([*[0.1] * 100, 8.0, *[0.1] * 100_000]))
    engine.lives(60)
    assert engine.progress.allowed_seconds > 30
    engine.lives(HALF_AN_HOUR + 60)
    assert engine.progress.allowed_seconds == LEAST_SECONDS


def test_a_restart_makes_steps_unknown_again() -> None:
    engine = Engine(every(0.1))
    engine.lives(30)
    engine.done = 0
    assert engine.look() is Life.UNMEASURED


def test_an_engine_that_shows_no_steps_is_unknown() -> None:
    progress = EngineProgress()
    assert {progress.saw(None, WORK, float(second)) for second in range(3600)} == {Life.UNKNOWN}


def test_an_engine_whose_metrics_lag_gets_more_time() -> None:
    engine = Engine(every(0.1), progress=EngineProgress(40.0))
    engine.lives(30)
    engine.hangs = True
    assert 40 <= engine.found_after() <= 43


def test_an_idle_engine_is_asked_for_a_token_after_half_a_minute_and_one_that_moves_is_not() -> None:
    engine = Engine(every(0.1), running=0, work=NOTHING, hangs=True)
    asked = []
    for _ in range(60):
        engine.look()
        asked.append(engine.progress.wants_canary(engine.now))
    assert asked.index(True) in (29, 30)
    engine.progress.moved(engine.now)
    assert not engine.progress.wants_canary(engine.now)
    engine.work = WORK
    engine.look()
    engine.now += 100
    assert not engine.progress.wants_canary(engine.now), "clients' requests show as much"


def test_a_token_that_does_not_come_shows_that_an_idle_engine_hangs_and_one_that_comes_that_it_lives() -> None:
    engine = Engine(every(0.1), running=0, work=NOTHING, hangs=True)
    engine.lives(40)
    asked_at = engine.now
    engine.lives(10)
    assert engine.progress.canary_unanswered(asked_at, engine.now)
    assert engine.look() is Life.STALLED
    engine.look()
    assert engine.progress.stalled_seconds > 0, "it is certain"
    engine.progress.moved(engine.now)
    assert engine.look() is Life.IDLE


def test_a_token_that_waits_for_other_work_shows_nothing() -> None:
    engine = Engine(every(0.1), running=0, work=NOTHING, hangs=True)
    engine.lives(40)
    asked_at = engine.now
    engine.running, engine.hangs = 5, False
    engine.lives(10)
    assert not engine.progress.canary_unanswered(asked_at, engine.now)
    assert engine.look() is Life.IDLE


def test_a_stalled_engine_that_is_asked_in_vain_gets_no_request_to_try() -> None:
    engine = Engine(every(0.1))
    engine.lives(30)
    engine.hangs = True
    engine.found_after()
    engine.work = NOTHING
    for _ in range(10):
        asked_at = engine.now
        engine.lives(15)
        assert engine.progress.canary_unanswered(asked_at, engine.now)
    engine.look()
    assert not engine.progress.on_trial
