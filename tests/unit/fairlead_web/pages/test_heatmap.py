"""A pool's heatmap over HTTP: its picture, clicks on it and its rows."""

import html
import re
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from fairlead.tables import SloFacts
from fairlead_api.loads.heatmaps import Limits
from fairlead_testing.fakes.public_data import explained_loads
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.heatmaps.cells import text_of
from fairlead_web.pages import heatmap

INSTANCE = INSTANCES[CHAT][2]


async def test_a_click_outside_the_picture_goes_back_to_the_heatmap() -> None:
    async with visitor() as operator:
        answer = await operator.http.get("/pools/default/chat/heatmap?metric=running&cell.x=99999&cell.y=1")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/pools/default/chat/heatmap?metric=running"


async def test_the_picture_is_not_sent_again_when_it_is_the_same() -> None:
    async with visitor() as operator:
        path = "/pools/default/chat/heatmap.png?from=2026-11-21T09:00:00Z&to=2026-11-21T10:00:00Z"
        first = await operator.http.get(path)
        assert first.headers["content-type"] == "image/png"
        again = await operator.http.get(path, headers={"if-none-match": first.headers["etag"]})
        assert again.status_code == 304


async def test_one_row_of_a_heatmap_can_be_asked_for_exactly() -> None:
    async with visitor() as operator:
        answer = (await operator.http.get(f"/pools/default/chat/heatmap.json?instance={INSTANCE}&metric=running")).json()
        assert [row["instance"] for row in answer["rows"]] == [INSTANCE]


async def test_rows_of_a_pool_of_two_roles_say_and_follow_their_roles() -> None:
    async with visitor() as operator:
        assert ">prefill<" not in (await operator.http.get("/pools/default/chat/heatmap?view=table")).text
        operator.fake.world.roles_wanted[CHAT] = {"prefill": 2, "decode": 6}
        page = (await operator.http.get("/pools/default/chat/heatmap?view=table")).text
        labels = page.split('class="heatmap-labels', 1)[1].split("</ol>", 1)[0]
        assert re.findall(r">(prefill|decode)<", labels) == ["prefill"] * 2 + ["decode"] * 6
        assert len(re.findall(r">(prefill|decode)<", page)) == 3 * 8, "picture, table and ranking"
        assert 'aria-current="true">by role</a>' in page


async def test_a_large_map_names_each_fifth_row(monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as operator:
        for most, named in ((8, 8), (7, 2)):
            monkeypatch.setattr(heatmap, "NAMED_ROWS", most)
            page = (await operator.http.get("/pools/default/chat/heatmap")).text
            labels = page.split('class="heatmap-labels', 1)[1].split("</ol>", 1)[0]
            assert (labels.count("<li "), labels.count("<a ")) == (8, named)


async def test_columns_of_a_table_over_days_say_their_day() -> None:
    async with visitor() as operator:
        for ends, shape in (("from=now-1h&to=now", r"\d\d:\d\d:\d\d"), ("from=now-30d&to=now", r"\d\d-\d\d \d\d:\d\d")):
            page = (await operator.http.get(f"/pools/default/chat/heatmap?view=table&{ends}")).text
            columns = re.findall(r'<th scope="col"[^>]*>([^<]+)</th>', page.split('id="heatmap-table"')[-1])
            times = [one.strip() for one in columns if re.match(r"\d\d", one.strip())]
            assert times
            assert all(re.fullmatch(shape, one) for one in times), times
            assert len(set(times)) == len(times)


async def test_the_pages_of_a_table_have_each_cell_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heatmap, "TABLE_ROWS", 3)
    monkeypatch.setattr(heatmap, "TABLE_COLUMNS", 25)
    async with visitor() as operator:

        async def shown(path: str) -> tuple[list[str], list[str], dict[str, str]]:
            """Return the columns and rows of a page, and the targets of its buttons."""
            panel = (await operator.http.get(path)).text.split('id="h-table"', 1)[1].split("</table>", 1)[0]
            columns = re.findall(r'<th scope="col" class="num">([^<]+)</th>', panel)
            rows = re.findall(r'<th scope="row">\s*<a [^>]*>([^<]+)<', panel)
            return (
                columns,
                rows,
                {words: html.unescape(to) for to, words in re.findall(r'<a class="button small" href="([^"]+)">([^<]+)<', panel)},
            )

        first = "/pools/default/chat/heatmap?view=table&from=2026-11-21T09:00:00Z&to=2026-11-21T10:00:00Z&columns=60"
        columns, rows, leads = await shown(first)
        assert (columns[-1], len(columns), len(rows), set(leads)) == ("09:59:00", 25, 3, {"Earlier", "Next rows"})
        seen, all_rows = list(columns), list(rows)
        while "Next rows" in leads:
            _, rows, leads = await shown(leads["Next rows"])
            all_rows += rows
        assert sorted(all_rows) == sorted(INSTANCES[CHAT])
        columns, _, leads = await shown(first)
        while "Earlier" in leads:
            columns, _, leads = await shown(leads["Earlier"])
            seen = [*(one for one in columns if one not in seen), *seen]
        assert seen == [f"09:{minute:02}:00" for minute in range(60)]
        assert columns[0] == "09:00:00"
        assert (await shown(leads["Later"]))[0] == [f"09:{minute:02}:00" for minute in range(25, 50)]


