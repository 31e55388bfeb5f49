"""The page of a pool's objectives."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead_client.resources.slo import SloAttainment, SloBurn
from fairlead_testing.fakes.public_data import objectives
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import NOW as NOW_OF_VISITS
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.pool_slo import burning, changes, windows

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
PAGE = "/pools/default/chat/slo"


async def test_each_class_has_its_line_its_row_and_its_budget() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(PAGE)).text
        assert 'data-metrics="attainment goal" data-labels="all:|goal"' in " ".join(page.split())
        assert 'data-src="/pools/default/chat/series.json?from=now-24h&amp;to=now"' in page
        assert "burns lasting: above 1 over 3d" in page
        assert "classes none → batch (-10, 60.0 %)" in page


async def test_whole_tasks_have_a_row_for_each_class_and_version_with_a_target() -> None:
    async with visitor("viewer") as viewer:
        page = " ".join((await viewer.http.get(PAGE)).text.split())
        tasks = (await viewer.http.get("/pools/default/chat/tasks")).text
    assert "Whole tasks in time, by version and class" in page
    assert "2 h 30 min / 2 h" in page
    assert "targets of tasks none → batch (90 %: turns within 10 min and whole task within 2 h)" in page
    assert '<span class="badge warn">broken off</span>' in tasks
    assert tasks.count('data-label="Target"') == 2
    assert '<span class="muted">no target</span>' in tasks
    assert '<span class="muted">class default</span>' in tasks
    assert 'data-label="Last turn"' in tasks, "a task can go on after it"


async def test_tiles_and_table_have_the_same_numbers_whenever_the_range_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.attainment

    def later(now: datetime, pool: str) -> SloAttainment:
        whole = replace(known(now, pool).whole, requests=926, in_time=915, attainment=915 / 926, refused=7, failed=3)
        return replace(known(now, pool), whole=whole)

    monkeypatch.setattr(objectives, "attainment", later)
    async with visitor("viewer") as viewer:
        page = " ".join((await viewer.http.get(PAGE)).text.split())
    tiles = dict(re.findall(r'<dt>([^<]*)</dt> <dd> <span class="value[^"]*">([^<]*)</span>', page))
    assert {name: tiles[name] for name in ("Requests judged", "In time", "Refused", "Failed")} == {
        "Requests judged": "926",
        "In time": "98.8 %",
        "Refused": "7",
        "Failed": "3",
    }


async def test_a_long_number_is_not_broken_within_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.attainment
    monkeypatch.setattr(
        objectives, "attainment", lambda now, pool: replace(known(now, pool), whole=replace(known(now, pool).whole, requests=12_345_678))
    )
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(f"{PAGE}?from=now-24h&to=now")).text
    values = dict(re.findall(r'<span class="(value[^"]*)">([\d,]+)</span>', page))
    assert len(values["value long"]) > len("111,111") >= len(values["value"])


async def test_a_pool_without_targets_of_tasks_has_no_empty_table_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.tasks
    monkeypatch.setattr(objectives, "tasks", lambda now, pool: replace(known(now, pool), shares=[]))
    async with visitor("viewer") as viewer:
        assert "Whole tasks in time, by" not in (await viewer.http.get(PAGE)).text


async def test_the_budget_of_whole_tasks_is_told_by_class_and_unknown_where_no_task_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("viewer") as viewer:
        page = " ".join((await viewer.http.get(PAGE)).text.split())
        assert 'data-metrics="task_attainment"' in page
        assert '<td data-label="Budget left" class="num"> -150.0 % <span class="badge bad">overdrawn</span> </td>' in page
        assert page.count('<span class="muted">unknown</span>') == 5, "four windows and the budget of the class without a task"
        assert '<td data-label="Late / allowed, 30d" class="num"> 10 / 4.0 </td>' in page
        known = objectives.task_burns(NOW, CHAT)
        monkeypatch.setattr(objectives, "task_burns", lambda _now, _pool: replace(known, budgets=[], windows=[]))
        assert "Error budget of whole tasks" not in (await viewer.http.get(PAGE)).text


async def test_an_outage_that_no_request_lived_through_still_burns(monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.burn

    def outage(now: datetime, pool: str) -> SloBurn:
        burn = known(now, pool)
        return replace(burn, windows=[replace(one, burn=None, burn_of_all=10.0) for one in burn.windows])

    monkeypatch.setattr(objectives, "burn", outage)
    async with visitor("viewer") as viewer:
        page = " ".join((await viewer.http.get(PAGE)).text.split())
    assert '– <span class="muted">(10.00)</span>' in page


async def test_a_budget_of_which_too_little_is_kept_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    known = objectives.burn

    def a_week(now: datetime, pool: str) -> SloBurn:
        burn = known(now, pool)
        return replace(burn, budget_left=None, windows=[one for one in burn.windows if one.window != "30d"])

    async with visitor("viewer") as viewer:
        assert "of 30 days" in (await viewer.http.get(PAGE)).text
        monkeypatch.setattr(objectives, "burn", a_week)
        page = (await viewer.http.get(PAGE)).text
    assert "30 days are not kept" in page
    assert "of 30 days" not in page


async def test_other_targets_are_shown_and_lead_to_a_plan() -> None:
    async with visitor("admin") as admin:
        page = (await admin.http.get(f"{PAGE}?ttft=2s&tpot=100ms&percentile=95")).text
        assert "57.1 % would have been in time" in " ".join(page.split())
        assert '<input type="hidden" name="ttft" value="2s">' in page
        answer = await admin.submit("/pools/default/chat/plans", kind="slo", ttft="2s", tpot="100ms", percentile="95")
        assert answer.headers["location"].startswith("/plans/")


@pytest.mark.parametrize(("query", "words"), [("ttft=5", "with a unit"), ("percentile=most", "is not a number")])
async def test_a_target_that_cannot_be_asked_about_keeps_the_page_and_says_why(query: str, words: str) -> None:
    async with visitor() as operator:
        answer = await operator.http.get(f"{PAGE}?{query}")
        assert (answer.status_code, "Error budget" in answer.text) == (422, True)
        assert words in answer.text


def test_a_version_tells_what_it_changed() -> None:
    newer, older = objectives.versions(NOW, CHAT, 0.9)
    assert changes(older, newer).startswith("TTFT ")
    assert changes(older, replace(older, percentile=99.5)) == "goal 90 % → 99.5 %"
    assert changes(None, older) == ""


def test_a_young_pools_budget_has_no_window_that_repeats_the_one_before() -> None:
    burn = objectives.burn(NOW, CHAT)
    names = [name for name, _ in windows(burn, [], 20 * 60)]
    assert names == ["5m", "30m"]
    assert [name for name, _ in windows(burn, [], 80 * 86_400)] == list(dict.fromkeys(one.window for one in burn.windows))


@pytest.mark.parametrize("minutes", [3, 20, 50, 300, 80 * 1440])
def test_an_alert_names_no_time_that_the_table_beside_it_does_not_have(minutes: int) -> None:
    burn = objectives.burn(NOW, CHAT)
    burn = replace(burn, alerts=[replace(one, burning=True) for one in burn.alerts])
    listed = [name for name, _ in windows(burn, [], minutes * 60.0)]
    told = burning(burn, minutes * 60.0)
    assert len(told) == len(burn.alerts)
    assert all(words.rsplit(" over ")[1] in listed for words in told)


async def test_the_targets_of_a_young_pool_are_drawn_over_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor("viewer") as viewer:
        known, made = viewer.fake.world.pool, NOW_OF_VISITS - timedelta(minutes=9)
        monkeypatch.setattr(viewer.fake.world, "pool", lambda pool: replace(known(pool), created_at=made))
        slo, scaling = [(await viewer.http.get(f"/pools/default/chat/{tab}")).text for tab in ("slo", "scaling")]
    assert "series.json?from=now-15m&amp;to=now" in slo
    assert "series.json?from=now-15m&amp;to=now" in scaling


async def test_on_a_phone_a_card_of_the_list_names_its_version_beside_its_pool() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get("/slo")).text
    assert len(re.findall(r'<td data-label="Version" class="key">\s*version \d', page)) == page.count('data-label="Version"') > 1
