"""The effect of proposed schedules in weeks that their forecast has not seen, compared with scaling by SLO and with a
person's schedule.

    .venv/bin/python -m benchmarks.proposed_schedules [--weeks 4] [--shapes office,nightly] [--start-minutes 4]
        [--trace requests.csv] [--forecasts]

For each shape of traffic (docs: `fairlead_testing.builders.demand`) six weeks are recorded. Then each further week is
run in virtual time (`fairlead.forecasts.backtests`) three times: scaled by SLO alone, with a schedule as a person would
write it (office hours with half of the peak), and with the schedules that the forecast proposes from the record before
that week. In half of the worlds the record has an outage and a peak that came once, and the week has a holiday. The
calendar has this holiday in some worlds and lacks it in others. Beside the instance hours, the smallest possible
instance hours at the same target load are printed. A scaling would reach them if it knew every minute in advance and if
its instances served at once. With `--trace`, times of requests are used instead of shapes: a CSV file whose first
column has them as ISO 8601 or as seconds. It must cover four weeks or more.

`--forecasts` compares ways of forecasting instead, by their errors in weeks that they have not seen. The ways are last
week, the median of weeks, and the median scaled to the level of the last days. If statsmodels or statsforecast are
installed, their forecasts are compared, too.
"""

import argparse
import csv
import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
from benchmarks.command_line import a_file, above_zero, count, names_of

from fairlead.forecasts.backtests import Outcome, Stretch, by_minute, replay
from fairlead.forecasts.calendars import CalendarDay, ForecastMode, ForecastSpec, Weekday
from fairlead.forecasts.drafting import RoleLimits
from fairlead.forecasts.needs import Lead
from fairlead.forecasts.proposals import Forecasted, proposed, read_all, setting_of
from fairlead.forecasts.records import PER_DAY, PER_WEEK, QUARTER, WEEK, Series
from fairlead.forecasts.seasonal import Forecaster, Known, at_level, known_of, last_week, mean_error, median_of_weeks
from fairlead.instances import Role
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.zones import parse_zone
from fairlead.schemas.reading import read
from fairlead.tables import SloFacts
from fairlead_testing.builders.demand import MONDAY, SHAPES, Traffic, day_of, record_of

RECORDED = 6
"""The number of weeks that are recorded before the first tried week."""
LEAST, MOST = 1, 40
REFILL_SECONDS = 600.0
HITS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A pool's demand in instances, and the calendar that its owner keeps."""

    name: str
    load: Series
    start: datetime
    zone: str
    calendar: tuple[CalendarDay, ...] = ()


def worlds(shapes: Sequence[str], weeks: int) -> Iterator[World]:
    """Yield each shape in several worlds: unchanged, with growth, with an outage and a peak in the record, and with a
    holiday in the last week that is or is not in the calendar.
    """
    for shape in shapes:
        plain = Traffic(shape=shape, weeks=RECORDED + weeks)
        odd = replace(plain, outages=(day_of(plain, 3, 1), day_of(plain, 4, 3)), peaks=(day_of(plain, 4, 2),))
        holiday = day_of(plain, RECORDED + weeks - 1, 2)
        off = replace(odd, holidays=(holiday,))
        known = (CalendarDay(day=holiday, like=Weekday.SUNDAY),)
        for name, traffic, calendar in (
            (shape, plain, ()),
            (f"{shape}, 4 % more each week", replace(plain, growth=1.04), ()),
            (f"{shape}, odd past", odd, ()),
            (f"{shape}, holiday", off, known),
            (f"{shape}, unknown holiday", off, ()),
        ):
            yield World(name=name, load=traffic.load(), start=MONDAY, zone=traffic.zone, calendar=calendar)


def pool_of(world: World, start_seconds: float) -> Forecasted:
    """Return a pool in mode SLO with all defaults."""
    return Forecasted(
        roles=(RoleLimits(role=Role.BOTH, least=LEAST, most=MOST, declared=LEAST),),
        scaling=ScalingSpec(mode=ScalingMode.SLO),
        schedules=(),
        slo=SloFacts(),
        forecast=ForecastSpec(mode=ForecastMode.ADVISE, time_zone=parse_zone(world.zone), calendar=world.calendar),
        lead=Lead(start_seconds=start_seconds, refill_seconds=REFILL_SECONDS),
        hit_share=HITS,
    )


