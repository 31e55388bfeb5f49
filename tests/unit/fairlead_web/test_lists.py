"""Lists as pages, CSV and JSON: the filter decides what is in them, the page only how many are shown at once."""

import csv
import io
import re

import pytest

from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import visitor

LISTS = (
    "/pools",
    "/sessions",
    "/migrations",
    "/decisions",
    "/rejections",
    "/slo",
    "/audit",
    "/pools/default/chat/instances",
    "/pools/default/chat/spec",
)


@pytest.mark.parametrize("path", LISTS)
async def test_lists_come_as_csv_and_json_too(path: str) -> None:
    async with visitor() as operator:
        table = await operator.http.get(f"{path}.csv")
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert "attachment" in table.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert rows
        assert (await operator.http.get(f"{path}.json")).json()


async def test_an_export_has_all_rows_of_the_filter_and_the_page_fifty() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/migrations?pool=default/chat")).text
        rows = list(csv.DictReader(io.StringIO((await operator.http.get("/migrations.csv?pool=default/chat")).text)))
        assert len(rows) == 104
        assert {row["pool"] for row in rows} == {CHAT}
        assert page.count("<tr data-key=") == 50
        assert "50 of 104 shown" in page
        following = re.search(r'href="([^"]+)" rel="next"', page)
        assert following is not None
        second = (await operator.http.get(following[1].replace("&amp;", "&"))).text
        assert second.count("<tr data-key=") == 50


async def test_the_flow_matrix_sums_to_the_list() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/migrations?pool=research/code")).text
        cells = [int(count) for count in re.findall(r'class="heat-\d"[^>]*>(\d+)</a>', page)]
        assert sum(cells) == 26
        assert "26 migrations" in page
