"""When windows are open, and what several open windows set together."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.scaling.bounds import RoleBounds
from fairlead.scaling.specs import RatioMethod, RatioMode, RatioSpec
from fairlead.schedules import conflicts as schedule_conflicts
from fairlead.schedules.conflicts import WEEK, conflicts
from fairlead.schedules.in_force import in_force
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import Window, next_change, open_windows, planned_starts, windows_between
from fairlead.schemas.reading import read
from fairlead.schemas.writing import written
from fairlead.tables import EarlyRejectionFacts, SloFacts

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)


def schedule(name: str = "day", cron: str = "0 8 * * *", duration: str = "10h", **fields: Any) -> ScheduleSpec:
    """Return a schedule; `replicas=(least, most)` sets the bounds of the role both."""
    least, most = fields.pop("replicas", (2, 4))
    roles = [{"name": "both", "minReplicas": least, "maxReplicas": most}]
    return read(ScheduleSpec, {"name": name, "cron": cron, "duration": duration, "roles": roles, **fields}, "schedule")


def at(hour: float, day: int = 0) -> datetime:
    return MONDAY + timedelta(days=day, hours=hour)


def bounds(instant: datetime, *schedules: ScheduleSpec) -> tuple[int | None, int | None] | None:
    for found in in_force(schedules, instant).bounds:
        return found.min_replicas, found.max_replicas
    return None


def test_a_window_is_open_from_its_start_until_just_before_its_end() -> None:
    day = schedule()
    for hour, is_open in ((7.999, False), (8, True), (17.999, True), (18, False)):
        assert bool(open_windows([day], at(hour))) is is_open


def test_a_window_reaches_over_midnight() -> None:
    night = schedule(cron="0 22 * * 1", duration="8h")
    assert bounds(at(5.9, day=1), night) == (2, 4)
    assert bounds(at(5.9, day=2), night) is None


def test_a_window_longer_than_its_pause_is_followed_by_the_next_without_a_gap() -> None:
    (first, second) = windows_between(schedule(cron="0 8 * * *", duration="30h"), at(9), at(9, day=1))
    assert (first.opens, first.closes, second.opens) == (at(8), at(8, day=1), at(8, day=1))


def test_a_skipped_start_does_not_happen_and_ends_the_window_if_it_is_open() -> None:
    day = schedule(skip=["2026-11-23T09:00:00+01:00"])
    assert bounds(at(9), day) is None
    assert bounds(at(9, day=1), day) == (2, 4)


def test_skipping_a_start_leaves_the_window_before_it_open() -> None:
    shifts = schedule(cron="0 8,10 * * *", duration="4h", skip=["2026-11-23T10:00:00Z"])
    assert bounds(at(11.9), shifts) == (2, 4)
    assert bounds(at(12), shifts) is None


def test_an_added_start_opens_a_window_at_any_second() -> None:
    day = schedule(duration="1h", runAt=["2026-11-23T20:00:30Z"])
    assert next_change([day], at(19)) == at(20) + timedelta(seconds=30)
    assert bounds(at(20.5), day) == (2, 4)
    assert bounds(at(21.1), day) is None


def test_a_paused_schedule_has_no_window_at_all() -> None:
    day = schedule(paused=True, runAt=["2026-11-23T20:00:00Z"])
    assert list(windows_between(day, at(0), at(0) + WEEK)) == []
    assert next_change([day], at(0)) is None
    assert next(planned_starts(day, at(0))) == at(8), "its planned starts are still known, to record what did not happen"


def test_the_window_that_opened_last_decides() -> None:
    day, peak = schedule(replicas=(2, 4)), schedule("peak", "0 12 * * *", "2h", replicas=(1, 1))
    assert [bounds(at(hour), day, peak) for hour in (11, 12, 14)] == [(2, 4), (1, 1), (2, 4)]


def test_windows_that_open_at_once_give_the_larger_bounds() -> None:
    one, other = schedule("one", replicas=(1, 6)), schedule("other", replicas=(2, 3))
    assert in_force([one, other], at(9)).bounds == (RoleBounds(role=Role.BOTH, min_replicas=2, max_replicas=6, schedule="one and other"),)
    open_upwards = schedule("open", roles=[{"name": "both", "minReplicas": 1}])
    assert bounds(at(9), one, open_upwards) == (1, None)


def test_what_a_later_window_does_not_mention_stays_with_the_earlier() -> None:
    day = schedule(slo={"ttft": "2s"}, earlyRejection={"mode": "Load"})
    peak = schedule("peak", "0 12 * * *", "2h", replicas=(3, 3))
    found = in_force([day, peak], at(13))
    assert bounds(at(13), day, peak) == (3, 3)
    pool = SloFacts(ttft_seconds=5, tpot_seconds=0.2, percentile=95)
    assert found.slo(pool) == SloFacts(ttft_seconds=2, tpot_seconds=0.2, percentile=95)
    assert found.early_rejection(EarlyRejectionFacts(headroom=2)) == EarlyRejectionFacts(mode="Load", headroom=2)
    assert found.deciding == {"both": ("peak",), "slo": ("day",), "earlyRejection": ("day",)}
    assert found.overruling(day) == ()


def test_a_window_overrides_how_the_ratio_is_kept_and_leaves_the_rest_to_the_pool() -> None:
    auto, calm = schedule("auto", ratio={"mode": "Auto", "cooldown": "5m"}), schedule("calm", roles=[], ratio={"mode": "Advise"})
    found, pool = in_force([auto, calm], at(9)), RatioSpec(method=RatioMethod.REPLACE, band=0.5)
    assert found.ratio(pool) == RatioSpec(mode=RatioMode.AUTO, method=RatioMethod.REPLACE, band=0.5, cooldown_seconds=300)
    assert found.deciding == {"both": ("auto",), "ratio": ("auto",)}
    assert found.overruling(calm) == ("auto",)
    assert in_force([auto, calm], at(3)).ratio(pool) == pool


def test_a_window_that_decides_nothing_knows_who_overrules_it() -> None:
    small, large = schedule("a", slo={"ttft": "2s"}, roles=[]), schedule("b", slo={"ttft": "3s"}, roles=[])
    found = in_force([small, large], at(9))
    assert found.overruling(large) == ("a",)
    assert found.slo(SloFacts()).ttft_seconds == 2
    assert in_force([small], at(3)).slo(SloFacts()) == SloFacts()


def test_replicas_are_both_bounds_at_once() -> None:
    exact = schedule(roles=[{"name": "both", "replicas": 3}])
    assert bounds(at(9), exact) == (3, 3)


def test_conflicts_name_both_schedules_what_they_share_and_who_decides() -> None:
    day, peak = schedule(cron="0 8 * * 1"), schedule("peak", "0 17 * * 1", "3h")
    apart = schedule("apart", "0 17 * * 1", "3h", roles=[], slo={"ttft": "1s"})
    (found,) = conflicts([day, peak, apart], MONDAY, MONDAY + WEEK)
    assert (found.schedule, found.other, found.subjects, found.begins, found.ends) == ("day", "peak", ("both",), at(17), at(18))
    assert found.decided_by == "peak"
    (tie,) = conflicts([day, schedule("other", "0 8 * * 1")], MONDAY, MONDAY + WEEK)
    assert tie.decided_by is None


def test_conflicts_of_schedules_that_start_every_minute_are_sought_no_further_than_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(*args: Any) -> Iterator[Window]:
        nonlocal looked_at
        for window in windows_between(*args):
            looked_at += 1
            yield window

    monkeypatch.setattr(schedule_conflicts, "windows_between", counted)
    some = [schedule(f"s{number:02}", "* * * * *", "1m") for number in range(32)]
    found = conflicts(some, MONDAY, MONDAY + WEEK)
    assert ([one.begins for one in found], found[0].other, looked_at <= 100) == ([MONDAY] * 100, "s01", True)


crons = st.sampled_from(["0 8 * * *", "*/7 * * * *", "30 22 * * 1-5", "0 0 1 * *", "15 */5 * * 0"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"])
offsets = st.integers(0, 400 * 86400)


@given(st.lists(st.tuples(crons, zones, st.integers(1, 3000)), min_size=1, max_size=3), offsets)
def test_nothing_changes_before_the_next_change(some: list[tuple[str, str, int]], offset: int) -> None:
    schedules = [
        schedule(f"s{number}", cron, f"{minutes}m", timeZone=zone, replicas=(number, number))
        for number, (cron, zone, minutes) in enumerate(some)
    ]
    instant = MONDAY + timedelta(seconds=offset)
    change = next_change(schedules, instant)
    assert change is not None
    assert change > instant
    before = open_windows(schedules, instant)
    assert open_windows(schedules, change - timedelta(microseconds=1)) == before
    assert open_windows(schedules, change) != before


@given(crons, zones, st.integers(1, 3000), offsets)
def test_the_windows_of_a_week_are_those_that_are_open_in_it(cron: str, zone: str, minutes: int, offset: int) -> None:
    one = schedule(cron=cron, duration=f"{minutes}m", timeZone=zone)
    week = list(windows_between(one, MONDAY, MONDAY + WEEK))
    assert all(first.closes <= second.opens for first, second in pairwise(week))
    instant = MONDAY + timedelta(seconds=offset % WEEK.total_seconds())
    assert [window for window in week if window.opens <= instant < window.closes] == list(open_windows([one], instant))


@given(st.lists(st.tuples(crons, st.integers(1, 3000), st.booleans()), min_size=2, max_size=5), offsets, st.sampled_from([1, 5, 100_000]))
def test_conflicts_are_all_pairs_of_windows_that_are_open_together(some: list[tuple[str, int, bool]], offset: int, limit: int) -> None:
    schedules = [
        schedule(f"s{(7 * number) % 5}", cron, f"{minutes}m", **({"roles": []} if no_roles else {}), slo={"ttft": "1s"})
        for number, (cron, minutes, no_roles) in enumerate(some)
    ]
    begin = MONDAY + timedelta(seconds=offset)
    windows = {one.name: list(windows_between(one, begin, begin + WEEK)) for one in schedules}
    meetings = [
        (max(a.opens, b.opens), a.schedule, b.schedule, min(a.closes, b.closes))
        for one, other in combinations(schedules, 2)
        for a, b in product(windows[one.name], windows[other.name])
        if a.opens < b.closes and b.opens < a.closes
    ]
    found = conflicts(schedules, begin, begin + WEEK, limit)
    assert [(one.begins, one.schedule, one.other, one.ends) for one in found] == sorted(meetings)[:limit]


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"cron": "0 0 30 2 *"}, "schedule.cron", "no day 30 in Feb"),
        ({"timeZone": "Europe/Belin"}, "schedule.timeZone", "Europe/Berlin"),
        ({"roles": [{"name": "both", "minReplicas": 3, "maxReplicas": 2}]}, "schedule.roles[0].minReplicas", "greater"),
        ({"roles": [{"name": "both", "replicas": 3, "maxReplicas": 3}]}, "schedule.roles[0].replicas", "either"),
        ({"roles": [{"name": "both"}]}, "schedule.roles[0].replicas", "either"),
        ({"roles": []}, "schedule.roles", "must change something"),
        ({"duration": "10s"}, "schedule.duration", "1m"),
        ({"skip": ["2026-02-30T00:00:00Z"]}, "schedule.skip[0]", "exists"),
        ({"skip": ["1999-12-31T23:59:59Z"]}, "schedule.skip[0]", "matches"),
        ({"runAt": ["9999-12-31T23:59:59Z"]}, "schedule.runAt[0]", "matches"),
        ({"runAt": ["tomorrow"]}, "schedule.runAt[0]", "matches"),
        ({"skip": "2026-12-01T07:00:00Z"}, "schedule.skip", "a list"),
        ({"slo": {"ttft": "0s"}}, "schedule.slo.ttft", "1ms"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_by_name(fields: dict[str, Any], field: str, remedy: str) -> None:
    document = {"name": "day", "cron": "0 8 * * *", "duration": "1h", "roles": [{"name": "both", "replicas": 1}], **fields}
    with pytest.raises(InvalidInput) as refused:
        read(ScheduleSpec, document, "schedule")
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def test_a_schedule_written_out_is_read_back_as_it_was() -> None:
    day = schedule(timeZone="Europe/Berlin", skip=["2026-12-01T08:00:00+01:00"], slo={"ttft": "2s"})
    document = written(day)
    assert (document["skip"], document["timeZone"], document["cron"]) == (["2026-12-01T07:00:00Z"], "Europe/Berlin", "0 8 * * *")
    assert read(ScheduleSpec, document, "schedule") == day
