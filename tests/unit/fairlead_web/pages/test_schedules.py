"""The page of one schedule."""

import html
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from fairlead.schedules.runs import RunOutcome, RunReason
from fairlead.schedules.windows import Window
from fairlead_client.resources.pages import Page
from fairlead_client.resources.schedules import NextStart, ScheduleItem, ScheduleRun
from fairlead_testing.builders.wire_examples import example
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.fleet import next_starts
from fairlead_web.pages.schedules import opened

DAY = 'cron: "0 8 * * *"\nduration: 1h\nroles: [{name: both, minReplicas: 4}]'


async def test_what_is_in_force_names_the_schedule_that_decides_it_and_nobody_where_none_does() -> None:
    async with visitor() as viewer:
        answer = await viewer.http.get("/schedules/default/chat/night")
    assert answer.status_code == 200
    rows = {" ".join(row.split("</th>")[0].split(">")[-1].split()): row for row in answer.text.split('<th scope="row">')}
    assert "by night" in rows["SLO"]
    assert "by " not in rows["Ratio"]


async def test_a_new_schedule_begins_with_the_roles_of_its_pool_within_their_bounds() -> None:
    async with visitor("admin") as admin:
        roles = [{"name": "prefill", "minReplicas": 1, "maxReplicas": 5}, {"name": "decode", "minReplicas": 1}]
        admin.fake.world.spec_changes[CHAT] = {"replicas": 1, "roles": roles}
        admin.fake.world.roles_wanted[CHAT] = {"prefill": 4, "decode": 3}
        page = (await admin.http.get(f"/schedules?pool={CHAT}")).text
        first = (await admin.http.get("/schedules")).text
        text = html.unescape(page.split("<textarea", 1)[1].split(">", 1)[1].split("</textarea>", 1)[0])
        assert yaml.safe_load(text)["roles"] == [{"name": "prefill", "minReplicas": 5}, {"name": "decode", "minReplicas": 6}]
        assert f'name="pool" value="{CHAT}"' in first
        assert (await admin.submit("/schedules", pool=CHAT, name="day", spec=text)).status_code == 303
        assert (await admin.http.get("/schedules?pool=default/none")).status_code == 200


@pytest.mark.parametrize(
    ("pool", "spec", "told"),
    [
        ("default/chat", "cron: [1", "no valid YAML: line 1, column 9"),
        ("default/chat", "start: 2026-02-30", "Schedule: no valid YAML: line 1, column 8: 2026-02-30 is not a date that exists."),
        ("chat", "cron: 1", "write it as in default/chat"),
    ],
)
async def test_a_schedule_that_cannot_be_used_stays_in_the_form_beside_what_is_wrong(pool: str, spec: str, told: str) -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/schedules", pool=pool, name="night", spec=spec)
    assert answer.status_code == 422
    assert told in answer.text
    assert f'value="{pool}"' in answer.text
    assert f"{spec}</textarea>" in answer.text


async def test_a_changed_schedule_with_a_date_there_is_not_keeps_what_was_typed() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/schedules/default/chat/night/plans", action="set", spec="start: 2026-02-30")
    assert answer.status_code == 422
    assert "2026-02-30 is not a date that exists" in answer.text
    assert "start: 2026-02-30</textarea>" in answer.text


async def test_a_new_schedule_below_a_pool_is_that_pools_and_stays_there_when_it_is_refused() -> None:
    async with visitor("admin") as admin:
        at = f"/pools/{CHAT}/schedules"
        page = (await admin.http.get(at)).text
        assert 'name="pool"' not in page, "another pool has a page of its own"
        assert f'action="{at}"' in page
        refused = await admin.submit(at, name="day", spec="cron: [1")
        assert (refused.status_code, 'class="tabs"' in refused.text) == (422, 'class="tabs"' in page)
        assert (await admin.submit(at, name="day", spec=DAY)).status_code == 303
        assert {plan.pool for plan in admin.fake.book.plans.values()} == {CHAT}


@pytest.mark.parametrize(("role", "sets_slo", "may"), [("operator", False, True), ("operator", True, False), ("admin", True, True)])
async def test_a_schedule_that_sets_the_slo_is_changed_by_admins_only(role: str, sets_slo: bool, may: bool) -> None:
    night = {"name": "night", "cron": "0 22 * * *", "duration": "8h", "roles": [{"name": "both", "replicas": 2}]}
    async with visitor(role) as client:
        client.fake.world.spec_changes[CHAT] = {"scaling": {"schedules": [night | ({"slo": {"ttft": "9s"}} if sets_slo else {})]}}
        page = (await client.http.get("/schedules/default/chat/night")).text
        answer = await client.submit("/schedules/default/chat/night/plans", action="pause")
    buttons = [button.split(">")[0] for button in page.split('id="h-edit"')[1].split('id="h-preview"')[0].split("<button")[1:]]
    assert (len(buttons), {"disabled" not in button for button in buttons}) == (5, {may})
    assert ("This needs the role admin." in page) is not may
    assert ("ratio is for admins." in page) is (role == "operator")
    assert answer.status_code == (303 if may else 403)


