"""The figures of a page: one object for tiles, legends and sentences."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.latency_cells import EDGES, quantile
from fairlead_client.resources.figures import RangeFigures
from fairlead_testing.fakes.public_data import objectives
from fairlead_testing.fakes.public_data.advice import WINDOW
from fairlead_testing.fakes.public_data.figures import figures_of_instance
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.drawing.range_figures import of_objectives, shown, shown_instance
from fairlead_web.text import formats
from fairlead_web.text.time_ranges import parse_range

START = datetime(2026, 11, 23, 4, 0, tzinfo=UTC)
PAGES = ("/", f"/pools/{CHAT}", f"/pools/{CHAT}/slo", f"/pools/{CHAT}/migrations", "/migrations", "/reroutes")


def range_values(page: str) -> dict[str, str]:
    found = re.findall(r'data-range-values="([^"]*)"', page)
    assert len(found) == 1, "one object for the whole page"
    values: dict[str, str] = json.loads(unescape(found[0]))
    return values


def tiles(page: str) -> dict[str, str]:
    found = re.findall(r'<div class="stat[^"]*">\s*<dt>([^<]+)</dt>\s*<dd>\s*<span class="value[^"]*">([^<]*)</span>', page)
    return {name: " ".join(value.split()) for name, value in found}


@pytest.mark.parametrize("path", PAGES)
async def test_a_pages_tiles_and_the_legends_of_its_charts_are_the_same_figures(path: str) -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get(f"{path}?from=now-1h&to=now")).text
    values, of_tiles = range_values(page), tiles(page)
    assert {"attainment", "ttft_attainment", "refused", "migrations", "ttft_p95"} <= values.keys()
    for name, metric in (
        ("In time", "attainment"),
        ("TTFT in time", "ttft_attainment"),
        ("Refused", "refused"),
        ("Prefix hit rate", "hit_rate"),
        ("TTFT p95", "ttft_p95"),
        ("Sessions moved", "migrations"),
    ):
        assert of_tiles.get(name, values[metric]) == values[metric]
    assert " /s" not in "".join(of_tiles.values()) and " /h" not in "".join(of_tiles.values()), "counts of the range, and no rates"


def test_what_was_sent_to_instances_is_accounted_for() -> None:
    found = RangeFigures(start=START, end=START, judged=851, refused=48, sent=985, completed_sends=870, failed_sends=30, cancelled_sends=80)
    assert shown(found).sends.startswith(
        "Sent to instances: 985. Ended there: 870 completed, 30 failed, 80 cancelled by clients. "
        "5 more were sent than ended, because some still ran at the end. A request counts"
    ), "those that still ran may be more: some that ended were sent before"
    earlier = replace(found, completed_sends=880, cancelled_sends=80)
    assert "80 cancelled by clients. 5 more ended than were sent, because some were sent before. A request" in shown(earlier).sends
    running = replace(found, completed_sends=0, failed_sends=0, cancelled_sends=0)
    assert "Ended there: none. 985 more were sent than ended" in shown(running).sends
    assert shown(RangeFigures(start=START, end=START)).sends == ""
    assert shown(replace(found, complete_until=START)).sends == ""


async def test_a_pools_page_says_why_more_requests_were_sent_than_asked_for() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get(f"/pools/{CHAT}?from=now-1h&to=now")).text
    sent = range_values(page)["requests"]
    assert f"Sent to instances: {sent}. " in page


def ends(start: str) -> tuple[datetime, datetime]:
    """Return the ends of the range from `start` to now."""
    found = parse_range(start, "now", NOW)
    return found.start, found.end


def rows(page: str) -> dict[str, dict[str, str]]:
    """Return the cells of the list of pools, by pool and column label."""
    found = {}
    for key, row in re.findall(r'<tr data-key="([^"]+)"[^>]*>(.*?)</tr>', page, re.DOTALL):
        cells = re.findall(r'<td data-label="([^"]+)"[^>]*>(.*?)</td>', row, re.DOTALL)
        found[key] = {label: " ".join(re.sub(r"<[^>]+>", " ", cell).split()) for label, cell in cells}
    return found


def facts(page: str, pool: str) -> dict[str, str]:
    """Return the figures of a pool's card on the overview."""
    card = page.split(f'<article id="card-{pool.replace("/", "%2F")}"')[1].split("</article>")[0]
    found = re.findall(r"<dt[^>]*>([^<]+)</dt>\s*<dd>(.*?)</dd>", card, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", " ", value).split()) for name, value in found}


@pytest.mark.parametrize("start", ["now-2m", "now-1h", "now-7h", "now-3d"])
async def test_every_page_of_a_pool_has_one_number_for_one_thing(start: str) -> None:
    async with visitor("viewer") as one:
        asked = {"from": start, "to": "now"}
        overview, listed, own, slo = [
            (await one.http.get(path, params=asked)).text for path in ("/", "/pools", f"/pools/{CHAT}", f"/pools/{CHAT}/slo")
        ]
        of_pool = shown(one.fake.world.figures(CHAT, *ends(start))).texts
    row, card, tile = rows(listed)[CHAT], facts(overview, CHAT), tiles(own)
    assert row["In time"].startswith(f"{of_pool['attainment']} goal") and card["In time"].startswith(f"{of_pool['attainment']} goal")
    assert row["TTFT at goal"].startswith(of_pool["ttft"]) and tile["In time"] == of_pool["attainment"]
    of_table = of_objectives(objectives.attainment(NOW, CHAT))
    assert {name: range_values(slo)[name] for name in of_table} == of_table, "the tiles of this page are those of its table"
    for name, in_card, in_tile, figure in (
        ("Hit rate", "Hit rate", "Prefix hit rate", "hit_rate"),
        ("Requests", "Requests", "Requests", "asked"),
        ("Moved", "Moved", "Sessions moved", "migrations"),
    ):
        assert row[name] == card[in_card] == tile[in_tile] == of_pool[figure]
    assert row["Refused"] == tile["Refused"] == card["Refused"].split()[0] == of_pool["refused"]


@pytest.mark.parametrize("start", ["now-2m", "now-1h", "now-3d"])
async def test_an_instances_page_has_the_present_and_the_range_apart_and_legends_as_its_tiles(start: str) -> None:
    async with visitor("viewer") as one:
        name = INSTANCES[CHAT][0]
        page = (await one.http.get(f"/pools/{CHAT}/instances/{name}", params={"from": start, "to": "now"})).text
        texts = shown_instance(figures_of_instance(one.fake.world.figures(CHAT, *ends(start)), len(INSTANCES[CHAT]))).texts
    assert range_values(page) == texts
    of_tiles = tiles(page)
    for words, figure in (
        ("Requests", "requests"),
        ("Failed", "failed"),
        ("TTFT in time", "ttft_attainment"),
        ("Highest TTFT p95", "ttft_p95"),
        ("Prefix hit rate", "hit_rate"),
    ):
        assert of_tiles[words] == texts[figure]
    assert "last 5 min" not in page.split('id="load"')[1].split("</section>")[0], "no third range beside the present and the page's"


async def test_a_finding_says_of_which_time_it_is() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get("/?from=now-24h&to=now")).text
    told = re.findall(r'class="muted finding-when">([^<]+)<', page)
    assert len(told) == page.count('<div class="finding ') > 0
    assert f"Last {formats.span(WINDOW)}" in told and "Last 24 h" not in told, "its own minutes, whatever the page's range"


