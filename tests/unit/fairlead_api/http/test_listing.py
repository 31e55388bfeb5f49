"""Lists: only the requested fields, in both orders, and whole exports in constant memory."""

import csv
import io
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI

from fairlead_api.http import problems
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.spans import Span
from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.pages import Page
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

ROWS = 100_000
ANYBODY = Caller(identity=Identity(subject="ann", role=AccessRole.VIEWER, source="token", expires_at=None), key=b"", request_id="r1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: int
    name: str
    words: list[str]


def numbered(last: int) -> Fetch:
    """Return rows from `last` down to 1, which are made when they are read."""

    async def fetch(span: Span) -> Page[Row]:
        step = 1 if span.reverse else -1
        begin = int(span.cursor) + step if span.cursor is not None else (1 if span.reverse else last)
        numbers = [number for number in range(begin, begin + step * span.limit, step) if 1 <= number <= last]
        more = bool(numbers) and numbers[-1] != (last if span.reverse else 1)
        rows = [Row(id=number, name=f"=row {number}", words=["a", "b"]) for number in numbers]
        return Page(items=rows, next_cursor=str(numbers[-1]) if more else None)

    return fetch


def served(last: int, fetch: Fetch | None = None, exported_by: str = "") -> httpx.AsyncClient:
    async def chosen() -> Fetch:
        return fetch or numbered(last)

    routes = Routes()
    listing(routes, "/rows", Row, lambda: ANYBODY, chosen, by="-id", exported_by=exported_by)
    app = FastAPI(routes=routes.routes)
    problems.install(app)
    return httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(app))


async def test_a_page_has_only_the_fields_asked_for() -> None:
    async with served(9) as http:
        assert (await http.get("/rows", params={"fields": "name, id", "limit": 2})).json()["items"] == [
            {"name": "=row 9", "id": 9},
            {"name": "=row 8", "id": 8},
        ]
        assert (await http.get("/rows.csv", params={"fields": "id"})).text.split() == ["id", *"987654321"]
        assert (await http.get("/rows.json", params={"fields": "id"})).json()["items"][-1] == {"id": 1}


@pytest.mark.parametrize(("fields", "told"), [("nmae", "id, name, words"), (" , ", "leave it out")])
async def test_a_field_that_is_not_known_is_refused_with_those_that_are(fields: str, told: str) -> None:
    async with served(9) as http:
        for path in ("/rows", "/rows.csv", "/rows.json"):
            answered = await http.get(path, params={"fields": fields})
            assert (answered.status_code, answered.json()["field"]) == (422, "fields")
            assert told in answered.json()["remedy"]
            assert answered.json()["remedy"] not in answered.json()["detail"]


async def test_a_list_is_turned_around_page_by_page() -> None:
    async with served(5) as http:
        first = (await http.get("/rows", params={"sort": "id", "limit": 3})).json()
        then = (await http.get("/rows", params={"sort": "id", "limit": 3, "cursor": first["next_cursor"]})).json()
        assert [row["id"] for row in first["items"] + then["items"]] == [1, 2, 3, 4, 5]
        assert then["next_cursor"] is None
        refused = await http.get("/rows", params={"sort": "name"})
        assert (refused.status_code, refused.json()["field"]) == (422, "sort")


@pytest.mark.parametrize("last", [0, 1, 500, 501, 1201])
async def test_an_export_has_every_row_once(last: int) -> None:
    async with served(last) as http:
        rows = list(csv.reader(io.StringIO((await http.get("/rows.csv")).text)))
        assert rows[0] == ["id", "name", "words"]
        assert [int(row[0]) for row in rows[1:]] == list(range(last, 0, -1))
        document = (await http.get("/rows.json")).json()
        assert [row["id"] for row in document["items"]] == list(range(last, 0, -1))
        assert (document["next_cursor"], document["total"]) == (None, last)


async def test_an_export_is_asked_for_as_a_whole_and_only_in_its_own_order() -> None:
    asked: list[Span] = []

    async def fetch(span: Span) -> Page[Row]:
        asked.append(span)
        return Page(items=[], next_cursor=None)

    async with served(1, fetch, exported_by="name") as http:
        for path in ("/rows", "/rows.csv", "/rows.json"):
            assert (await http.get(path)).status_code == 200
        refused = [(await http.get(path, params={"sort": "id"})).status_code for path in ("/rows", "/rows.csv", "/rows.json")]
    assert [span.whole for span in asked] == [False, True, True, False]
    assert refused == [200, 422, 422]


async def parts(http: httpx.AsyncClient, path: str) -> AsyncIterator[bytes]:
    async with http.stream("GET", path) as response:
        assert response.status_code == 200
        async for part in response.aiter_raw():
            yield part


@pytest.mark.parametrize("kind", ["csv", "json"])
async def test_a_hundred_thousand_rows_take_no_more_memory_than_a_few_pages(kind: str) -> None:
    async with served(ROWS) as http:
        assert json.loads((await http.get("/rows", params={"limit": 1})).content)["items"]
        tracemalloc.start()
        size = 0
        async for part in parts(http, f"/rows.{kind}"):
            size += len(part)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > 2_500_000
    assert most < 8_000_000, "the whole takes many times as much"