async def test_an_operator_who_adds_an_slo_to_a_schedule_keeps_what_was_typed() -> None:
    typed = 'cron: "0 8 * * *"\nduration: 1h\nslo: {ttft: 9s}'
    async with visitor("operator") as operator:
        answer = await operator.submit("/schedules", pool=CHAT, name="day", spec=typed)
    assert "This needs the role admin" in answer.text
    assert f"{typed}</textarea>" in html.unescape(answer.text)


async def test_a_start_that_nothing_was_heard_of_is_not_said_to_have_had_no_window() -> None:
    async with visitor() as viewer:
        viewer.fake.world.schedule_runs = [replace(example(ScheduleRun), outcome=RunOutcome.SKIPPED, reason=RunReason.MISSED)]
        page = (await viewer.http.get("/schedules/default/chat/night")).text
    assert "never reported" in page


WEEKDAY_NIGHTS: dict[str, Any] = {
    "name": "night",
    "days": ["1", "2", "3", "4", "5"],
    "begins": "22:00",
    "ends": "06:00",
    "zone": "Europe/Berlin",
    "roles.0.minimum": "1",
    "roles.0.maximum": "2",
}


async def test_the_builder_plans_what_was_clicked_and_draws_its_week_before() -> None:
    async with visitor("admin") as admin:
        at = f"/pools/{CHAT}/schedules"
        page = (await admin.http.get(at)).text
        assert "the pool allows 0 to 64" in page
        drawn = await admin.submit(at, **WEEKDAY_NIGHTS, action="draw")
        assert drawn.status_code == 200
        assert "Windows of the coming seven days, in Europe/Berlin" in drawn.text
        assert "Sets 1 to 2 instances" in drawn.text
        assert not admin.fake.book.plans
        assert (await admin.submit(at, **WEEKDAY_NIGHTS, action="plan")).status_code == 303
        (plan,) = admin.fake.book.plans.values()
        assert "cron: 0 22 * * 1-5" in plan.patch


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zone": "Mars/Base"}, "write a time zone of the IANA database"),
        ({"begins": "late"}, "write a time of day"),
        ({"days": []}, "choose at least one day"),
        ({"roles.0.maximum": "99"}, "must lie within"),
        ({"roles.0.maximum": "", "roles.0.minimum": ""}, "a schedule must change something"),
        ({"name": "Not a name"}, "name"),
    ],
)
async def test_what_the_builder_refuses_stands_at_its_field_and_all_typed_stays(change: dict[str, Any], said: str) -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit(f"/pools/{CHAT}/schedules", **{**WEEKDAY_NIGHTS, **change}, action="plan")
        assert answer.status_code == 422
        assert 'id="built-problem"' in answer.text
        assert said in html.unescape(answer.text).split('id="built-problem"')[1].split("</p>")[0]
        assert 'name="ends" type="time" value="06:00"' in answer.text
        assert not admin.fake.book.plans


def test_a_week_has_no_window_from_before_the_schedule_was_made() -> None:
    now = datetime(2026, 11, 21, 10, tzinfo=UTC)
    windows = [Window(schedule="night", opens=now + timedelta(hours=at), closes=now + timedelta(hours=at + 8)) for at in (-12, 12)]
    other = Window(schedule="day", opens=now - timedelta(hours=2), closes=now + timedelta(hours=2))
    none: Page[ScheduleRun] = Page(items=[], next_cursor=None)
    ran = replace(none, items=[replace(example(ScheduleRun), schedule="night", start=windows[0].opens)])
    assert opened([*windows, other], "night", none, now) == [windows[1], other]
    assert opened([*windows, other], "night", ran, now) == [*windows, other]
    assert opened(windows, "night", None, now) == windows


async def test_the_overview_has_the_next_start_by_the_clock_of_its_schedule() -> None:
    starts = [NextStart(at=datetime(2026, 11, 23, 7, tzinfo=UTC), local="Mon 2026-11-23 08:00 CET")]
    item = replace(example(ScheduleItem), name="office-hours", paused=False, next_starts=starts)
    assert [(one.schedule, one.local) for one in next_starts([item])] == [("office-hours", "Mon 2026-11-23 08:00 CET")]


async def test_an_existing_schedule_opens_in_the_builder_unless_that_would_lose_something() -> None:
    spec = {"cron": "0 22 * * 1-5", "duration": "8h", "timeZone": "Europe/Berlin", "roles": [{"name": "both", "minReplicas": 1}]}
    night = replace(example(ScheduleItem), pool=CHAT, name="night", spec=spec, owner=None)
    first = replace(night, name="first", spec={**spec, "cron": "0 8 1 * *"})
    async with visitor("admin") as admin:
        admin.fake.world.schedules = [night, first]
        opened_ = (await admin.http.get(f"/pools/{CHAT}/schedules?edit=night")).text
        lost = (await admin.http.get(f"/pools/{CHAT}/schedules?edit=first")).text
        page = (await admin.http.get(f"/schedules/{CHAT}/night")).text
        other = (await admin.http.get(f"/schedules/{CHAT}/first")).text
    assert ">Change night</h2>" in opened_
    assert 'name="begins" type="time" value="22:00"' in opened_
    assert 'name="roles.0.minimum" type="number" value="1"' in opened_
    assert ">New schedule</h2>" in lost
    assert f'href="/pools/{CHAT}/schedules?edit=night#builder"' in page
    assert "#builder" not in other
