"""Weeks of demand: daily shapes of real pools, with autocorrelated noise, growth, outages, peaks and holidays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import exp

import numpy as np

from fairlead.forecasts.records import PER_DAY, QUARTER, DemandRecord, Rates, Series, local_quarters
from fairlead.instances import Role
from fairlead.schedules.zones import parse_zone

MONDAY = datetime(2026, 8, 31, tzinfo=UTC)
PREFILL_EACH, OUTPUT_EACH = 6000.0, 900.0
"""The prompt tokens and output tokens that one instance can compute per second."""
_PROMPT, _ANSWER = 1500.0, 220.0
TARGET_LOAD = 0.8


def _bump(hour: float, at: float, wide: float) -> float:
    return exp(-(((hour - at + 12) % 24 - 12) ** 2) / (2 * wide**2))


def office(weekday: int, hour: float) -> float:
    """Return the demand of office hours: from eight to half past six on weekdays, with a lunch break and little at
    weekends.
    """
    day = min(1.0, max(0.0, (hour - 8.0) * 2)) * min(1.0, max(0.0, 18.5 - hour)) - 0.2 * _bump(hour, 12.5, 0.5)
    return 0.08 + (0.92 if weekday < 5 else 0.15) * max(0.0, day)


def evenings(weekday: int, hour: float) -> float:
    """Return the demand of a consumer application: its peak is at nine in the evening, and weekends have a fifth
    more.
    """
    return (0.15 + 0.65 * _bump(hour, 21, 2.5) + 0.3 * _bump(hour, 13, 3)) * (1.2 if weekday >= 5 else 1.0)


def nightly(weekday: int, hour: float) -> float:
    """Return the demand of a batch job, which is high from two to four in the nights of weekdays and low otherwise."""
    return 1.0 if weekday < 5 and 2 <= hour < 4 else 0.2 + 0.1 * _bump(hour, 14, 4)


def around_the_world(weekday: int, hour: float) -> float:
    """Return the demand of three continents, which never stops."""
    return 0.4 + 0.3 * _bump(hour, 9, 3) + 0.3 * _bump(hour, 17, 3) - (0.15 if weekday >= 5 else 0.0)


SHAPES: Mapping[str, Callable[[int, float], float]] = {
    "office": office,
    "evenings": evenings,
    "nightly": nightly,
    "around-the-world": around_the_world,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Demand of `weeks` weeks from a Monday on, whose peak is work for `instances` instances.

    `growth` is the factor from one week to the next, `noise` the standard deviation of the demand's logarithm.
    `holidays` have the shape of a Sunday. On days of `outages` there is no demand from 10 to 16 o'clock, on days of
    `peaks` three times as much from 12 to 15.
    """

    shape: str = "office"
    weeks: int = 8
    instances: float = 10.0
    growth: float = 1.0
    noise: float = 0.12
    zone: str = "Europe/Berlin"
    holidays: Sequence[date] = ()
    outages: Sequence[date] = ()
    peaks: Sequence[date] = ()
    seed: int = 1

    def load(self) -> Series:
        """Return the demand of each quarter of an hour, in instances."""
        draws = np.random.default_rng(self.seed)
        quarters = local_quarters(MONDAY, self.weeks * 7 * PER_DAY, parse_zone(self.zone))
        drift, values = 0.0, []
        for place, (day, quarter) in enumerate(quarters):
            drift = 0.9 * drift + (1 - 0.81) ** 0.5 * float(draws.normal()) * self.noise
            weekday, hour = 6 if day in self.holidays else day.weekday(), quarter / 4
            value = SHAPES[self.shape](weekday, hour) * self.growth ** (place / (7 * PER_DAY)) * exp(drift)
            values.append(value * self._odd(day, hour))
        return self.instances * np.array(values)

    def _odd(self, day: date, hour: float) -> float:
        if day in self.outages and 10 <= hour < 16:
            return 0.0
        return 3.0 if day in self.peaks and 12 <= hour < 15 else 1.0

    @property
    def end(self) -> datetime:
        return MONDAY + timedelta(weeks=self.weeks)


def record_of(load: Series, start: datetime = MONDAY) -> DemandRecord:
    """Return the record of a pool that scales with its demand, as the control plane would have written it.

    The pool has as many instances as are 80 % used. All requests are in time while the instances suffice.
    """
    instances = np.maximum(1.0, np.ceil(load / TARGET_LOAD))
    requests = load * PREFILL_EACH / _PROMPT
    return DemandRecord(
        start=start,
        rates=Rates(requests=requests, prefill_tokens=load * PREFILL_EACH, output_tokens=requests * _ANSWER),
        instances={Role.BOTH: instances},
        in_time=np.where(load <= instances, 1.0, 0.0),
    )


def day_of(traffic: Traffic, week: int, weekday: int) -> date:
    """Return the date of a day of the traffic. `week` 0 and `weekday` 0 are the first Monday."""
    return (MONDAY + timedelta(weeks=week, days=weekday) + QUARTER * 32).date()
