"""Plans of schedules: the pool's list after each action."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.errors import InvalidInput
from fairlead.pools import parse_spec
from fairlead_api.plans.kinds.schedule import is_for_admins, schedule_effect, schedule_patch
from fairlead_api.plans.merge_patches import merged

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
NIGHT = {"name": "night", "cron": "0 22 * * *", "duration": "8h", "timeZone": "UTC", "paused": False, "slo": {"ttft": "9s"}}
DAY = {"name": "day", "cron": "0 8 * * *", "duration": "2h", "timeZone": "Europe/Berlin", "paused": False, "slo": {"ttft": "2s"}}
SPEC = {"model": "m", "scaling": {"schedules": [DAY, NIGHT]}}


def planned(pool: dict[str, Any] = SPEC, now: datetime = MONDAY, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = schedule_patch(fields, pool, now)["scaling"]["schedules"]
    parse_spec({"model": "m", "scaling": {"schedules": found}})
    return found


def test_a_schedule_is_created_at_the_end_and_edited_in_its_place() -> None:
    wanted = {"cron": "0 9 * * *", "duration": "1h", "slo": {"ttft": "1s"}}
    written = wanted | {"timeZone": "UTC", "paused": False}
    assert planned({"model": "m"}, name="new", action="set", spec=wanted) == [{"name": "new"} | written]
    assert planned(name="new", action="set", spec=wanted) == [DAY, NIGHT, {"name": "new"} | written]
    assert planned(name="day", action="set", spec=wanted) == [{"name": "day"} | written, NIGHT]


def test_a_schedule_is_deleted_paused_and_resumed() -> None:
    assert planned(name="day", action="delete") == [NIGHT]
    paused = planned(name="day", action="pause")
    assert paused == [DAY | {"paused": True}, NIGHT]
    assert planned({"scaling": {"schedules": paused}}, name="day", action="resume") == [DAY, NIGHT]


def test_schedules_of_a_forecast_replace_each_other_and_nothing_else() -> None:
    first, second = ({"name": f"forecast-{name}", "followsForecast": True} | DAY | {"name": f"forecast-{name}"} for name in ("a", "b"))
    once = planned(name="forecast-", action="replace", schedules=[first])
    assert once == [DAY, NIGHT, first]
    assert planned({"scaling": {"schedules": once}}, name="forecast-", action="replace", schedules=[second]) == [DAY, NIGHT, second]
    assert planned({"scaling": {"schedules": once}}, name="forecast-", action="replace", schedules=[]) == [DAY, NIGHT]


def test_a_start_is_skipped_by_its_instant_and_run_again() -> None:
    skipped = planned(name="day", action="skip", start="2026-11-24T08:00:00+01:00")
    assert skipped[0]["skip"] == ["2026-11-24T07:00:00Z"]
    again = planned({"scaling": {"schedules": skipped}}, name="day", action="run", start="2026-11-24T07:00:00Z")
    assert again[0] == DAY | {"runAt": ["2026-11-24T07:00:00Z"]}
    assert planned({"scaling": {"schedules": again}}, name="day", action="skip", start="2026-11-24T07:00:00Z") == skipped


def test_starts_long_gone_are_cleared_away() -> None:
    old = DAY | {"skip": ["2026-01-05T07:00:00Z", "2026-11-20T07:00:00Z"], "runAt": ["2026-02-01T00:00:00Z"]}
    found = planned({"scaling": {"schedules": [old]}}, name="day", action="skip", start="2026-11-24T07:00:00Z")
    assert found == [DAY | {"skip": ["2026-11-20T07:00:00Z", "2026-11-24T07:00:00Z"]}]


def test_a_start_far_ahead_clears_none_that_is_still_to_come() -> None:
    monthly = DAY | {"cron": "0 8 1 * *", "timeZone": "UTC", "skip": ["2026-12-01T08:00:00Z"], "runAt": ["2026-12-24T08:00:00Z"]}
    skipped = planned({"scaling": {"schedules": [monthly]}}, name="day", action="skip", start="2027-05-01T08:00:00Z")
    assert skipped == [monthly | {"skip": ["2026-12-01T08:00:00Z", "2027-05-01T08:00:00Z"]}]
    added = planned({"scaling": {"schedules": [monthly]}}, name="day", action="run", start="2027-05-03T08:00:00Z")
    assert added == [monthly | {"runAt": ["2026-12-24T08:00:00Z", "2027-05-03T08:00:00Z"]}]
    later = planned(
        {"scaling": {"schedules": skipped}}, datetime(2027, 4, 1, tzinfo=UTC), name="day", action="run", start="2027-04-02T08:00:00Z"
    )
    assert later[0]["skip"] == ["2027-05-01T08:00:00Z"], "what is long gone still goes"


@pytest.mark.parametrize("written", ["skip", "runAt"])
def test_a_start_long_ago_clears_none_near_it(written: str) -> None:
    found = planned(
        {"scaling": {"schedules": [NIGHT | {written: ["2026-09-05T22:00:00Z"]}]}}, name="night", action="run", start="2026-09-06T01:00:00Z"
    )
    assert "2026-09-05T22:00:00Z" in found[0][written]


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"name": "day", "action": "stop"}, "fields.action", "pause"),
        ({"action": "pause"}, "fields.name", "name of a schedule"),
        ({"name": "noon", "action": "pause"}, "fields.name", "day, night"),
        ({"name": "day", "action": "pause", "at": "now"}, "fields.at", "remove it"),
        ({"name": "day", "action": "set"}, "fields.spec", "as a manifest has it"),
        ({"name": "day", "action": "set", "spec": {"cron": "0 0 31 2 *", "duration": "1h"}}, "fields.spec.cron", "no day 31 in Feb"),
        ({"name": "day", "action": "skip", "start": "tomorrow"}, "fields.start", "write an instant"),
        ({"name": "day", "action": "skip"}, "fields.start", "write an instant"),
        ({"name": "day", "action": "run", "start": "2026-11-24T07:00:00"}, "fields.start", "with its offset"),
        ({"name": "day", "action": "run", "start": "2026-11-24"}, "fields.start", "with its offset"),
        ({"name": "day", "action": "skip", "start": "0001-01-01T00:00:00Z"}, "fields.start", "2000 to 2199"),
        ({"name": "day", "action": "skip", "start": "9999-12-31T23:59:59-10:00"}, "fields.start", "2000 to 2199"),
        ({"name": "day", "action": ["skip"]}, "fields.action", "write one of"),
        ({"name": "day", "action": "replace"}, "fields.schedules", "write a list of schedules"),
        ({"name": "day", "action": "replace", "schedules": ["x"]}, "fields.schedules", "write a list of schedules"),
        ({"name": "day", "action": "replace", "schedules": [NIGHT]}, "fields.schedules[0].name", "begin it with fields.name, 'day'"),
        ({"name": "", "action": "replace", "schedules": [NIGHT]}, "fields.schedules[0].name", "begin it with fields.name"),
        ({"name": "d", "action": "replace", "schedules": [DAY | {"cron": "x"}]}, "fields.schedules[0].cron", "five fields"),
        ({"name": ["day"], "action": "skip"}, "fields.name", "name of a schedule"),
        ({"name": "day", "action": "skip", "start": "2026-11-24T07:30:00Z"}, "fields.start", "2026-11-25T07:00:00Z"),
    ],
)
def test_an_action_that_cannot_be_done_says_what_can(fields: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        schedule_patch(fields, SPEC, MONDAY)
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def test_a_paused_schedule_is_not_run() -> None:
    with pytest.raises(InvalidInput, match="resume it first"):
        planned({"scaling": {"schedules": [DAY | {"paused": True}]}}, name="day", action="run", start="2026-11-24T07:30:00Z")


def test_the_effect_says_what_holds_at_once_and_where_schedules_meet() -> None:
    roles = [{"name": "both", "minReplicas": 2, "maxReplicas": 3}]
    spec = parse_spec({"model": "m", "scaling": {"schedules": [DAY | {"roles": roles}, NIGHT | {"cron": "0 8 * * 1"}]}})
    effect = schedule_effect(spec, MONDAY.replace(hour=7, minute=30))
    assert effect.notes == [
        "The window of day is open until 2026-11-23 09:00:00 UTC.",
        "Schedule day bounds both to 2 to 3.",
        "Schedule day sets slo.ttft to 2s.",
        "The next change is at 2026-11-23 08:00:00 UTC.",
    ]
    assert effect.warnings == [
        "day and night are open together from 2026-11-23 08:00:00 UTC to 2026-11-23 09:00:00 UTC; night decides.",
    ]
    assert schedule_effect(parse_spec({"model": "m"}), MONDAY).notes == ["No window is open right after the change."]


def test_the_effect_names_every_override_and_the_schedule_that_decides_it() -> None:
    earlier = {"name": "earlier", "cron": "0 6 * * *", "duration": "4h", "slo": {"ttft": "9s", "percentile": 99}, "ratio": {"mode": "Auto"}}
    later = {
        "name": "later",
        "cron": "0 7 * * *",
        "duration": "4h",
        "slo": {"tpot": "50ms"},
        "earlyRejection": {"mode": "Load", "headroom": 0.8},
    }
    roles = [{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 2}]
    spec = parse_spec({"model": "m", "roles": roles, "scaling": {"schedules": [earlier, later]}})
    found = [line for line in schedule_effect(spec, MONDAY.replace(hour=8)).notes if " sets " in line]
    assert found == [
        "Schedule later sets slo.tpot to 50ms.",
        "Schedule later sets earlyRejection.mode to Load.",
        "Schedule later sets earlyRejection.headroom to 0.8.",
        "Schedule earlier sets ratio.mode to Auto.",
    ]


ROLES = {"name": "day", "cron": "0 8 * * *", "duration": "2h", "roles": [{"name": "both", "replicas": 3}]}
OVERRIDES: dict[str, Any] = {"slo": {"ttft": "9s"}, "earlyRejection": {"mode": "Load"}, "ratio": {"mode": "Auto"}}


def asks_for_admins(fields: dict[str, Any], *schedules: dict[str, Any]) -> bool:
    spec = {"scaling": {"schedules": [dict(one) for one in schedules]}}
    return is_for_admins(spec, merged(spec, schedule_patch(fields, spec, MONDAY)))


@pytest.mark.parametrize("section", OVERRIDES)
def test_a_schedule_that_sets_what_admins_set_is_for_admins_to_change_before_and_after(section: str) -> None:
    sets, start = ROLES | {section: OVERRIDES[section]}, "2026-11-24T08:00:00Z"
    for action, rest in (
        ("delete", {}), ("pause", {}), ("resume", {}), ("skip", {"start": start}), ("run", {"start": start}), ("set", {"spec": ROLES}),
    ):  # fmt: skip
        before = sets | {"paused": action == "resume"}
        assert asks_for_admins({"name": "day", "action": action, **rest}, before), action
        assert not asks_for_admins({"name": "day", "action": action, **rest}, ROLES | {"paused": action == "resume"}, NIGHT), action
    assert asks_for_admins({"name": "day", "action": "set", "spec": sets}, ROLES)
    assert asks_for_admins({"name": "new", "action": "set", "spec": sets})
    assert not asks_for_admins({"name": "new", "action": "set", "spec": ROLES}, sets)
