"""Schedules from forecasts: their bounds, how early they start, how few they are, and their effect on past weeks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.forecasts.backtests import Setting, Stretch, replay
from fairlead.forecasts.blocks import Wanted, week_in_blocks
from fairlead.forecasts.calendars import CalendarDay, ForecastSpec, Weekday
from fairlead.forecasts.drafting import Draft, RoleLimits, schedules_of
from fairlead.forecasts.needs import Lead, ahead, carried_by
from fairlead.forecasts.proposals import Forecasted, Proposed, Tried, differs, is_stale, proposed, read_all, tried
from fairlead.forecasts.records import PER_DAY, PER_WEEK, Series
from fairlead.forecasts.seasonal import Band
from fairlead.forecasts.watching import departure
from fairlead.instances import Role
from fairlead.scaling.bounds import DeclaredRole
from fairlead.scaling.specs import ScalingMode, ScalingSpec
from fairlead.schedules.in_force import in_force
from fairlead.schedules.zones import parse_zone
from fairlead.tables import SloFacts
from fairlead_testing.builders.demand import MONDAY, Traffic, day_of, record_of
from fairlead_testing.examples import examples

UTC_ZONE, BERLIN = parse_zone("UTC"), parse_zone("Europe/Berlin")
QUARTER = timedelta(minutes=15)
LEAD = Lead(start_seconds=240.0, refill_seconds=600.0)


def pool(mode: ScalingMode = ScalingMode.SLO, least: int = 1, most: int = 40, declared: int = 2, **fields: Any) -> Forecasted:
    calendar = fields.pop("calendar", ())
    return Forecasted(
        roles=(RoleLimits(role=Role.BOTH, least=least, most=most, declared=declared),),
        scaling=ScalingSpec(mode=mode),
        schedules=fields.pop("schedules", ()),
        slo=SloFacts(),
        forecast=ForecastSpec(time_zone=BERLIN, calendar=calendar),
        lead=fields.pop("lead", LEAD),
        hit_share=0.5,
    )


def of(traffic: Traffic, asked: Forecasted) -> Proposed:
    found = proposed(record_of(traffic.load()), asked, traffic.end)
    assert isinstance(found, Proposed)
    return found


weeks = st.builds(
    lambda seed, most: np.random.default_rng(seed).integers(1, most + 1, (1, PER_WEEK)) // st_step(seed),
    st.integers(0, 999),
    st.integers(1, 30),
)


def st_step(seed: int) -> int:
    return 1 + seed % 3


def covered(week: Wanted, zone: str = "UTC", mode: ScalingMode = ScalingMode.SLO, least: int = 1) -> Series:
    """Return the minimum that the schedules of a week keep, for each quarter of an hour from Monday on."""
    draft = Draft(roles=(RoleLimits(role=Role.BOTH, least=least, most=40, declared=least),), mode=mode, zone=parse_zone(zone))
    schedules = read_all(schedules_of(week, {}, draft, MONDAY))
    bounds = [in_force(schedules, MONDAY + QUARTER * number).bounds for number in range(PER_WEEK)]
    return np.array([one[0].min_replicas or least if one else least for one in bounds])


@examples(40)
@given(weeks)
def test_windows_never_have_fewer_than_a_week_needs_nor_more_than_its_most(week: Wanted) -> None:
    week = np.maximum(1, week)
    found = covered(week)
    assert (found >= week[0]).all()
    assert found.max() <= week.max()


@examples(40)
@given(st.integers(0, 999), st.integers(1, 6))
def test_the_need_of_a_quarter_is_there_as_long_before_as_instances_take(seed: int, quarters: int) -> None:
    need = np.random.default_rng(seed).random(PER_WEEK)
    leading = ahead(need, quarters)
    for earlier in range(quarters + 1):
        assert (leading >= np.roll(need, -earlier)).all()


def test_a_week_of_office_hours_is_a_handful_of_lines() -> None:
    day = np.full(PER_DAY, 2)
    day[32:72] = 9
    week = np.concatenate([np.tile(day, 5), np.full(2 * PER_DAY, 2)])[None, :]
    blocks = week_in_blocks(week, [Role.BOTH])
    assert [(one.days, one.begins, one.ends, one.replicas[Role.BOTH]) for one in blocks if one.replicas[Role.BOTH] > 2] == [
        ((0, 1, 2, 3, 4), 32, 72, 9)
    ]
    assert len(blocks) <= 4


def test_prefill_and_decode_get_their_own_numbers_in_one_window() -> None:
    draft = Draft(
        roles=tuple(RoleLimits(role=role, least=1, most=9, declared=1) for role in (Role.PREFILL, Role.DECODE)),
        mode=ScalingMode.SLO,
        zone=UTC_ZONE,
    )
    week = np.ones((2, PER_WEEK), dtype=np.int64)
    week[0, 32:40], week[1, 32:40] = 6, 3
    (found,) = schedules_of(week, {}, draft, MONDAY)
    assert found["roles"] == [{"name": "prefill", "minReplicas": 6}, {"name": "decode", "minReplicas": 3}]
    assert (found["cron"], found["duration"]) == ("0 8 * * 1", "120m")


@examples(20)
@given(st.integers(1, 6), st.integers(7, 12), st.sampled_from([ScalingMode.SLO, ScalingMode.FIXED]))
def test_no_window_leaves_the_bounds_of_its_role(least: int, most: int, mode: ScalingMode) -> None:
    found = of(Traffic(weeks=4), pool(mode, least=least, most=most, declared=least))
    numbers = [role.least for one in read_all(found.schedules) for role in one.roles]
    assert numbers
    assert all(number is not None and max(1, least) <= number <= most for number in numbers)


def test_windows_open_before_the_ramp_by_the_time_of_start_and_cache() -> None:
    slow = pool(lead=Lead(start_seconds=1500.0, refill_seconds=1200.0))
    traffic = Traffic(weeks=5, noise=0.02)
    ramp = datetime(2026, 10, 5, 6, 15, tzinfo=UTC)  # 08:15 in Berlin
    for asked, ahead_of in ((pool(), 15), (slow, 45)):
        schedules = read_all(of(traffic, asked).schedules)
        before = in_force(schedules, ramp - timedelta(minutes=ahead_of)).bounds
        assert before
        assert (before[0].min_replicas or 0) >= 4, f"{ahead_of} minutes before there is work for 5"


def test_a_holiday_of_the_calendar_gets_its_own_windows_and_skips_the_weekly_ones() -> None:
    traffic = Traffic(weeks=5, noise=0.05)
    day = day_of(traffic, 5, 2)
    plain, found = of(traffic, pool()), of(traffic, pool(calendar=(CalendarDay(day=day, like=Weekday.SUNDAY),)))
    noon = datetime.combine(day, datetime.min.time(), BERLIN) + timedelta(hours=11)
    numbers = [in_force(read_all(one.schedules), noon).bounds for one in (plain, found)]
    assert (numbers[0][0].min_replicas or 0) >= 8
    assert not numbers[1] or (numbers[1][0].min_replicas or 0) <= 4
    next_week = in_force(read_all(found.schedules), noon + timedelta(weeks=1)).bounds
    assert (next_week[0].min_replicas or 0) >= 8, "the week after is usual again"
    assert is_stale(read_all(found.schedules), noon + timedelta(days=2)) == any("20261" in one["name"] for one in found.schedules)


def test_too_little_record_makes_a_sentence_that_says_how_much_is_missing() -> None:
    traffic = Traffic(weeks=2)
    assert proposed(record_of(traffic.load()), pool(), traffic.end) == "14 of 21 days are recorded; 7 more are needed for a forecast"


def test_a_pool_that_never_met_its_slo_has_no_capacity_and_says_so() -> None:
    traffic = Traffic(weeks=5)
    record = replace(record_of(traffic.load()), in_time=np.zeros(len(traffic.load())))
    found = proposed(record, pool(), traffic.end)
    assert isinstance(found, str)
    assert "the capacity of an instance is not known" in found


def test_the_same_day_makes_the_same_proposal() -> None:
    traffic = Traffic(weeks=5)
    record = record_of(traffic.load())
    at = traffic.end - timedelta(hours=20)
    found = [proposed(record, pool(), at + timedelta(hours=hours)) for hours in (0, 9)]
    assert found[0].schedules == found[1].schedules  # type: ignore[union-attr]
    assert not differs(found[0].schedules, read_all(found[1].schedules))  # type: ignore[union-attr]


def test_carried_is_what_instances_had_while_requests_were_in_time() -> None:
    record = record_of(Traffic(weeks=4).load())
    carried = carried_by(record, 90.0)
    assert carried is not None
    assert 0.7 < carried[Role.BOTH].prefill_tokens / 6000.0 <= 0.81, "the pool never used an instance to more than 80 %"


def test_in_a_week_that_it_did_not_see_it_has_far_fewer_late_requests_than_scaling_alone() -> None:
    traffic = Traffic(shape="nightly", weeks=6)
    record = record_of(traffic.load())
    found = of(traffic, pool())
    result: Tried = tried(record, pool(), found.carried, traffic.end)
    assert result.reactive.late > 0
    assert result.proposed.late <= 0.85 * result.reactive.late
    assert result.is_worth_it
    assert result.proposed.least[Role.BOTH] >= 1
    assert result.proposed.most[Role.BOTH] <= 40


@examples(10)
@given(st.integers(1, 4), st.integers(5, 12), st.integers(0, 50))
def test_a_replay_never_leaves_the_bounds_and_loses_no_request(least: int, most: int, seed: int) -> None:
    load = Traffic(weeks=1, seed=seed).load()[:PER_DAY]
    declared = DeclaredRole(role=Role.BOTH, replicas=least, min_replicas=least, max_replicas=most)
    setting = Setting(declared=(declared,), scaling=ScalingSpec(mode=ScalingMode.SLO), slo=SloFacts(), lead=LEAD)
    found = replay(Stretch(start=MONDAY, requests=load, loads={Role.BOTH: load}), setting, ())
    assert least <= found.least[Role.BOTH] <= found.most[Role.BOTH] <= most
    assert found.requests == pytest.approx(load.sum() * 900)
    assert 0 <= found.late <= found.requests


def band(height: float, quarters: int = 20) -> Band:
    line = np.full(quarters, height)
    return Band(start=MONDAY, middle=line, low=line - 1, high=line + 1)


@pytest.mark.parametrize(
    ("loads", "away_at"),
    [
        ([5, 5, 5, 5], None),
        ([5, 9, 9, 5], None),
        ([5, 9, 9, 9], 1),
        ([5, 9, 1, 9], None),
        ([1, 1, 1, 5, 5], 0),
        ([1, 1, 1, 5, 5, 5], None),
        ([9, np.nan, 9, 9], 0),
        ([np.nan] * 4, None),
    ],
)
def test_demand_has_left_after_three_quarters_on_one_side_and_is_back_after_three_within(loads: list[float], away_at: int | None) -> None:
    found = departure({Role.BOTH: band(5)}, {Role.BOTH: np.array(loads, dtype=float)}, 2700.0)
    assert (None if found is None else round((found.since - MONDAY) / QUARTER)) == away_at


def test_a_departure_says_what_is_asked_and_what_was_expected() -> None:
    found = departure({Role.BOTH: band(5)}, {Role.BOTH: np.full(4, 9.0)}, 900.0)
    assert found is not None
    assert found.words == "demand is work for 9.0 instances, outside of the forecast's 4.0 to 6.0 since 2026-08-31 00:00 UTC"
