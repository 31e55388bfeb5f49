"""The page of a pool's objectives."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead_client.resources.slo import SloPoint
from fairlead_testing.fakes.public_data import objectives
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web.attainment_charts import attainment_chart
from fairlead_web.pages.pool_slo import changes

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
PAGE = "/pools/default/chat/slo"


async def test_each_class_has_its_line_its_row_and_its_budget() -> None:
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(PAGE)).text
        assert "class batch: 75.2 % of 133 in time, 12 refused" in page
        assert page.count('<circle class="series-') == 6
        assert "burns lasting: above 1 for 3d" in page
        assert "classes none → batch (-10, 60.0 %)" in page


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


def test_a_line_is_broken_where_nothing_ended_and_the_axis_begins_below_the_worst() -> None:
    def point(minute: int, in_time: int, requests: int = 100) -> SloPoint:
        return SloPoint(
            at=NOW + timedelta(minutes=minute), priority_class="default", requests=requests, in_time=in_time, refused=0, failed=0
        )

    points = [point(0, 95), point(1, 90), point(2, 0, 0), point(3, 81)]
    chart = attainment_chart(points, NOW, NOW + timedelta(minutes=4), 60, 99.0)
    (line,) = chart.lines
    assert (line.path.count("M"), line.path.count("L"), chart.lowest) == (2, 1, 0.8)
    assert [dot.x for dot in line.dots] == [135.0, 405.0, 945.0]
    assert chart.goal.y < line.dots[0].y
    assert attainment_chart([], NOW, NOW + timedelta(minutes=4), 60, 99.0).lines == ()


def test_a_version_tells_what_it_changed() -> None:
    newer, older = objectives.versions(NOW, CHAT, 0.9)
    assert changes(older, newer).startswith("TTFT ")
    assert changes(older, replace(older, percentile=99.5)) == "goal 90 % → 99.5 %"
    assert changes(None, older) == ""
