"""The schedule builder: clicks become a schedule and a schedule becomes clicks; its week is drawn in its own time
zone.
"""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.schedules.specs import ScheduleSpec
from fairlead.schedules.windows import next_starts
from fairlead.schemas.reading import read
from fairlead_testing.examples import examples
from fairlead_web.forms.schedule_forms import RoleBounds, ScheduleForm, form_of, roles_of, schedule_of, sets_in_words
from fairlead_web.pages.schedules import week_of

MONDAY = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
ROLES = (RoleBounds(name="both", least=0, most=8, minimum="1", maximum="2"),)
NIGHT = ScheduleForm(pool="default/chat", name="night", zone="Europe/Berlin", roles=ROLES)


def test_every_weekday_night_needs_no_cron() -> None:
    assert schedule_of(NIGHT) == {
        "cron": "0 22 * * 1-5",
        "duration": "8h",
        "timeZone": "Europe/Berlin",
        "roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 2}],
    }


def test_the_week_is_drawn_by_the_clock_of_the_schedule() -> None:
    week = week_of(NIGHT, MONDAY)
    assert week.starts[0] == "Mon 23 Nov 22:00 CET"
    assert [len(day.bars) for day in week.grid.days] == [1, 2, 2, 2, 2, 1, 0]
    first = week.grid.days[0].bars[0]
    assert (first.x, first.width) == (660.0, 60.0), "from 22:00 to midnight, in units of two minutes"
    assert "Europe/Berlin" in first.label


def test_a_window_over_a_clock_change_begins_and_ends_by_the_clock_on_the_wall() -> None:
    sunday = ScheduleForm(pool="p", begins="01:00", ends="04:00", days=frozenset({"7"}), zone="Europe/Berlin", roles=ROLES)
    week = week_of(sunday, datetime(2026, 10, 24, 9, 0, tzinfo=UTC))  # the clocks go back on the 25th
    (bar,) = week.grid.days[1].bars
    assert (bar.x, bar.width) == (30.0, 60.0), "three hours of elapsed time are two on that wall"


@examples(200)
@given(
    days=st.frozensets(st.sampled_from("1234567"), min_size=1),
    begins=st.integers(0, 1439),
    minutes=st.integers(1, 1440),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"]),
)
def test_what_is_built_starts_on_its_days_at_its_time_and_is_its_form_again(
    days: frozenset[str], begins: int, minutes: int, zone: str
) -> None:
    ends = (begins + minutes) % 1440
    form = ScheduleForm(
        pool="p",
        name="n",
        days=days,
        begins=f"{begins // 60:02}:{begins % 60:02}",
        ends=f"{ends // 60:02}:{ends % 60:02}",
        zone=zone,
        roles=ROLES,
    )
    written = schedule_of(form)
    schedule = read(ScheduleSpec, {**written, "name": "n"}, "spec")
    assert schedule.duration_seconds == 60 * minutes
    first = next(next_starts(schedule, datetime(2026, 6, 1, tzinfo=UTC))).astimezone(ZoneInfo(zone))
    assert str(first.isoweekday()) in days
    assert f"{first:%H:%M}" == form.begins
    assert form_of("p", ROLES, {**written, "name": "n"}) == form


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ({"cron": "0 12 1 12 *", "duration": "2h"}, "a day of the month"),
        ({"cron": "*/5 8 * * *", "duration": "1m"}, "several starts a day"),
        ({"cron": "@daily", "duration": "1h"}, "a nickname"),
        ({"cron": "0 8 * * *", "duration": "48h"}, "longer than a day"),
        ({"cron": "0 8 * * *", "duration": "1h", "ratio": {"mode": "Auto"}}, "a ratio"),
        ({"cron": "0 8 * * *", "duration": "1h", "earlyRejection": {"headroom": 2}}, "a headroom"),
    ],
)
def test_what_the_builder_cannot_say_has_no_form(schedule: dict[str, Any], why: str) -> None:
    assert form_of("p", ROLES, schedule) is None, why


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"days": frozenset()}, "days"),
        ({"begins": "25:00"}, "begins"),
        ({"ends": ""}, "ends"),
        ({"roles": (RoleBounds(name="both", least=0, most=8, minimum="x"),)}, "roles.0.minimum"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_field(change: dict[str, Any], field: str) -> None:
    given_form = ScheduleForm(**{"pool": "p", "roles": ROLES, **change})
    with pytest.raises(InvalidInput) as caught:
        schedule_of(given_form)
    assert given_form.refused(caught.value.field, "x").at == field


@pytest.mark.parametrize(
    ("api", "field"),
    [
        ("spec.scaling.schedules[0].roles[0].maxReplicas", "roles.0.maximum"),
        ("fields.spec.roles[1].minReplicas", ""),
        ("fields.spec", ""),
        ("fields.spec.timeZone", "zone"),
        ("fields.spec.slo.ttft", "slo.ttft"),
        ("fields.name", "name"),
    ],
)
def test_a_refusal_of_the_api_stands_at_its_field(api: str, field: str) -> None:
    assert NIGHT.refused(api, "x").at == field


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ({"roles": [{"name": "both", "replicas": 2}]}, "2 instances"),
        ({"roles": [{"name": "both", "minReplicas": 1, "maxReplicas": 1}]}, "1 instance"),
        (
            {"roles": [{"name": "both", "minReplicas": 4, "maxReplicas": 8}], "slo": {"ttft": "2s"}, "earlyRejection": {"mode": "Load"}},
            "4 to 8 instances, TTFT 2s, early rejection Load",
        ),
        ({"roles": [{"name": "prefill", "minReplicas": 2}, {"name": "decode", "maxReplicas": 3}]}, "at least 2 prefill, at most 3 decode"),
        ({"slo": {"percentile": 95}, "ratio": {"mode": "Auto"}}, "goal 95 %, ratio mode Auto"),
        ({}, "nothing"),
    ],
)
def test_what_a_schedule_sets_is_said_in_words(schedule: dict[str, Any], words: str) -> None:
    assert sets_in_words(schedule) == words


