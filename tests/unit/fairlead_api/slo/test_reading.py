from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.tables import PoolKey
from fairlead_api.slo.budgets import WINDOWS, Counts, Kept
from fairlead_api.slo.reading import Goal, SloReading, Stretch, stretch_of

NOW = datetime(2026, 11, 23, 10, 20, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hour: int, minute: int = 0, day: int = 23) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reaches_back", "start", "hours_from", "hours_until", "end"),
    [
        (timedelta(minutes=5), at(10, 15), at(10, 21), at(10, 21), at(10, 21)),
        (6 * HOUR, at(4, 20), at(10, 21), at(10, 21), at(10, 21)),
        (24 * HOUR, at(10, 20, 22), at(11, 0, 22), at(10), at(10, 21)),
        (72 * HOUR, at(10, 0, 20), at(10, 0, 20), at(11), at(11)),
    ],
)
def test_a_range_is_read_by_minutes_at_its_ends_and_by_hours_where_those_are_gone(
    reaches_back: timedelta, start: datetime, hours_from: datetime, hours_until: datetime, end: datetime
) -> None:
    found = stretch_of(NOW - reaches_back, NOW, NOW)
    assert found == Stretch(start=start, end=end, hours_from=hours_from, hours_until=hours_until)


def test_a_short_range_of_long_ago_is_one_hour() -> None:
    found = stretch_of(NOW - timedelta(days=9), NOW - timedelta(days=9) + timedelta(minutes=5), NOW)
    assert (found.end - found.start, found.hours_until - found.hours_from) == (HOUR, HOUR)


class HalfOfTheBudget:
    """A store in which, for every range, 5 of 100 requests were late and 10 may be."""

    async def goal(self, pool: PoolKey) -> Goal:
        return Goal(version=1, ttft_seconds=1.0, tpot_seconds=0.1, percentile=90.0)

    async def percentiles(self, pool: PoolKey) -> Mapping[int, float]:
        return {1: 90.0}

    async def kept(self, pool: PoolKey, stretch: Stretch, **_: Any) -> list[Kept]:
        return [Kept(version=1, priority_class="default", counts=Counts(judged=100, within_slo=95))]


@pytest.mark.parametrize(("days", "missing"), [(30, []), (29, ["30d"]), (2, ["3d", "30d"])])
async def test_a_budget_of_30_days_is_told_only_where_30_days_are_kept(days: int, missing: list[str]) -> None:
    store: Any = HalfOfTheBudget()
    found = await SloReading(store, timedelta(days=days)).burn(PoolKey(namespace="n", name="p"), NOW)
    assert [one.window for one in found.windows] == [name for name in WINDOWS if name not in missing]
    assert found.budget_left == (None if missing else pytest.approx(0.5))
