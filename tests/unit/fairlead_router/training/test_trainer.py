"""The trainer as a real process: what it learns, and that its loss costs only the lesson it was given."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
import uvloop
from msgspec import msgpack

from fairlead.predictors.fitting import FitSettings
from fairlead.predictors.learners import LearnerSettings
from fairlead.predictors.model_bytes import from_bytes
from fairlead.predictors.samples import Samples
from fairlead_router.training.child import teach
from fairlead_router.training.frames import LENGTH, Learnt, Lesson, framed
from fairlead_router.training.trainer import PAUSE_SECONDS, Trainer, TrainerLost

SETTINGS = LearnerSettings(feature_names=("a", "b"), first_samples=30, round_samples=20, width=8, fit=FitSettings(epochs=1, least_steps=10))


def samples(count: int) -> Samples:
    dice = np.random.default_rng(count)
    return Samples(features=dice.random((count, 2), dtype=np.float32), ttft_seconds=dice.random(count, dtype=np.float32))


def lesson(count: int, settings: LearnerSettings = SETTINGS, pool: str = "default/chat") -> Lesson:
    return Lesson.of(pool, settings, samples(count))


def taught(*lessons: Lesson) -> list[Learnt]:
    answers = io.BytesIO()
    teach(io.BytesIO(b"".join(framed(one) for one in lessons)), answers)
    answers.seek(0)
    found = []
    while head := answers.read(LENGTH.size):
        found.append(msgpack.decode(answers.read(LENGTH.unpack(head)[0]), type=Learnt))
    return found


def test_samples_come_through_a_message_as_they_were() -> None:
    sent = samples(7)
    came = msgpack.decode(framed(Lesson.of("default/chat", SETTINGS, sent))[LENGTH.size :], type=Lesson)
    assert came.settings == SETTINGS
    assert (came.samples.features == sent.features).all()
    assert (came.samples.ttft_seconds == sent.ttft_seconds).all()


def test_a_model_comes_with_the_lesson_that_makes_a_round_due() -> None:
    answers = taught(lesson(20), lesson(20), lesson(10), lesson(10))
    assert [answer.model is not None for answer in answers] == [False, True, False, True]
    rounds = [from_bytes(answer.model) for answer in answers if answer.model is not None]
    assert [(model.round, model.samples_seen) for model in rounds] == [(1, 40), (2, 60)]


def test_pools_are_learnt_apart_and_a_pool_with_other_settings_anew() -> None:
    other = LearnerSettings(feature_names=("a", "b"), first_samples=15, width=8, fit=SETTINGS.fit)
    answers = taught(lesson(20), lesson(20, pool="default/other"), lesson(20, other), lesson(20))
    assert [answer.model is not None for answer in answers] == [False, False, True, False]


def test_a_lesson_cut_short_ends_the_trainer_without_an_answer() -> None:
    answers = io.BytesIO()
    with pytest.raises(Exception, match=r".+"):
        teach(io.BytesIO(framed(lesson(20))[:-5]), answers)
    assert answers.getvalue() == b""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def trainer(clock: Clock) -> AsyncIterator[Trainer]:
    one = Trainer(clock)
    yield one
    await one.close()


async def test_a_killed_trainer_costs_its_lesson_and_the_next_begins_after_a_pause(trainer: Trainer, clock: Clock) -> None:
    assert trainer.pid is None
    assert (await trainer.learn(lesson(20))).model is None
    killed = trainer.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(TrainerLost):
        await trainer.learn(lesson(20))
    assert trainer.rests
    clock.now += PAUSE_SECONDS
    assert not trainer.rests
    assert (await trainer.learn(lesson(20))).model is None, "what the killed one had seen is gone"
    assert (await trainer.learn(lesson(20))).model is not None
    assert trainer.pid not in (None, killed)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_trainer_that_was_seen_to_end_between_lessons_is_lost_like_any_other(
    new_loop: Callable[[], asyncio.AbstractEventLoop], clock: Clock
) -> None:
    async def lost_and_found() -> None:
        trainer = Trainer(clock)
        await trainer.learn(lesson(20))
        killed = trainer.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        while exists(killed):  # until the loop has collected it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # and closed its pipe, which nothing tells; before that the lesson is lost all the same
        with pytest.raises(TrainerLost):
            await trainer.learn(lesson(20))
        clock.now += PAUSE_SECONDS
        assert (await trainer.learn(lesson(20))).model is None, "what the killed one had seen is gone"
        await trainer.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(lost_and_found())


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_trainer_that_hangs_or_cannot_be_started_is_lost(clock: Clock) -> None:
    hanging = Trainer(clock, (sys.executable, "-c", "import time; time.sleep(600)"), round_seconds=0.2)
    with pytest.raises(TrainerLost, match="TimeoutError"):
        await hanging.learn(lesson(1))
    assert hanging.pid is None
    with pytest.raises(TrainerLost, match="FileNotFoundError"):
        await Trainer(clock, ("/nowhere/at/all",)).learn(lesson(1))


async def test_a_trainer_that_says_anything_else_is_lost(clock: Clock) -> None:
    babbling = Trainer(
        clock, (sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\x04\\0\\0\\0oops'); sys.stdout.flush(); sys.stdin.read()")
    )
    with pytest.raises(TrainerLost):
        await babbling.learn(lesson(1))
    assert babbling.rests


async def test_a_trainer_whose_answer_nobody_reads_to_its_end_can_be_left(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_router.training.trainer.END_SECONDS", 0.2)
    flooding = "import sys; sys.stdout.buffer.write(b'\\xff' * 1_000_000); sys.stdout.flush(); sys.stdin.read()"
    with pytest.raises(TrainerLost):
        await Trainer(clock, (sys.executable, "-c", flooding)).learn(lesson(1))