async def test_rows_can_be_groups_and_a_click_on_one_opens_no_instance() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/heatmap?group=node")).text
        assert 'aria-current="true">per node</a>' in page
        assert "data-worst" not in page, "a group has no explanation"
        answer = await operator.http.get("/pools/default/chat/heatmap?group=node&cell.x=3&cell.y=3")
        assert answer.headers["location"] == "/pools/default/chat/heatmap?group=node"


async def test_stacked_metrics_have_the_rows_of_the_first_and_can_be_removed() -> None:
    async with visitor() as operator:
        path = "/pools/default/chat/heatmap?metric=ttft_p95&sort=pain&stack=kv_usage,running,waiting,nonsense"
        page = (await operator.http.get(path)).text
        assert len(re.findall(r"\sdata-heatmap\s", page)) == 3, "three at most"
        lists = re.findall(r'<ol class="heatmap-labels.*?</ol>', page, re.DOTALL)
        names = [re.findall(r"chat-b\w+(?=\s*</a>)", labels) for labels in lists]
        assert names[0] == names[1] == names[2]
        assert "stack=running" in page
        assert "stack=kv_usage" in page


async def test_a_comparison_says_with_what_and_its_scale_has_signs() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/heatmap?compare=week&metric=kv_usage")).text
        assert "Compared with a week before" in page
        assert re.search(r">\+\d+\.\d %</text>", page)
        assert "/-/palettes/change.png" in page
        assert (await operator.http.get("/-/palettes/nope.png")).status_code == 404


async def test_the_explanation_has_its_own_page_and_is_part_of_the_heatmaps() -> None:
    async with visitor() as operator:
        path = f"/pools/default/chat/instances/{INSTANCE}/explanation?metric=ttft_p95"
        whole = (await operator.http.get(path)).text
        assert "<h1" in whole
        assert "Sessions that moved" in whole
        part = (await operator.http.get(path, headers={"fairlead-regions": "explanation"})).text
        assert "<h1" not in part
        assert 'class="why"' in part


@pytest.mark.parametrize("metric", ["pending_prefill_tokens", "ttft_p95", "hit_rate"])
async def test_the_summary_and_the_panel_are_about_one_cell_and_one_limit(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visitor() as operator:
        page = (await operator.http.get(f"/pools/default/chat/heatmap?metric={metric}&from=now-1h&to=now")).text
        shown = (await operator.http.get(f"/pools/default/chat/heatmap.json?metric={metric}&from=now-1h&to=now")).json()
        panel = urlsplit(html.unescape(re.findall(r'data-worst="([^"]+)"', page)[0]))
        asked = {name: values[0] for name, values in parse_qs(panel.query).items()}
        summary = re.findall(r'data-told="summary">([^<]+)<', page)[0]
        at = datetime.fromisoformat(asked["from"])
        assert f"on {panel.path.split('/')[-2]} at {at:%Y-%m-%d %H:%M:%S} UTC." in summary
        assert asked.get("limit") == (None if shown["limit"] is None else str(shown["limit"]))
        monkeypatch.setattr(explained_loads, "limits_of", lambda _: Limits(slo=SloFacts(), prefill_speed=1.0))  # measured anew
        found = (await operator.http.get(f"{panel.path}?{panel.query}")).text
        of_metric = re.findall(r'<tr class="asked">.*?</th>', found, re.S)[0]
        assert ("limit" in of_metric) == (shown["limit"] is not None)
        if shown["limit"] is not None:
            assert text_of(shown["limit"], shown["unit"]) in of_metric


@pytest.mark.parametrize("limit", ["", "nan", "inf", "-1", "0", "much"])
async def test_an_odd_limit_in_an_explanations_address_is_ignored(limit: str) -> None:
    async with visitor() as operator:
        answer = await operator.http.get(f"/pools/default/chat/instances/{INSTANCE}/explanation?metric=ttft_p95&limit={limit}")
        assert answer.status_code == 200


async def test_of_a_metric_of_which_little_hurts_the_lowest_are_ranked() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat/heatmap?metric=hit_rate")).text
        rows = (await operator.http.get("/pools/default/chat/heatmap.json?metric=hit_rate")).json()["rows"]
        lowest = min(value for row in rows for value in row["values"] if value is not None)
        ranking = page.split('id="h-ranked"', 1)[1]
        assert ranking.startswith(">Coldest instances<")
        assert f"{lowest * 100:.1f} %" in ranking.split("</tr>", 1)[0]
        assert ">Hottest instances<" in (await operator.http.get("/pools/default/chat/heatmap?metric=kv_usage")).text


async def test_a_region_that_cannot_be_read_is_refused_beside_its_form_with_what_was_typed() -> None:
    async with visitor() as operator:
        answer = await operator.http.get(f"/pools/default/chat/differences?instances={INSTANCE}&region_from=nonsense")
        assert answer.status_code == 422
        assert 'value="nonsense"' in answer.text
        assert 'role="alert"' in answer.text
