"""Lists as pages, CSV and JSON: the filter decides their rows, the page only the number shown at once."""

import csv
import io
import re
from html import unescape

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
    "/pools/default/chat/ring",
    "/pools/default/chat/slo/attainment",
    "/migrations/matrix",
    "/pools/default/chat/reroutes/matrix",
    "/keys",
)


WRITTEN_FROM = {
    "/keys": "cursor=0",
    "/notices": "cursor=7&kind=slo",
    "/settings": "cursor=7&sessions=8",
}
"""Pages whose lists have buttons in their rows, or forms below them."""
PREFERENCES = {"/settings", "/logout"}


@pytest.mark.parametrize(("path", "place"), WRITTEN_FROM.items())
async def test_each_write_from_a_list_leads_back_to_the_place_in_the_list(path: str, place: str) -> None:
    async with visitor("admin") as admin:
        shown = (await admin.http.get(f"{path}?{place}")).text
    actions = [unescape(one) for one in re.findall(r'<form[^>]*?method="post"[^>]*?action="([^"]+)"', shown)]
    written = [one for one in actions if one.split("?")[0] not in PREFERENCES]
    assert written
    assert [one for one in written if not one.endswith(f"?{place}")] == []


@pytest.mark.parametrize("path", LISTS)
async def test_lists_come_as_csv_and_json_too(path: str) -> None:
    async with visitor() as operator:
        table = await operator.http.get(f"{path}.csv")
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert "attachment" in table.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(table.text)))
        assert rows
        assert (await operator.http.get(f"{path}.json")).json()


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("/keys", "/keys"),
        ("/settings", "/settings/tokens"),
        ("/settings", "/settings/sessions"),
        ("/pools/default/chat/ring?add=1", "/pools/default/chat/ring"),
        ("/pools/default/chat/slo", "/pools/default/chat/slo/attainment"),
        ("/migrations?pool=default/chat&trigger=drain", "/migrations/matrix"),
    ],
)
async def test_a_table_beside_a_list_has_a_file_of_its_own_of_what_the_page_shows(page: str, file: str) -> None:
    async with visitor("admin") as admin:
        shown = (await admin.http.get(page)).text
        for kind in ("csv", "json"):
            (link,) = set(re.findall(rf'href="({file}\.{kind}[^"]*)"', shown))
            assert ("add=1" in link) == ("add=1" in page)
            assert (await admin.http.get(link.replace("&amp;", "&"))).status_code == 200


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