async def test_figures_that_are_behind_are_unknown_and_every_page_says_so() -> None:
    async with visitor("viewer") as one:
        one.fake.world.behind[CHAT] = 720.0
        for path in (*PAGES, "/pools", "/sessions", f"/pools/{CHAT}/instances", "/advice"):
            page = (await one.http.get(path)).text
            assert "Figures are 12 min behind" in re.sub(r"<[^>]+>", "", page), path
        pool = (await one.http.get(f"/pools/{CHAT}?from=now-5m&to=now")).text
        assert (tiles(pool)["In time"], tiles(pool)["Requests"], tiles(pool)["Prefix hit rate"]) == (formats.NONE,) * 3
        assert "ready, figures behind" in pool or "out of SLO" in pool or "InstancesLost" in pool
        assert "0.0" not in tiles(pool).values()
        for path in ("/", f"/pools/{CHAT}", f"/pools/{CHAT}/slo", f"/pools/{CHAT}/instances/{INSTANCES[CHAT][1]}"):
            page = (await one.http.get(path)).text
            assert "counted until 2026-11-21 09:48:00 UTC" in page, f"{path} says it at its numbers"
        one.fake.world.behind.clear()
        assert "counted until" not in (await one.http.get(f"/pools/{CHAT}")).text


@given(st.dictionaries(st.integers(0, len(EDGES)), st.integers(1, 1000), min_size=1), st.floats(0.01, 1.0))
def test_a_latency_is_shown_with_no_more_digits_than_its_step_holds(counts: dict[int, int], share: float) -> None:
    found = quantile(counts, share)
    assert found is not None
    text = formats.latency(found)
    number, unit = text.split()
    assert len(number.replace(".", "").lstrip("0").rstrip("0")) <= 2, "two digits"
    read = float(number) / (1000 if unit == "ms" else 1)
    assert read == pytest.approx(found, rel=0.051, abs=5e-5)


def test_latencies_read_like_those_that_were_measured() -> None:
    assert [formats.latency(value) for value in (None, 0.0, 0.0021, 0.0421, 0.314, 0.996, 4.217, 12.4, 123.0)] == [
        formats.NONE,
        "0 ms",
        "2.1 ms",
        "42 ms",
        "310 ms",
        "1.0 s",
        "4.2 s",
        "12 s",
        "120 s",
    ]


def test_what_is_not_counted_yet_is_neither_good_nor_bad() -> None:
    nothing = RangeFigures(start=START, end=START + timedelta(minutes=5), judged=10, in_time=0, complete_until=START)
    found = shown(nothing)
    assert not found.below(90) and not found.above(1.0)
    assert set(found.texts.values()) == {formats.NONE}
    known = shown(RangeFigures(start=START, end=START + timedelta(minutes=5), judged=10, in_time=8, ttft_in_time=9, refused=10))
    assert known.below(90)
    assert (known.texts["attainment"], known.texts["ttft_attainment"], known.texts["served_in_time"]) == ("80.0 %", "90.0 %", "40.0 %")
