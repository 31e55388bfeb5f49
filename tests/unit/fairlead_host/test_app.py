"""The host sends each path to the component to which it belongs."""

from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from fairlead.errors import InvalidInput
from fairlead_api.access.guards import IN_PROCESS
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
        ("/docs", "web"),
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


async def test_no_header_makes_a_stranger_the_web_ui_of_this_process() -> None:
    """In the mode without login, pages of other sites get no access. The web UI in the API's process is not such a
    page.
    """
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none", auth_mode="none")
    app: Any = create_app(settings, "http://127.0.0.1:8080")
    believing: Any = ProxyHeadersMiddleware(app, trusted_hosts="127.0.0.1")  # as uvicorn does
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=believing), base_url="http://evil.example:8080") as client:
        for said in ("in-process", IN_PROCESS.strip(), f"in-process, {IN_PROCESS.strip()}"):
            answer = await client.post("/v1/login", json={"token": ""}, headers={"x-forwarded-for": said})
            assert answer.status_code == 403