def by_hand(peak: float, zone: str) -> tuple[ScheduleSpec, ...]:
    """Return a schedule as a person would write it: office hours with at least half of the peak."""
    document = {
        "name": "office-hours",
        "cron": "0 8 * * 1-5",
        "duration": "10h",
        "timeZone": zone,
        "roles": [{"name": "both", "minReplicas": min(MOST, round(peak / 2))}],
    }
    return (read(ScheduleSpec, document, "schedule"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The sums over a world's unseen weeks, and the share of time (in quarters of an hour) in which demand was within
    the forecast's band.

    `least_hours` are the instance hours of a scaling that knows the demand of every minute in advance.
    """

    reactive: Outcome
    by_hand: Outcome
    proposed: Outcome
    least_hours: float
    coverage: float
    blocks: int


def tried(world: World, weeks: int, start_seconds: float) -> Tried:
    """Run the last weeks of a world with each kind of scaling, and return the sums."""
    record, pool = record_of(world.load, world.start), pool_of(world, start_seconds)
    outcomes: list[tuple[Outcome, Outcome, Outcome]] = []
    within, blocks, least = [], 0, 0.0
    for week in range(weeks, 0, -1):
        begins = record.end - WEEK * week
        begins -= timedelta(hours=begins.astimezone(parse_zone(world.zone)).hour)
        past, then = record.until(begins), record.since(begins).until(begins + WEEK)
        found = proposed(past, pool, begins)
        if isinstance(found, str):
            raise SystemExit(f"{world.name}: {found}")
        load = world.load[(begins - world.start) // QUARTER :][: len(then.in_time)]
        stretch = Stretch(start=begins, requests=then.rates.requests, loads={Role.BOTH: load})
        setting, drafted = setting_of(pool), read_all(found.schedules)
        least += least_hours(load, setting.scaling.target_load)
        peak = float(np.quantile(world.load[: len(past.in_time)], 0.98))
        outcomes.append(
            (replay(stretch, setting, ()), replay(stretch, setting, by_hand(peak, world.zone)), replay(stretch, setting, drafted))
        )
        band, blocks = found.week.requests, max(blocks, len(drafted))
        seen = then.rates.requests
        within.append(float(np.mean((seen >= band.low[: len(seen)]) & (seen <= band.high[: len(seen)]))))
    columns = [_sum(column) for column in zip(*outcomes, strict=True)]
    return Tried(
        reactive=columns[0],
        by_hand=columns[1],
        proposed=columns[2],
        least_hours=least,
        coverage=float(np.mean(within)),
        blocks=blocks,
    )


def least_hours(load: Series, target_load: float) -> float:
    """Return the instance hours of a pool that has, in every minute, the smallest number of instances that meets the
    target load.
    """
    needed = np.clip(np.ceil(by_minute(load) / target_load), LEAST, MOST)
    return float(needed.sum()) / 60


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        instance_hours=sum(one.instance_hours for one in outcomes),
        requests=sum(one.requests for one in outcomes),
        late=sum(one.late for one in outcomes),
        least={Role.BOTH: min(one.least[Role.BOTH] for one in outcomes)},
        most={Role.BOTH: max(one.most[Role.BOTH] for one in outcomes)},
    )


def compare_schedules(found: Iterator[World], weeks: int, start_seconds: float) -> None:
    """Print a line for each world."""
    print(
        f"{'world':40} {'hours: SLO':>10} {'hand':>6} {'ours':>6} {'least':>6} {'late: SLO':>10} {'hand':>7} {'ours':>7}  band  lines  instances"
    )
    for world in found:
        one = tried(world, weeks, start_seconds)
        late = [f"{100 * (1 - of.in_time):.3f} %" for of in (one.reactive, one.by_hand, one.proposed)]
        hours = [f"{of.instance_hours:.0f}" for of in (one.reactive, one.by_hand, one.proposed)]
        hours.append(f"{one.least_hours:.0f}")
        bounds = f"{one.proposed.least[Role.BOTH]}-{one.proposed.most[Role.BOTH]}"
        print(
            f"{world.name:40} {hours[0]:>10} {hours[1]:>6} {hours[2]:>6} {hours[3]:>6} {late[0]:>10} {late[1]:>7} {late[2]:>7}  "
            f"{100 * one.coverage:.0f} %  {one.blocks:>5}  {bounds}",
            flush=True,
        )


def read_trace(path: Path) -> World:
    """Return the demand of the requests at the recorded times. It is scaled so that the busiest quarter of an hour is
    work for ten instances.
    """
    with path.open(newline="") as lines:
        times = sorted(at for row in csv.reader(lines) if row and (at := _seconds(row[0])) is not None)
    if not times or times[-1] - times[0] < 4 * WEEK.total_seconds():
        raise SystemExit(f"{path}: write the times of requests of four weeks or more into its first column")
    first = times[0] // QUARTER.total_seconds() * QUARTER.total_seconds()
    counts = np.bincount(((np.array(times) - first) // QUARTER.total_seconds()).astype(int))[:-1].astype(float)
    return World(name=path.name, load=10 * counts / counts.max(), start=datetime.fromtimestamp(first, UTC), zone="UTC")


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def compare_forecasts(found: Iterator[World], weeks: int) -> None:
    """Print the error of each way of forecasting in each world, and the time that a forecast takes."""
    ways: dict[str, Forecaster] = {"last week": last_week, "median of weeks": median_of_weeks, "at level": at_level, **library_ways()}
    print(f"{'world':40} " + " ".join(f"{name:>16}" for name in ways))
    spent, errors = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0)
    number = 0
    for world in found:
        calendar = {one.day: one for one in world.calendar}
        known, number = known_of(world.load, world.start, parse_zone(world.zone), calendar), number + 1
        line = []
        for name, way in ways.items():
            began = time.perf_counter()
            error = mean_error(known, way, weeks)
            spent[name] += time.perf_counter() - began
            errors[name] += error
            line.append(f"{100 * error:14.1f} %")
        print(f"{world.name:40} " + " ".join(line), flush=True)
    print(f"{'mean error':40} " + " ".join(f"{100 * errors[name] / number:14.2f} %" for name in ways))
    print(f"{'seconds for each world':40} " + " ".join(f"{spent[name] / number:16.2f}" for name in ways))


def library_ways() -> dict[str, Forecaster]:
    """Return the ways of forecasting of the installed libraries. Each gets six weeks of demand, as our own ways do."""
    ways: dict[str, Forecaster] = {}
    if importlib.util.find_spec("statsmodels") is not None:
        ways["STL (statsmodels)"] = _by_week(_stl_of_statsmodels)
    if importlib.util.find_spec("statsforecast") is not None:
        ways["MSTL"] = _by_week(_statsforecast("MSTL"))
        ways["SeasonalES"] = _by_week(_statsforecast("SeasonalExponentialSmoothingOptimized"))
    return ways


def _by_week(model: Callable[[Series], Series]) -> Forecaster:
    """Return a function that forecasts one day. It uses `model`, which forecasts the week after some whole days."""
    made: dict[tuple[date, int], tuple[date, Series]] = {}

    def way(known: Known, day: date) -> Series | None:
        days = sorted(known.days)[-42:]
        if not days or (day - days[-1]).days > 7:
            return None
        key = (days[-1], len(days))
        if key not in made:
            values = np.concatenate([np.nan_to_num(known.days[one]) for one in days])
            made[key] = (days[-1], model(values))
        last, week = made[key]
        place = ((day - last).days - 1) * PER_DAY
        return np.maximum(0.0, week[place : place + PER_DAY])

    return way


def _stl_of_statsmodels(values: Series) -> Series:
    stl, holtwinters = (importlib.import_module(f"statsmodels.tsa.{name}") for name in ("forecasting.stl", "holtwinters"))
    fitted = stl.STLForecast(
        values, holtwinters.SimpleExpSmoothing, model_kwargs={"initialization_method": "estimated"}, period=PER_WEEK
    ).fit()
    return np.asarray(fitted.forecast(PER_WEEK))


def _statsforecast(name: str) -> Callable[[Series], Series]:
    def week(values: Series) -> Series:
        models = importlib.import_module("statsforecast.models")
        model = models.MSTL(season_length=[PER_DAY, PER_WEEK]) if name == "MSTL" else getattr(models, name)(season_length=PER_WEEK)
        return np.asarray(model.forecast(y=values, h=PER_WEEK)["mean"])

    return week


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=count, default=4, help="unseen weeks of each world")
    parser.add_argument("--shapes", type=names_of(SHAPES), default=list(SHAPES), help="shapes of traffic, separated by commas")
    parser.add_argument("--start-minutes", type=above_zero, default=4.0, help="minutes from the start of an instance until it serves")
    parser.add_argument("--trace", type=a_file, help="times of requests, instead of shapes")
    parser.add_argument("--forecasts", action="store_true", help="compare ways of forecasting")
    asked = parser.parse_args()
    found = iter([read_trace(asked.trace)]) if asked.trace else worlds(asked.shapes, asked.weeks)
    if asked.forecasts:
        compare_forecasts(found, asked.weeks)
    else:
        compare_schedules(found, asked.weeks, asked.start_minutes * 60)


if __name__ == "__main__":
    main()
