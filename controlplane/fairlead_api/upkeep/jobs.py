"""Runs the background jobs on their schedules.

A run that fails is logged and counted, and the next run tries again. If a job is still running when it is due again, no
second run starts. Each run does everything that is due, so a missed run loses nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from fairlead_api.http.telemetry import Telemetry
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.upkeep.upkeep import Upkeep
from fairlead_client.resources.audit import AuditHead

_log = logging.getLogger(__name__)

LOOK_AT_CLOCK_SECONDS = 5.0

Job = Callable[[datetime], Awaitable[None]]


@asynccontextmanager
async def scheduled(
    upkeep: Upkeep,
    others: Mapping[str, tuple[Job, int]],
    audit_head: Callable[[], Awaitable[AuditHead | None]],
    loss_noticed_at: Callable[[datetime], Awaitable[float]],
    tell_scaling_figures: Job,
    telemetry: Telemetry,
    clock: Callable[[], datetime],
) -> AsyncIterator[None]:
    """Run the jobs and `others` (with their intervals in seconds) while the context is open: each job once at the
    start, then at its interval.
    """

    async def tell_audit_head(_: datetime) -> None:
        """Write the audit log's head to the process's log, which is kept outside the database and can later prove the
        content of the audit log.
        """
        head = await audit_head()
        if head is not None:
            _log.info("audit head", extra={"entry": head.id, "chain": head.chain, "of": head.at.isoformat()})

    async def look_for_losses(now: datetime) -> None:
        telemetry.went_back.set(await loss_noticed_at(now))

    async def tell_rollup_lag(now: datetime) -> None:
        telemetry.rollup_lag.set(await upkeep.rollup_lag(now))

    scheduler = AsyncIOScheduler(timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None})
    jobs: dict[str, tuple[Job, int]] = {
        "retention": (upkeep.keep_days, 1800),
        "rollups": (upkeep.roll_up, 2),
        "rollup-lag": (tell_rollup_lag, 10),
        "scaling-figures": (tell_scaling_figures, 10),
        "sessions": (upkeep.end_sessions, 30),
        "plans": (upkeep.close_plans, 10),
        "audit-head": (tell_audit_head, 3600),
        "lost-commits": (look_for_losses, 2),
        **others,
    }
    started: list[Alone] = []
    for name, (job, seconds) in jobs.items():
        alone = Alone(guarded(name, job, telemetry, clock))
        started.append(alone)
        scheduler.add_job(alone.start, "interval", seconds=seconds, id=name, next_run_time=datetime.now(scheduler.timezone))
    scheduler.start()
    watching = asyncio.create_task(_go_on_when_set_back(scheduler))
    try:
        yield
    finally:
        watching.cancel()
        scheduler.shutdown(wait=False)
        for alone in started:
            await alone.stop()


async def _go_on_when_set_back(scheduler: AsyncIOScheduler) -> None:
    """Make all jobs due at once if the wall clock was set back. Otherwise the scheduler would wait until the clock
    reaches the planned time of the next run, possibly for hours.
    """
    before = datetime.now(scheduler.timezone)
    while True:
        await asyncio.sleep(LOOK_AT_CLOCK_SECONDS)
        now = datetime.now(scheduler.timezone)
        if now < before:
            _log.warning("the clock of this machine was set back", extra={"seconds": round((before - now).total_seconds())})
            for job in scheduler.get_jobs():
                job.modify(next_run_time=now)
        before = now


class Alone:
    """Runs a job; never starts a run while another run of the job is in progress."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._task: asyncio.Future[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Start a run without waiting for it, unless a run is in progress."""
        if not self._stopped and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Cancel a run that is in progress. No other run starts afterwards."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})  # however it ended, other jobs are stopped too


def guarded(name: str, job: Job, telemetry: Telemetry, clock: Callable[[], datetime]) -> Callable[[], Awaitable[None]]:
    """Return a function that runs the job and never raises: it counts every outcome, and logs a problem when the
    problem first occurs.
    """
    told = ""

    async def run() -> None:
        nonlocal told
        try:
            await job(clock())
        except StoreUnavailable as error:
            telemetry.jobs.labels(name, "unavailable").inc()
            if str(error) != told:  # once, and not in each of an outage's seconds
                told = str(error)
                _log.warning("job must wait", extra={"job": name, "error": told})
        except Exception as error:  # noqa: BLE001 # logged and counted; the next run tries again
            telemetry.jobs.labels(name, "failed").inc()
            if repr(error) != told:
                told = repr(error)
                _log.error("job failed", exc_info=error, extra={"job": name})
        else:
            told = ""
            telemetry.jobs.labels(name, "ok").inc()

    return run
