"""The host sends each path to the component it belongs to."""

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.errors import InvalidInput
from fairlead_api.settings import Settings
from fairlead_host.app import BesideWeb, create_app


def named(name: str) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": name.encode()})

    return app


@pytest.mark.parametrize(
    ("path", "answers"),
    [
        ("/v1/pools", "api"),
        ("/v1", "api"),
        ("/internal/reports", "api"),
        ("/healthz", "api"),
        ("/openapi.json", "api"),
        ("/", "web"),
        ("/pools", "web"),
        ("/v10", "web"),
        ("/metrics-of-mine", "web"),
    ],
)
async def test_paths_of_the_api_go_to_the_api_and_all_others_to_the_web_ui(path: str, answers: str) -> None:
    transport = httpx.ASGITransport(app=BesideWeb(named("api"), named("web")))
    async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
        assert (await client.get(path)).text == answers


async def test_the_web_ui_asks_the_api_of_its_own_process() -> None:
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none", auth_mode="none")
    transport = httpx.ASGITransport(app=create_app(settings, "http://127.0.0.1:8080"))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        alive = await client.get("/healthz")
        page = await client.get("/login")
    assert alive.headers["content-type"].startswith("application/json")
    assert page.headers["content-type"].startswith("text/html")


def test_a_public_url_that_nobody_can_open_is_refused_before_anything_is_served() -> None:
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(InvalidInput, match="FAIRLEAD_PUBLIC_URL"):
        create_app(settings, "ftp://x")
