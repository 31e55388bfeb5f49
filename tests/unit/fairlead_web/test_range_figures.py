"""The figures of a page: one object for tiles, legends and sentences."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.latency_cells import EDGES, quantile
from fairlead_client.resources.figures import RangeFigures
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor
from fairlead_web import formats
from fairlead_web.range_figures import shown

START = datetime(2026, 11, 23, 4, 0, tzinfo=UTC)
PAGES = ("/", f"/pools/{CHAT}", f"/pools/{CHAT}/slo", f"/pools/{CHAT}/migrations", "/migrations", "/reroutes")


def range_values(page: str) -> dict[str, str]:
    found = re.findall(r'data-range-values="([^"]*)"', page)
    assert len(found) == 1, "one object for the whole page"
    values: dict[str, str] = json.loads(unescape(found[0]))
    return values


def tiles(page: str) -> dict[str, str]:
    found = re.findall(r'<div class="stat[^"]*">\s*<dt>([^<]+)</dt>\s*<dd>\s*<span class="value">([^<]*)</span>', page)
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
