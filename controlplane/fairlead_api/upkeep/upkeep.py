"""Jobs that run in one API process at a time: the process that gets the job's lock.

The jobs are rollups, making partitions ahead of time, retention, ending sessions, and closing plans that were left
open. Each run does all work that is due by `now`, so the next run makes up for a missed run.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Protocol

from fairlead.range_steps import MINUTES_KEPT
from fairlead_api.infra.errors import StoreUnavailable

AHEAD_DAYS = 2
MOST_DIFFERENCE = timedelta(days=1)
"""Difference between the database's clock and this machine's clock above which nothing is deleted: one of the clocks is
wrong, and deleted rows cannot be restored.
"""
LEAST_KEPT: Mapping[str, timedelta] = {"rollups_10s_days": MINUTES_KEPT + timedelta(hours=1)}
"""Minimum time for which rows must be kept, by retention setting. Ranges that begin within the last `MINUTES_KEPT` are
read from these rows; the extra hour is needed because the start of a range may be moved back by up to a step.
"""


class UpkeepStore(Protocol):
    """The port to the database for the periodic jobs."""

    async def alone(self, job: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` unless another process is running this job. Returns whether `work` was run."""

    async def clock_ahead(self) -> timedelta:
        """Return by how much the database's clock is ahead of this machine's clock at present."""

    async def make_days(self, first: date, last: date) -> None: ...

    async def drop_days(self, table: str, before: date) -> list[str]: ...

    async def delete_before(self, setting: str, before: datetime) -> int:
        """Delete rows older than `before` to which the retention setting applies, except rows to which other rows still
        refer.
        """

    async def end_sessions(self, now: datetime) -> int: ...


class Rollups(Protocol):
    """Rolls up load samples into buckets."""

    async def roll_up(self, now: datetime) -> int:
        """Recompute some of the buckets that are due; return their number."""

    async def lag(self, now: datetime) -> float:
        """Return the seconds by which the rollups of the pool that lags most are overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Numbers of days for which rows are kept: by table for partitioned tables, by setting for all others."""

    partitioned: Mapping[str, int]
    plain: Mapping[str, int]


class Upkeep:
    """The periodic jobs, one method each."""

    def __init__(self, store: UpkeepStore, rollups: Rollups, keep: Keep, close_plans: Callable[[datetime], Awaitable[None]]) -> None:
        self._store = store
        self._rollups = rollups
        self._keep = keep
        self._close_plans = close_plans

    async def roll_up(self, now: datetime) -> None:
        """Roll up all buckets that are due, a few in each transaction."""

        async def work() -> None:
            while await self._rollups.roll_up(now) > 0:
                pass

        await self._store.alone("rollups", work)

    async def rollup_lag(self, now: datetime) -> float:
        """Return the seconds by which rollups lag behind the routers' reports; 0 if nothing is overdue."""
        return await self._rollups.lag(now)

    async def keep_days(self, now: datetime) -> None:
        """Make the partitions from yesterday to two days ahead, and delete rows older than their retention.

        If a long read prevents the deletion in one table, the other tables are cleared nevertheless. At the end, raises
        StoreUnavailable for the first such table. If the clocks differ by more than `MOST_DIFFERENCE`, deletes nothing
        and raises StoreUnavailable.
        """
        today = now.date()
        make: list[Callable[[], Awaitable[object]]] = [
            partial(self._store.make_days, today - timedelta(days=1), today + timedelta(days=AHEAD_DAYS))
        ]
        delete: list[Callable[[], Awaitable[object]]] = [
            *(partial(self._store.drop_days, table, today - timedelta(days=days)) for table, days in self._keep.partitioned.items()),
            *(
                partial(self._store.delete_before, setting, now - max(timedelta(days=days), LEAST_KEPT.get(setting, timedelta(0))))
                for setting, days in self._keep.plain.items()
            ),
        ]

        async def work() -> None:
            ahead = await self._store.clock_ahead()
            is_sure = abs(ahead) <= MOST_DIFFERENCE
            problem = None if is_sure else clocks_differ(ahead)
            for step in make + delete if is_sure else make:
                try:
                    await step()
                except StoreUnavailable as error:
                    problem = problem or error
            if problem is not None:
                raise problem

        await self._store.alone("retention", work)

    async def end_sessions(self, now: datetime) -> None:
        """Unbind the sessions that ended."""

        async def work() -> None:
            while await self._store.end_sessions(now) >= 2000:
                pass

        await self._store.alone("sessions", work)

    async def alone(self, name: str, job: Callable[[datetime], Awaitable[None]], now: datetime) -> None:
        """Run the job of another subject, unless another process is running that job."""
        await self._store.alone(name, partial(job, now))

    async def close_plans(self, now: datetime) -> None:
        """Record plans as applied if their objects were written, but the process ended before it recorded that."""
        await self._store.alone("plans", partial(self._close_plans, now))


def clocks_differ(ahead: timedelta) -> StoreUnavailable:
    """Return the error for clocks that differ: it names the difference (`ahead`) and the remedy."""
    days = ahead / timedelta(days=1)
    return StoreUnavailable(f"nothing is deleted: the database's clock is {days:+.1f} days from this machine's; set the one that is wrong")
