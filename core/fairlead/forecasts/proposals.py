"""Forecasts a pool's coming week, proposes schedules that cover it, and computes the effect of such schedules in the
last week.

The forecast begins at the last local midnight, so it stays the same for a day and in every process. If no forecast can
be made, a sentence gives the reason.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from math import ceil
from typing import Any

import numpy as np

from fairlead.forecasts.backtests import Outcome, Setting, Stretch, gapless, replay
from fairlead.forecasts.blocks import Wanted
from fairlead.forecasts.calendars import ForecastSpec, by_date
from fairlead.forecasts.drafting import PREFIX, Draft, RoleLimits, schedules_of, weekly, whole
from fairlead.forecasts.needs import Carried, Lead, ahead, carried_by
from fairlead.forecasts.records import PER_WEEK, QUARTER, WEEK, DemandRecord, Rates, Series, local_quarters, midnight
from fairlead.forecasts.seasonal import LEAST_DAYS, Band, Known, forecast, known_of, missing_days
from fairlead.forecasts.watching import Departure, departure
from fairlead.instances import Role
from fairlead.scaling.bounds import DeclaredRole
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schemas.reading import read
from fairlead.tables import SloFacts

FEWER_LATE = 0.85
"""A proposal is worth it if its number of late requests is at most this multiple of the number under the present
schedules, and its instance hours are within `_MORE_HOURS`.
"""
LESS_HOURS = 0.9
"""A proposal is worth it if its instance hours are at most this multiple of the hours under the present schedules, and
its late requests are within `_AS_LATE`.
"""
_MORE_HOURS = 1.2
"""Largest multiple of the present instance hours that a proposal may cost if it has fewer late requests."""
_AS_LATE = 0.001
"""Share of all requests by which the number of late requests may grow if a proposal saves hours."""
_DATED = re.compile(rf"{PREFIX}([0-9]{{8}})-[0-9]{{4}}")
_MEASURES = ("requests", "prefill_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasted:
    """The facts about a pool that its forecast needs: the spec's sections, the measured lead, and the share (0-1) of
    prompt tokens that caches save.
    """

    roles: tuple[RoleLimits, ...]
    scaling: ScalingSpec
    schedules: tuple[ScheduleSpec, ...]
    slo: SloFacts
    forecast: ForecastSpec
    lead: Lead
    hit_share: float = 0.0

    @property
    def draft(self) -> Draft:
        return Draft(roles=self.roles, mode=self.scaling.mode, zone=self.forecast.time_zone)

    @property
    def others(self) -> tuple[ScheduleSpec, ...]:
        """The spec's schedules that do not follow a forecast, because people wrote them."""
        return tuple(one for one in self.schedules if not one.name.startswith(PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """A forecast of a week: the request rates per second, the load of each role in instances, and the numbers of
    instances needed for this load.
    """

    requests: Band
    loads: Mapping[Role, Band]
    wanted: Wanted
    """Wanted instances: a row per role, in the order of `draft.roles`, and a column per quarter of an hour from
    `requests.start` on. Each number is wanted early enough for the instances to start (`Lead`).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Back-tests of the last week: with scaling by SLO alone, with the present schedules, and with the schedules that a
    forecast made before that week would have proposed.
    """

    start: datetime
    reactive: Outcome
    present: Outcome
    proposed: Outcome

    @property
    def is_worth_it(self) -> bool:
        """Return whether the proposed schedules had clearly fewer late requests than the present schedules, or clearly
        fewer instance hours and hardly more late requests.
        """
        now, then = self.present, self.proposed
        fewer = now.late > 0 and then.late <= FEWER_LATE * now.late and then.instance_hours <= _MORE_HOURS * now.instance_hours
        less = then.instance_hours <= LESS_HOURS * now.instance_hours and then.late <= now.late + _AS_LATE * now.requests
        return fewer or less


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The forecast of a pool with the schedules that follow from it. The forecast is based on the demand that the
    pool's instances were observed to serve.
    """

    carried: Mapping[Role, Carried]
    week: Week
    schedules: tuple[dict[str, Any], ...]


def proposed(record: DemandRecord, pool: Forecasted, now: datetime) -> Proposed | str:
    """Return the forecast for the seven days from the last local midnight with its schedules, or a sentence that says
    why no forecast can be made.
    """
    origin = midnight(now, pool.forecast.time_zone)
    past = record.until(origin)
    lacking = missing_days(_known(past, pool, "requests"))
    if lacking:
        return f"{LEAST_DAYS - lacking} of {LEAST_DAYS} days are recorded; {lacking} more are needed for a forecast"
    carried = carried_by(past, pool.slo.percentile)
    if carried is None:
        return (
            f"the pool served {pool.slo.percentile:g} % of its requests in time for less than a day in all, "
            "so the capacity of an instance is not known"
        )
    week = week_of(past, pool, carried, origin)
    return Proposed(carried=carried, week=week, schedules=_drafted(past, pool, carried, week))


def week_of(past: DemandRecord, pool: Forecasted, carried: Mapping[Role, Carried], start: datetime, *, usual: bool = False) -> Week:
    """Return the forecast of the week from `start`, based on the demand recorded in `past`. With `usual`, the special
    days of the calendar are ignored.
    """
    bands = {name: forecast(_known(past, pool, name), start, usual=usual) for name in _MEASURES}
    loads = {role: _load(of, bands) for role, of in carried.items()}
    covered = {role: band.middle if pool.scaling.mode is ScalingMode.SLO else band.high for role, band in loads.items()}
    leading = {role: ahead(load, ceil(pool.lead.seconds / QUARTER.total_seconds())) for role, load in covered.items()}
    return Week(requests=bands["requests"], loads=loads, wanted=whole(leading, pool.draft))


def _known(past: DemandRecord, pool: Forecasted, measure: str) -> Known:
    values: Series = getattr(past.rates, measure)
    return known_of(values, past.start, pool.forecast.time_zone, by_date(pool.forecast.calendar))


def _load(carried: Carried, bands: Mapping[str, Band]) -> Band:
    sides = {side: carried.load(Rates(**{name: getattr(band, side) for name, band in bands.items()})) for side in ("low", "middle", "high")}
    return Band(start=bands["requests"].start, **sides)


def _drafted(past: DemandRecord, pool: Forecasted, carried: Mapping[Role, Carried], week: Week) -> tuple[dict[str, Any], ...]:
    start, zone = week.requests.start, pool.forecast.time_zone
    usual = week_of(past, pool, carried, start, usual=True)
    return schedules_of(weekly(usual.wanted, start, zone), _odd_days(week, pool), pool.draft, start)


def _odd_days(week: Week, pool: Forecasted) -> dict[date, Wanted]:
    """Return the wanted numbers of instances for the calendar's special days within the week."""
    calendar, found = by_date(pool.forecast.calendar), dict[date, Wanted]()
    for place, (day, quarter) in enumerate(local_quarters(week.requests.start, PER_WEEK, pool.forecast.time_zone)):
        if day in calendar:
            of_day = found.setdefault(day, np.ones((len(pool.roles), 96), dtype=np.int64))
            of_day[:, quarter] = week.wanted[:, place]
    return found


def tried(record: DemandRecord, pool: Forecasted, carried: Mapping[Role, Carried], now: datetime) -> Tried:
    """Return the back-tests of the last week, with a forecast made from the data before that week."""
    origin = midnight(now, pool.forecast.time_zone)
    start = origin - WEEK
    past = record.until(origin)
    before = past.until(start)
    known = carried_by(before, pool.slo.percentile) or carried
    drafted = read_all(_drafted(before, pool, known, week_of(before, pool, known, start)))
    stretch, setting = stretch_of(past.since(start), carried), setting_of(pool)
    reactive = replace(setting, scaling=replace(pool.scaling, mode=ScalingMode.SLO))
    return Tried(
        start=start,
        reactive=replay(stretch, reactive, pool.others),
        present=replay(stretch, setting, pool.schedules),
        proposed=replay(stretch, setting, (*pool.others, *drafted)),
    )


def read_all(documents: Iterable[Mapping[str, Any]]) -> tuple[ScheduleSpec, ...]:
    """Return the schedules of these documents."""
    return tuple(read(ScheduleSpec, dict(one), f"schedules[{number}]") for number, one in enumerate(documents))


def stretch_of(record: DemandRecord, carried: Mapping[Role, Carried]) -> Stretch:
    """Return a record in the form of a back-test's demand, with its gaps filled."""
    rates = Rates(**{name: gapless(getattr(record.rates, name)) for name in _MEASURES})
    return Stretch(start=record.start, requests=rates.requests, loads={role: of.load(rates) for role, of in carried.items()})


def departed(record: DemandRecord, pool: Forecasted, now: datetime) -> Departure | None:
    """Return the departure of demand from the forecast that was made two local midnights ago. None while demand is
    within the forecast's band, or if there was no such forecast.
    """
    zone = pool.forecast.time_zone
    origin = midnight(midnight(now, zone) - timedelta(hours=12), zone)
    found = proposed(record, pool, origin)
    if isinstance(found, str):
        return None
    since = record.since(origin)
    loads = {role: of.load(since.rates) for role, of in found.carried.items()}
    return departure(found.week.loads, loads, pool.forecast.leave_after_seconds)


def setting_of(pool: Forecasted) -> Setting:
    """Return the facts about a pool that a back-test needs."""
    return Setting(
        declared=tuple(_declared(one) for one in pool.roles),
        scaling=pool.scaling,
        slo=pool.slo,
        lead=pool.lead,
        hit_share=pool.hit_share,
    )


def _declared(role: RoleLimits) -> DeclaredRole:
    return DeclaredRole(role=role.role, replicas=role.declared, min_replicas=role.least, max_replicas=role.most)


def is_stale(present: Iterable[ScheduleSpec], now: datetime) -> bool:
    """Return whether the spec has windows for a day of the calendar that has passed. Such windows would open again in a
    year.
    """
    dated = (_DATED.fullmatch(one.name) for one in present)
    return any(found is not None and date.fromisoformat(found[1]) < now.date() for found in dated)


def differs(documents: Sequence[Mapping[str, Any]], present: Iterable[ScheduleSpec]) -> bool:
    """Return whether the proposed schedules differ from the spec's schedules that follow a forecast."""
    return set(read_all(documents)) != {one for one in present if one.name.startswith(PREFIX)}
