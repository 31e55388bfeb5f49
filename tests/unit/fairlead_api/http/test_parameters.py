"""Query parameters: every endpoint refuses unknown ones, after it has checked that the caller may use it."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_api.app import create_api
from fairlead_api.http.strictness import OPEN
from fairlead_testing.running.api import SECRETS, settings_for
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[4] / "docs" / "openapi.json").read_text(encoding="utf-8"))
"""The stored document, which `test_openapi.py` compares with the code.

Generating it would take more than a second in each process that collects these tests.
"""
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]
API = create_api(settings_for("postgresql+psycopg://nobody@localhost/none"))
"""An API without a database: caller and parameters are checked before the database is needed."""


async def asked(method: str, path: str, query: str, role: str = "admin") -> httpx.Response:
    url = re.sub(r"\{[^}]*\}", "7", path)
    async with httpx.AsyncClient(base_url="http://api.test", transport=StreamingAsgiTransport(API)) as http:
        return await http.request(method, f"{url}?{query}", headers={"authorization": f"Bearer {SECRETS[role]}"})


@pytest.mark.parametrize(("path", "method"), [one for one in OPERATIONS if not one[0].startswith(OPEN)])
async def test_no_endpoint_takes_a_parameter_that_the_document_does_not_name(path: str, method: str) -> None:
    answered = await asked(method, path, "no_such=1")
    problem = answered.json()
    assert (answered.status_code, problem["type"], problem["field"], problem["value"]) == (422, "invalid-input", "no_such", "1")
    known = [one["name"] for one in DOCUMENT["paths"][path][method].get("parameters", ()) if one["in"] == "query"]
    told = set(problem["remedy"].partition("known parameters: ")[2].split(", ")) - {""}
    assert told == set(known)


async def test_the_near_one_is_named() -> None:
    problem = (await asked("GET", "/v1/migrations", "Limits=3&from=now-1h")).json()
    assert (problem["field"], problem["detail"]) == ("Limits", "Limits: '3' cannot be used")
    assert problem["remedy"].startswith("write limit; known parameters: cursor, limit, ")


async def test_of_two_values_none_is_ignored_where_one_counts() -> None:
    problem = (await asked("GET", "/v1/migrations", "limit=3&limit=4")).json()
    assert (problem["field"], problem["value"], problem["remedy"]) == ("limit", "3, 4", "write it once")
    several = await asked("GET", "/v1/pools/a/b/ring", "remove=x&remove=y&no_such=1")
    assert several.json()["field"] == "no_such"


async def test_who_may_not_ask_hears_that_first() -> None:
    assert (await asked("GET", "/v1/tokens", "no_such=1", "viewer")).status_code == 403


async def test_a_newer_router_may_tell_what_this_api_does_not_know() -> None:
    answered = await asked("GET", "/internal/v1/held-pools", "no_such=1", "system-operator")
    assert answered.status_code == 503  # it was let through to the database, which is away
