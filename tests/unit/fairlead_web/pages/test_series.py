"""The numbers of charts as a table, as files, and as charts fetch them."""

import re
from datetime import UTC, datetime, timedelta

from fairlead_client.resources.series import Drawn, SeriesLine
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.pages.series import csv_rows, rows

START = datetime(2026, 11, 23, 4, 0, tzinfo=UTC)


def a_line(metric: str, unit: str, step: int, *values: float | None) -> SeriesLine:
    return SeriesLine(metric=metric, part=None, unit=unit, drawn=Drawn.LINE, start=START, step_seconds=step, values=list(values))


def test_lines_of_different_steps_share_a_table_in_which_a_gap_is_empty() -> None:
    found = rows([a_line("running", "requests", 30, 3.0, None, 5.0), a_line("ttft_p95", "seconds", 60, 0.5, 1.25)])
    assert found == [(START + timedelta(minutes=1), ["5", "1.3 s"]), (START, ["3", "500 ms"])]


def test_the_csv_has_a_row_for_each_number_that_is_known() -> None:
    told = list(csv_rows([a_line("running", "requests", 30, 3.0, None, 0.0)]))
    assert told[1:] == [
        ["running", "", "requests", "2026-11-23T04:00:00Z", "30", "3"],
        ["running", "", "requests", "2026-11-23T04:01:00Z", "30", "0"],
    ]


async def test_the_same_numbers_come_as_page_json_and_csv_for_every_subject() -> None:
    async with visitor("viewer") as one:
        for path in ("", f"/pools/{CHAT}", f"/pools/{CHAT}/instances/{INSTANCES[CHAT][0]}"):
            query = "metrics=requests,running&from=now-30m&to=now"
            assert "requests/s" in (await one.http.get(f"{path}/series?{query}")).text
            found = (await one.http.get(f"{path}/series.json?{query}")).json()
            assert [line["metric"] for line in found["series"]["lines"]] == ["requests", "running"]
            assert found["annotations"]["complete"] is True
            assert (await one.http.get(f"{path}/series.csv?{query}")).text.splitlines()[0].startswith("\ufeffmetric,part,unit"), (
                "spreadsheets know UTF-8 by the mark"
            )
        refused = await one.http.get("/series.json?metrics=speed")
        assert refused.status_code == 422
        assert (await one.http.get("/pools/default/nowhere/series.json?metrics=requests")).json()["series"]["lines"] == []


async def test_charts_say_that_filters_do_not_narrow_them() -> None:
    async with visitor("viewer") as one:
        assert "the other filters do not apply" not in (await one.http.get("/migrations")).text
        assert (await one.http.get("/migrations?trigger=drain")).text.count('data-note="all of them; the other filters do not apply"') == 2
        assert 'data-note="all priority classes"' in (await one.http.get("/rejections?priority_class=batch")).text


async def test_until_when_a_window_is_open_is_a_time_of_day() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get(f"/pools/{CHAT}/series?metrics=requests&from=now-6h&to=now")).text
        assert re.search(r", until\s+<time datetime=\"[^\"]+\" data-absolute>\d{4}-", page)
