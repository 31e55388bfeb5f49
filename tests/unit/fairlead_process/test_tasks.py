"""Background tasks: restarted after a failure, never overlapping, and ended for good."""

import asyncio

import pytest

from fairlead_process.tasks import Tasks
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now


def test_work_is_done_at_once_and_then_by_the_clock_however_long_it_takes() -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(virtual_now())
        await asyncio.sleep(0.4 if len(begun) < 3 else 1.7)

    async def story() -> None:
        async with Tasks() as tasks:
            tasks.every(1.0, "work", work)
            await asyncio.sleep(5.5)

    run_virtually(story())
    assert [round(at - begun[0], 1) for at in begun] == [0.0, 1.0, 2.0, 3.7, 5.4]


def test_a_failure_is_logged_and_the_work_goes_on_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(virtual_now())
        if len(begun) == 1:
            raise ZeroDivisionError("a bug")

    async def story() -> None:
        async with Tasks() as tasks:
            tasks.every(0.02, "tick", work)
            await asyncio.sleep(1.03)

    run_virtually(story())
    assert [round(at - begun[0], 2) for at in begun] == [0.0, 1.0, 1.02]
    (line,) = caplog.records
    assert (line.message, line.__dict__["task"]) == ("background task failed, it is started again", "tick")
    assert line.exc_info is not None


def test_an_activity_that_fails_is_begun_again_and_one_that_returns_has_done_its_part() -> None:
    begun: list[str] = []

    async def broken() -> None:
        begun.append("broken")
        raise ZeroDivisionError

    async def brief() -> None:
        begun.append("brief")

    async def story() -> None:
        async with Tasks() as tasks:
            tasks.start("broken", broken)
            tasks.start("brief", brief)
            await asyncio.sleep(2.5)

    run_virtually(story())
    assert sorted(begun) == ["brief", "broken", "broken", "broken"]


def test_stopping_waits_until_what_is_named_has_ended_and_leaves_the_rest() -> None:
    ended: list[str] = []

    def activity(name: str, seconds: float) -> object:
        async def go_on() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(seconds)
                ended.append(name)

        return go_on

    async def story() -> None:
        tasks = Tasks()
        for name, seconds in (("a", 0.3), ("b", 0.1), ("c", 0.0)):
            tasks.start(name, activity(name, seconds))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        await tasks.stop("a", "b", "never started")
        assert ended == ["b", "a"]
        await tasks.stop()
        assert ended == ["b", "a", "c"]

    run_virtually(story())