def test_roles_have_their_own_bounds() -> None:
    assert roles_of({"roles": [{"name": "prefill", "minReplicas": 1, "maxReplicas": 5}, {"name": "decode"}]})[0].most == 5
    assert [one.name for one in roles_of({})] == ["both"]


DAY_OF_WEEK = st.sampled_from(["*", "1-5", "0", "7", "1,3,5", "6,0", "5-7", "1-5/2"])
BOUNDS = st.fixed_dictionaries(
    {"name": st.sampled_from(["both", "prefill"])}, optional={"minReplicas": st.integers(0, 3), "maxReplicas": st.integers(3, 8)}
)


@examples(200)
@given(
    cron=st.builds("{} {} * * {}".format, st.integers(0, 59), st.integers(0, 23), DAY_OF_WEEK),
    duration=st.sampled_from(["1m", "8h", "24h", "90m", "36h"]),
    zone=st.sampled_from([{}, {"timeZone": "Europe/Berlin"}]),
    sets=st.fixed_dictionaries(
        {},
        optional={
            "roles": st.lists(BOUNDS, max_size=1),
            "slo": st.fixed_dictionaries(
                {}, optional={"ttft": st.just("2s"), "tpot": st.just("80ms"), "percentile": st.sampled_from([95, 99.5])}
            ),
            "earlyRejection": st.fixed_dictionaries({}, optional={"mode": st.just("Load"), "headroom": st.just(2.0)}),
            "paused": st.booleans(),
        },
    ),
)
def test_a_schedule_opened_in_the_builder_and_planned_untouched_is_the_same_schedule_or_is_not_opened(
    cron: str, duration: str, zone: dict[str, Any], sets: dict[str, Any]
) -> None:
    written = {"name": "n", "cron": cron, "duration": duration, **zone, **sets}
    try:
        schedule = read(ScheduleSpec, written, "spec")
    except InvalidInput:
        return
    form = form_of("p", (RoleBounds(name="both", least=0, most=8),), written)
    if form is not None:
        assert read(ScheduleSpec, {**schedule_of(form), "name": "n"}, "spec") == schedule
