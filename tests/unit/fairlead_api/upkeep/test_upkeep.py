"""Upkeep: a table that cannot be cleared now does not keep other tables from being cleared."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from fairlead.range_steps import covered
from fairlead_api.infra.errors import StoreBusy, StoreUnavailable
from fairlead_api.series.grids import MOST_STEPS, steps
from fairlead_api.upkeep.upkeep import Keep, Upkeep

NOW = datetime(2026, 11, 26, 3, tzinfo=UTC)


KEPT = Keep(partitioned={"decisions": 7, "rejections": 7}, plain={"events_days": 30})


class OneTableIsRead:
    """A store in which a long reader prevents that `decisions` is cleared."""

    def __init__(self, ahead: timedelta) -> None:
        self.cleared: list[str] = []
        self.before: dict[str, datetime] = {}
        self.ahead = ahead

    async def alone(self, _job: str, work: Callable[[], Awaitable[None]]) -> bool:
        await work()
        return True

    async def clock_ahead(self) -> timedelta:
        return self.ahead

    async def make_days(self, first: date, last: date) -> None:
        self.cleared.append(f"{first} to {last}")

    async def drop_days(self, table: str, _before: date) -> list[str]:
        if table == "decisions":
            raise StoreBusy("the rows were locked by others for longer than 2 s")
        self.cleared.append(table)
        return []

    async def delete_before(self, setting: str, before: datetime) -> int:
        self.cleared.append(setting)
        self.before[setting] = before
        return 0

    async def end_sessions(self, _now: datetime) -> int:
        return 0


async def test_a_table_that_somebody_reads_for_long_keeps_no_other_from_being_cleared() -> None:
    store: Any = OneTableIsRead(timedelta(hours=3))
    upkeep = Upkeep(store, store, KEPT, store.end_sessions)
    with pytest.raises(StoreBusy, match="locked"):
        await upkeep.keep_days(NOW)
    assert store.cleared == ["2026-11-25 to 2026-11-28", "rejections", "events_days"]


@pytest.mark.parametrize("days", [1, 2, 7])
@pytest.mark.parametrize("length", [timedelta(minutes=1), timedelta(hours=1), timedelta(hours=6)])
async def test_no_row_is_deleted_that_a_range_of_minutes_still_reads(days: int, length: timedelta) -> None:
    store: Any = OneTableIsRead(timedelta(0))
    keep = Keep(partitioned={}, plain={"rollups_10s_days": days, "events_days": 1})
    await Upkeep(store, store, keep, store.end_sessions).keep_days(NOW)
    for minutes in range(25 * 60):
        start = NOW - timedelta(minutes=minutes, seconds=59)
        read = covered(start, start + length, NOW)
        assert read.by_hours or read.start >= store.before["rollups_10s_days"]
        assert steps(start, start + length, MOST_STEPS, NOW).start >= store.before["rollups_10s_days"]
    assert store.before["events_days"] == NOW - timedelta(days=1)


@pytest.mark.parametrize("days", [1.1, 4_000, -1.1, -4_000])
async def test_nothing_is_deleted_by_a_clock_that_another_contradicts_by_more_than_a_day(days: float) -> None:
    store: Any = OneTableIsRead(timedelta(days=days))
    with pytest.raises(StoreUnavailable, match="nothing is deleted: the database's clock is"):
        await Upkeep(store, store, KEPT, store.end_sessions).keep_days(NOW)
    assert store.cleared == ["2026-11-25 to 2026-11-28"]


async def test_rows_are_deleted_again_when_the_wrong_clock_was_set() -> None:
    store: Any = OneTableIsRead(timedelta(days=-3))
    upkeep = Upkeep(store, store, KEPT, store.end_sessions)
    with pytest.raises(StoreUnavailable, match=r"-3\.0 days"):
        await upkeep.keep_days(NOW)
    store.ahead = timedelta(0)
    with pytest.raises(StoreBusy):
        await upkeep.keep_days(NOW)
    assert store.cleared[-2:] == ["rejections", "events_days"]
