"""The API's explorer: what it shows, and that a request of its page reaches the API as the person who is signed in."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_testing.running.web_client import ORIGIN, Visitor, visitor

DOCUMENT = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text(encoding="utf-8"))


async def asked(one: Visitor, given: object, **headers: str) -> httpx.Response:
    shown = (await one.http.get("/help")).text
    sent = {"x-csrf-token": one.form_token(shown), "origin": ORIGIN, "sec-fetch-site": "same-origin", **headers}
    return await one.http.post("/docs/call", content=json.dumps(given), headers={"content-type": "application/json", **sent})


async def test_the_document_has_every_operation_for_people_and_asks_for_no_token() -> None:
    async with visitor("viewer") as one:
        shown: dict[str, Any] = (await one.http.get("/docs/openapi.json")).json()
    public = {path for path in DOCUMENT["paths"] if path.startswith("/v1/")}
    assert shown["paths"].keys() == public - {"/v1/live"}
    assert "securitySchemes" not in shown["components"]
    assert not any("security" in operation for methods in shown["paths"].values() for operation in methods.values())


async def test_a_read_comes_back_as_the_api_answered_it() -> None:
    async with visitor("viewer") as one:
        answer = await asked(one, {"method": "GET", "path": "/v1/pools?limit=1"})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 1)


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 201)])
async def test_a_write_has_the_rights_of_the_person(role: str, status: int) -> None:
    plan = {"kind": "scale", "replicas": 3}
    async with visitor(role) as one:
        answer = await asked(one, {"method": "POST", "path": "/v1/pools/default/chat/plans", "body": json.dumps(plan)})
    assert answer.status_code == status, answer.text


async def test_a_page_of_another_site_and_one_without_the_form_token_reach_nothing() -> None:
    read = {"method": "GET", "path": "/v1/audit"}
    async with visitor("admin") as one:
        assert (await asked(one, read, **{"sec-fetch-site": "cross-site"})).status_code == 403
        assert (await asked(one, read, **{"x-csrf-token": "x"})).status_code == 403
        assert ("GET", "/v1/audit") not in one.fake.requests
        assert (await asked(one, read)).status_code == 200
        assert ("GET", "/v1/audit") in one.fake.requests


@pytest.mark.parametrize(
    "given",
    [
        {"method": "GET", "path": "/internal/v1/stream?router=r"},
        {"method": "GET", "path": "/v1/../internal/v1/stream"},
        {"method": "GET", "path": "/v1/live?topics=state"},
        {"method": "GET", "path": "http://elsewhere.example/v1/"},
        {"method": "GET", "path": "//elsewhere.example/v1/"},
        {"method": "GET", "path": 7},
        {"method": "TRACE", "path": "/v1/pools"},
        {"method": ["GET"], "path": "/v1/pools"},
        {"path": "/v1/pools"},
        [],
        None,
        "x",
    ],
)
async def test_what_the_page_does_not_send_is_refused_and_reaches_nothing(given: object) -> None:
    async with visitor("admin") as one:
        await one.http.get("/help")
        answer = await asked(one, given)
        assert answer.status_code == 422, answer.text
        assert all("live" not in path and "internal" not in path for _, path in one.fake.requests)


async def test_a_stranger_is_sent_to_sign_in() -> None:
    async with visitor("viewer") as one:
        one.http.cookies.clear()
        answer = await one.http.get("/docs")
    assert answer.status_code == 303
    assert "/login" in answer.headers["location"]
