"""The recorded demand of a pool, in quarters of an hour. A quarter without any record is NaN in every series."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from fairlead.instances import Role

QUARTER = timedelta(minutes=15)
PER_DAY = 96
PER_WEEK = 7 * PER_DAY
WEEK = timedelta(days=7)

Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Demand per second, refused requests included: requests, prompt tokens found in no cache, and output tokens."""

    requests: Series
    prefill_tokens: Series
    output_tokens: Series

    def between(self, first: int, last: int) -> "Rates":
        """Return the quarters [first, last)."""
        return Rates(**{one.name: getattr(self, one.name)[first:last] for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRecord:
    """A pool's past from `start`, which begins a quarter of an hour in UTC.

    `instances` has the mean number of each role, `in_time` the share (0-1) of the judged requests that met the SLO.
    """

    start: datetime
    rates: Rates
    instances: Mapping[Role, Series]
    in_time: Series

    @property
    def end(self) -> datetime:
        """The end of the last quarter."""
        return self.start + QUARTER * len(self.in_time)

    def until(self, end: datetime) -> "DemandRecord":
        """Return the part of the record before an instant."""
        return self._cut(0, self._place(end))

    def since(self, start: datetime) -> "DemandRecord":
        """Return the part of the record from an instant on."""
        return self._cut(self._place(start), len(self.in_time))

    def _place(self, at: datetime) -> int:
        return min(len(self.in_time), max(0, (at - self.start) // QUARTER))

    def _cut(self, first: int, last: int) -> "DemandRecord":
        return replace(
            self,
            start=self.start + QUARTER * first,
            rates=self.rates.between(first, last),
            instances={role: of[first:last] for role, of in self.instances.items()},
            in_time=self.in_time[first:last],
        )


@lru_cache(maxsize=64)
def local_quarters(start: datetime, quarters: int, zone: ZoneInfo) -> tuple[tuple[date, int], ...]:
    """Return the local day and quarter of the day (0 to 95) of each quarter from `start` on."""
    walls = ((start + QUARTER * number).astimezone(zone) for number in range(quarters))
    return tuple((wall.date(), wall.hour * 4 + wall.minute // 15) for wall in walls)


def by_days(values: Series, start: datetime, zone: ZoneInfo) -> dict[date, Series]:
    """Divide a series into local days of 96 quarters. A quarter that the clock skips is NaN. If the clock repeats a
    quarter, the later value counts.
    """
    days: dict[date, Series] = {}
    for (day, quarter), value in zip(local_quarters(start, len(values), zone), values, strict=True):
        days.setdefault(day, np.full(PER_DAY, np.nan))[quarter] = value
    return days


def midnight(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the last local midnight up to an instant, rounded down to a quarter of an hour in UTC."""
    local = at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return local.astimezone(at.tzinfo)
