"""Background jobs: one run at a time."""

import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace
from typing import Any, Self

import pytest
from apscheduler.schedulers import base

from fairlead_api.http.telemetry import Telemetry
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.upkeep import jobs
from fairlead_api.upkeep.jobs import Alone, guarded, scheduled
from fairlead_testing.waiting import PATIENCE_SECONDS


class LongJob:
    """A job that runs until a test lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = 0
        self.free = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        self.under_way += 1
        try:
            await self.free.wait()
        finally:
            self.under_way -= 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_job_that_is_due_again_while_it_runs_goes_on_alone() -> None:
    job = LongJob()
    alone = Alone(job.run)
    for _ in range(3):  # each start returns at once, so the scheduler never sees a run that takes too long
        await asyncio.wait_for(alone.start(), PATIENCE_SECONDS)
        await settle()
    assert (job.begun, job.under_way) == (1, 1)
    job.free.set()
    await settle()
    await alone.start()
    await settle()
    assert (job.begun, job.under_way) == (2, 0)


async def test_a_job_under_way_ends_with_its_scheduler() -> None:
    job = LongJob()
    alone = Alone(job.run)
    await alone.start()
    await settle()
    await alone.stop()
    await alone.start()
    await settle()
    assert (job.begun, job.under_way) == (1, 0)


def runs(telemetry: Telemetry, job: str, result: str) -> float:
    return telemetry.registry.get_sample_value("fairlead_api_jobs_total", {"job": job, "result": result}) or 0.0


async def test_whatever_a_job_fails_with_is_counted_and_logged_when_it_is_new(caplog: pytest.LogCaptureFixture) -> None:
    problems: list[Exception | None] = [ValueError("bad row"), ValueError("bad row"), StoreUnavailable("away"), None, ValueError("bad row")]
    left = iter(problems)

    async def job(_: datetime) -> None:
        if (problem := next(left)) is not None:
            raise problem

    telemetry = Telemetry()
    run = guarded("rollups", job, telemetry, lambda: datetime.now(UTC))
    for _ in problems:
        await run()
    assert [runs(telemetry, "rollups", result) for result in ("failed", "unavailable", "ok")] == [3, 1, 1]
    told = [(record.levelno, record.message, record.exc_info is not None) for record in caplog.records]
    failed, waits = (logging.ERROR, "job failed", True), (logging.WARNING, "job must wait", False)
    assert told == [failed, waits, failed]


async def test_a_job_that_fails_keeps_no_other_from_being_stopped() -> None:
    telemetry, lasting = Telemetry(), LongJob()

    async def fails(_: datetime) -> None:
        raise ValueError("bad row")

    async def lasts(_: datetime) -> None:
        await lasting.run()

    upkeep: Any = SimpleNamespace(keep_days=fails, roll_up=fails, end_sessions=fails, close_plans=lasts)

    others = {"sizing": (fails, 60)}

    async def no_head() -> None:
        return None

    async def fails_to_look(_: datetime) -> float:
        raise ValueError("bad row")

    async with (
        scheduled(upkeep, others, no_head, fails_to_look, no_figures, telemetry, lambda: datetime.now(UTC)),
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        while not (lasting.under_way and runs(telemetry, "retention", "failed") and runs(telemetry, "sessions", "failed")):
            await asyncio.sleep(0.01)
    assert lasting.under_way == 0


async def no_figures(_: datetime) -> None:
    """Measure nothing, because these tests read no figures."""


class Wall(datetime):
    """The wall clock of a machine, which a test can set."""

    set_by = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time() + cls.set_by.total_seconds(), tz)


async def test_jobs_go_on_when_the_clock_is_set_back_by_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "datetime", Wall)
    monkeypatch.setattr(jobs, "datetime", Wall)
    monkeypatch.setattr(jobs, "LOOK_AT_CLOCK_SECONDS", 0.01)
    monkeypatch.setattr(Wall, "set_by", timedelta())
    telemetry = Telemetry()

    async def runs_well(_: datetime) -> None: ...

    async def no_head() -> None: ...

    upkeep: Any = SimpleNamespace(keep_days=runs_well, roll_up=runs_well, end_sessions=runs_well, close_plans=runs_well)

    async def no_loss(_: datetime) -> float:
        return 0.0

    others = {"sizing": (runs_well, 60)}
    async with (
        scheduled(upkeep, others, no_head, no_loss, no_figures, telemetry, lambda: datetime.now(UTC)),
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        for count in (1, 2, 3):  # the first one at the start, and the next not for half an hour
            while runs(telemetry, "retention", "ok") < count:
                await asyncio.sleep(0.01)
            Wall.set_by -= timedelta(hours=2)


async def test_a_run_that_raised_is_no_problem_of_who_stops_it() -> None:
    async def raises() -> None:
        raise ValueError("unguarded")

    alone = Alone(raises)
    await alone.start()
    await settle()
    await alone.stop()


def test_a_pool_that_is_gone_has_no_figures_left() -> None:
    telemetry = Telemetry()
    telemetry.tell_scaling({("a/chat", "both"): 7, ("a/gone", "prefill"): 1}, {"a/chat": -0.1, "a/gone": 0.1}, {("a/gone", "default"): 0.1})
    telemetry.tell_scaling({("a/chat", "both"): 7}, {"a/chat": -0.1}, {("a/chat", "batch"): -0.2})
    page = telemetry.exposition()[0].decode()
    assert 'fairlead_api_wanted_instances{pool="a/chat",role="both"} 7.0\n' in page
    assert 'fairlead_api_slo_headroom{pool="a/chat"} -0.1\n' in page
    assert 'fairlead_api_task_slo_headroom{pool="a/chat",priority_class="batch"} -0.2\n' in page
    assert "gone" not in page
