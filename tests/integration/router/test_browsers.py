"""Pages in browsers: preflights, and answers of every kind that a page of another origin may read; ids of requests."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

PAGE = "https://chat.example.com"
CHAT = {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}
ENGINES_ANSWER = (
    b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\nvary: Accept\r\n"
    b"x-request-id: engines-own\r\ncontent-length: 45\r\n\r\n"
    b'{"choices": [{"message": {"content": "hi"}}]}'
)


async def _ready(world: World, *keys: GatewayKeyFacts, **settings: Any) -> RunningRouter:
    await world.start_engines(1)
    world.api.state.set_gateway_keys(*keys)
    world.api.state.set_table(world.table())
    running = await world.start_router(gateway_keys_required=bool(keys), **settings)
    await until(lambda: running.router.informing.synced)
    return running


def _allowed(answer: httpx.Response) -> list[str]:
    return answer.headers.get_list("access-control-allow-origin")


async def test_a_page_of_a_listed_origin_may_ask_and_read_every_answer(world: World) -> None:
    key = GatewayKeyFacts(id="k", digest=sha256(b"secret-of-the-page").hexdigest())
    running = await _ready(world, key, cors_origins=(PAGE,))
    preflight = await running.client.request(
        "OPTIONS",
        "/v1/chat/completions",
        headers={"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"},
    )
    assert (preflight.status_code, preflight.content) == (204, b"")
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
    shown = {"origin": PAGE, "authorization": "Bearer secret-of-the-page"}
    world.engines[0].raw = ENGINES_ANSWER
    answers = [
        preflight,
        await running.client.post("/v1/chat/completions", json=CHAT, headers=shown),
        await running.client.post("/v1/chat/completions", json={**CHAT, "stream": True}, headers=shown),
        await running.client.post("/v1/chat/completions", json=CHAT, headers={**shown, "x-script": "raw"}),
        await running.client.post("/v1/chat/completions", json=CHAT, headers={"origin": PAGE}),
        await running.client.post("/v1/chat/completions", json={**CHAT, "model": "none"}, headers=shown),
        await running.client.post("/v1/chat/completions", content=b"{", headers=shown),
        await running.client.post("/tokenize", json=CHAT, headers=shown),
        await running.client.get("/v1/models", headers=shown),
        await running.client.get("/health", headers={"origin": PAGE}),
        await running.client.get("/nothing", headers=shown),
        await running.client.put("/v1/models", headers=shown),
        await running.client.post("/v1/chat/completions", content=b" " * 40_000_000, headers=shown),
    ]
    assert [answer.status_code for answer in answers] == [204, 200, 200, 200, 401, 404, 400, 200, 200, 200, 404, 405, 413]
    for answer in answers:
        assert _allowed(answer) == [PAGE]
        assert "Origin" in answer.headers["vary"]
        assert "x-fairlead-rejection" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


async def test_a_page_of_another_origin_is_allowed_nothing(world: World) -> None:
    running = await _ready(world, cors_origins=(PAGE,))
    asked = {"origin": "https://other.example.com", "access-control-request-method": "POST"}
    preflight = await running.client.request("OPTIONS", "/v1/chat/completions", headers=asked)
    assert (preflight.status_code, preflight.json()["error"]["code"]) == (403, "origin_not_allowed")
    answer = await running.ask(headers={"origin": "https://other.example.com"})
    assert (_allowed(preflight), _allowed(answer), answer.headers["vary"]) == ([], [], "Origin")


async def test_without_the_setting_no_answer_speaks_of_origins_not_even_for_an_engine(world: World) -> None:
    running = await _ready(world)
    world.engines[0].raw = ENGINES_ANSWER
    answer = await running.ask(script="raw", headers={"origin": PAGE})
    assert (answer.status_code, _allowed(answer)) == (200, [])
    preflight = {"origin": PAGE, "access-control-request-method": "POST"}
    assert (await running.client.request("OPTIONS", "/v1/chat/completions", headers=preflight)).status_code == 405


async def test_a_request_that_is_no_http_is_answered_for_its_page_too(world: World) -> None:
    running = await _ready(world, cors_origins=("*",))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\norigin: https://chat.example.com\r\nx-request-id: mine\r\ncontent-length: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"access-control-allow-origin: *\r\n" in answer
    assert b"x-request-id: mine\r\n" in answer


# ── ids of requests ──


async def test_every_answer_tells_the_id_that_its_client_gave(world: World) -> None:
    running = await _ready(world)
    named = {"x-request-id": "mine-1"}
    world.engines[0].raw = ENGINES_ANSWER
    answers = [
        await running.ask(headers=named),
        await running.ask(headers=named, stream=True),
        await running.ask(headers=named, script="raw"),
        await running.ask(headers=named, model="none"),
        await running.client.post("/v1/chat/completions", content=b"{", headers=named),
        await running.client.post("/tokenize", json=CHAT, headers=named),
        await running.client.get("/v1/models", headers=named),
        await running.client.get("/health", headers=named),
        await running.client.get("/nothing", headers=named),
    ]
    assert [answer.headers.get_list("x-request-id") for answer in answers] == len(answers) * [["mine-1"]]
    assert {request["headers"]["x-request-id"] for request in world.engines[0].seen} == {"mine-1"}


async def test_without_one_of_its_client_an_answer_tells_the_routers_id_and_never_the_engines(world: World) -> None:
    running = await _ready(world)
    world.engines[0].raw = ENGINES_ANSWER
    for script in ("raw", "complete"):
        answer = await running.ask(script=script)
        assert answer.headers.get_list("x-request-id") == [world.engines[0].seen[-1]["headers"]["x-request-id"]]
    refused = [await running.ask(model="none"), await running.client.get("/nothing"), await running.client.post("/tokenize", content=b"{")]
    ids = [one.headers["x-request-id"] for one in refused]
    assert all(one.startswith("router-0-") for one in ids)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("given", ["x" * 1000, "a\tb", "é"])
async def test_an_id_that_is_long_or_not_printable_is_not_told_back(world: World, given: str) -> None:
    running = await _ready(world)
    answer = await running.ask(headers={"x-request-id": given.encode("latin-1")})
    assert answer.headers["x-request-id"].startswith("router-0-")


# ── paths that end in a slash ──


@pytest.mark.parametrize(
    ("method", "path", "seen"),
    [
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("POST", "/v1/messages/?beta=true", "/v1/messages?beta=true"),
        ("POST", "/tokenize/", "/tokenize"),
        ("GET", "/v1/responses/resp-i0/", "/v1/responses/resp-i0"),
        ("GET", "/v1/models/", None),
        ("GET", "/v1/models/mock/", None),
        ("GET", "/health/", None),
    ],
)
async def test_a_path_may_end_in_a_slash_and_its_engine_sees_none(world: World, method: str, path: str, seen: str | None) -> None:
    running = await _ready(world)
    answer = await running.client.request(method, path, json={**CHAT, "prompt": "hi"} if method == "POST" else None)
    assert answer.status_code == 200
    assert {request["line"].split()[1] for request in world.engines[0].seen} == ({seen} - {None})


@pytest.mark.parametrize("path", ["/", "//", "/v1/chat/completions//", "/nothing/"])
async def test_other_slashes_are_no_path(world: World, path: str) -> None:
    running = await _ready(world)
    assert (await running.client.post(f"http://127.0.0.1:{running.port}{path}", json=CHAT)).status_code == 404
