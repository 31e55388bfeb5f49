"""Clients and engines that are slow, odd or many: each has a limit, an answer that names it, and a count."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import suppress
from typing import Any

import pytest

from fairlead_router.serving.client_requests import ClientRequest
from fairlead_router.settings import Timeouts
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello"}]}).encode()


async def _ready(world: World, engines: int = 1, **changes: Any) -> RunningRouter:
    await world.start_engines(engines)
    world.api.state.set_table(world.table())
    running = await world.start_router(**changes)
    await until(lambda: running.router.informing.synced)
    return running


async def _exchange(running: RunningRouter, *pieces: bytes, pause: float = 0.0, half_close: bool = False) -> bytes:
    """Return all bytes that the router answers to these pieces until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(pause)
    if half_close:
        writer.write_eof()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    finally:
        writer.close()


def _code(answer: bytes) -> str:
    code: str = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"]
    return code


def _post(*headers: bytes, length: bool = True) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    framing = b"content-length: %d\r\n" % len(BODY) if length else b""
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + lines + framing + b"\r\n"


# ── upgrades ──

H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA")
"""Headers that Java's HTTP client sends with every request over http://."""


@pytest.mark.parametrize("cut", [None, 1, 40])
async def test_an_offer_to_upgrade_is_passed_over_and_the_body_read(world: World, cut: int | None) -> None:
    running = await _ready(world)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    for _ in range(3):
        request = _post(*H2C) + BODY
        place = len(request) - len(BODY) + cut if cut is not None else len(request)
        writer.write(request[:place])
        await asyncio.sleep(0.02)
        writer.write(request[place:])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        assert json.loads(await reader.readexactly(length))["model"] == "mock"
    writer.close()
    seen = world.engines[0].seen
    assert [request["body"] for request in seen] == [json.loads(BODY)] * 3
    assert not {"upgrade", "http2-settings", "connection"} & seen[0]["headers"].keys()


async def test_an_upgrade_with_a_chunked_body_and_one_without_a_body_work_too(world: World) -> None:
    running = await _ready(world)
    chunked = _post(*H2C, b"transfer-encoding: chunked", length=False) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    bare = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + b"".join(line + b"\r\n" for line in H2C) + b"\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = await _exchange(running, chunked + bare + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert world.engines[0].seen[0]["body"] == json.loads(BODY)


async def test_a_client_that_offers_an_upgrade_cannot_smuggle_a_second_request_in_its_body(world: World) -> None:
    running = await _ready(world)
    both = _post(*H2C, b"transfer-encoding: chunked") + b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
    answer = await _exchange(running, both)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


# ── requests that cannot be read ──


@pytest.mark.parametrize(
    "rest",
    [
        _post(b"transfer-encoding: xchunked", length=False) + BODY,
        _post(b"transfer-encoding: chunked", length=False) + b"ffffffffffffffffff\r\nx",
        _post(b"transfer-encoding: chunked", length=False) + b"zz\r\nx",
        _post(b"content-length: 3"),
    ],
)
async def test_a_body_framed_in_no_known_way_is_a_400(world: World, rest: bytes) -> None:
    running = await _ready(world)
    answer = await _exchange(running, rest)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert _code(answer) == "invalid_http"
    assert not world.engines[0].seen
    await until(lambda: running.busy() == 0)


@pytest.mark.parametrize("sent", [_post() + BODY, _post() + BODY[:9], _post()[:30]])
async def test_a_client_that_closes_its_side_is_told_and_its_request_cancelled(world: World, sent: bytes) -> None:
    running = await _ready(world)
    sent = sent.replace(b"host: x", b"host: x\r\nx-script: silent")
    answer = await _exchange(running, sent, pause=0.1, half_close=True)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert _code(answer) == "half_closed"
    await until(lambda: running.busy() == 0)
    assert "half_closed" not in running.router.metrics.client_errors, "clients that leave look the same and are not errors"


async def test_a_body_larger_than_headers_may_be_can_come_with_the_last_byte_of_its_head(world: World) -> None:
    running = await _ready(world, max_header_bytes=1024)
    body = BODY + b" " * 4096
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    for cut in (1, 2, 3):
        assert (await _exchange(running, head[:-cut], head[-cut:] + body, pause=0.1)).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("depth", [255, 1000])
async def test_nesting_that_cannot_be_written_again_is_a_400(world: World, depth: int) -> None:
    running = await _ready(world)
    nested = '{"model": "default/chat", "messages": [{"role": "user", "content": "x"}], "metadata": ' + "[" * depth + "]" * depth + "}"
    for path in ("/v1/chat/completions", "/v1/messages", "/tokenize"):
        answer = await running.client.post(path, content=nested)
        assert answer.status_code == 400
        assert "nested too deeply" in answer.text
    assert running.busy() == 0


async def test_a_fault_of_the_routers_own_is_a_500_with_an_id_that_its_log_has(world: World, caplog: pytest.LogCaptureFixture) -> None:
    running = await _ready(world)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    running.router.pools.resolve = broken  # type: ignore[method-assign, assignment]
    answer = await running.ask()
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    (record,) = [record for record in caplog.records if record.message == "request failed in the router"]
    assert record.request == answer.headers["x-request-id"]  # type: ignore[attr-defined]
    anthropic = await running.client.post("/v1/messages", json=json.loads(BODY))
    assert anthropic.json()["error"]["type"] == "api_error"


# ── time ──


async def test_headers_that_come_too_slowly_are_a_408_however_steadily_they_trickle(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(header=0.4))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: ")
    first = asyncio.ensure_future(reader.readexactly(1))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not first.done():
            writer.write(b"a")
            await asyncio.wait([first], timeout=0.12)
        answer = await first + await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert _code(answer) == "headers_timeout"
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_client_errors_total{code="headers_timeout"} 1.0' in page


async def test_many_clients_with_half_a_head_are_all_ended(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(header=0.3))
    connections = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(100)]
    for _, writer in connections:
        writer.write(b"GET /healthz HTTP/1.1\r\nx-slow: ")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in await asyncio.gather(*(reader.read() for reader, _ in connections)))
    for _, writer in connections:
        writer.close()


async def test_idle_connections_are_closed_before_and_between_requests(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(keep_alive=2.0))
    assert await _exchange(running) == b""
    answer = await _exchange(running, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_answered_requests_leave_nothing_to_the_garbage_collector(world: World) -> None:
    """A reference cycle would cost a search, and until then each request would use memory that is not in the CPU's
    cache.
    """
    running = await _ready(world)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            assert (await _exchange(running, _post(b"Connection: close") + BODY)).startswith(b"HTTP/1.1 200 OK")
        assert not [one for one in gc.get_objects() if isinstance(one, ClientRequest)]
    finally:
        gc.enable()


async def test_a_second_head_that_dawdles_does_not_cut_the_answer_before_it(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(header=0.2))
    engine = world.engines[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    stepwise = json.dumps({**json.loads(BODY), "stream": True, "max_tokens": 3}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-script: stepwise\r\ncontent-length: %d\r\n\r\n%s" % (len(stepwise), stepwise)
    )
    writer.write(b"GET /heal")
    await asyncio.sleep(0.7)
    reading = asyncio.ensure_future(reader.read())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reading.done():
            engine.step.set()
            await asyncio.wait([reading], timeout=0.1)
    answer = await reading
    assert b"data: [DONE]" in answer
    assert b"408" in answer
    writer.close()


async def test_an_engine_that_falls_silent_between_tokens_is_given_up_with_an_error_event(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(idle=0.4))
    answer = await running.ask(stream=True, script="stepwise")
    error = json.loads(answer.text.strip().rsplit("data: ", 1)[1])["error"]
    assert error["code"] == "rejected-upstream-failed"
    assert "sent nothing for 0.4 s" in error["message"]
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.upstream_errors == {"stalled": 1}
    assert running.pool.counters.failed == 1
    await until(lambda: world.engines[0].disconnects == 1)


async def test_an_engine_that_keeps_talking_is_never_silent(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(idle=8.0))
    engine = world.engines[0]
    task = asyncio.create_task(running.ask(stream=True, script="stepwise", max_tokens=5))
    while not task.done():
        await asyncio.sleep(2.1)  # four of them are longer than the limit, each is much shorter
        engine.step.set()
    assert (await task).text.endswith("data: [DONE]\n\n")


async def test_a_slow_client_is_not_taken_for_a_silent_engine(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(idle=1.0))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=65536)
    body = json.dumps({**json.loads(BODY), "stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-script: flood\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
        % (len(body), body)
    )
    await asyncio.sleep(2.5)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    assert b"data: [DONE]" in answer
    writer.close()


@pytest.mark.parametrize("connection", [b"close", b"keep-alive"])
async def test_a_client_that_never_reads_its_answer_is_let_go_as_an_idle_one_is(world: World, connection: bytes) -> None:
    running = await _ready(world, timeouts=Timeouts(keep_alive=2.0))
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\ncontent-length: 12000000\r\n\r\n" + b"x" * 12_000_000
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1)
    writer.write(_post(b"x-script: raw", b"connection: " + connection) + BODY)
    await until(lambda: running.router.metrics.client_errors["answer_unread"] == 1)
    await until(lambda: not running.server.server_state.connections)
    with suppress(ConnectionResetError):
        assert len(await reader.read()) < 12_000_000, "it does not take the answer for complete"
    writer.close()


async def test_half_a_whole_answer_that_goes_silent_is_a_502(world: World) -> None:
    running = await _ready(world, timeouts=Timeouts(idle=0.3))
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
    answer = await running.ask(script="raw")
    assert answer.status_code == 502
    assert "sent nothing" in answer.json()["error"]["message"]


# ── how many ──


async def test_a_connection_too_many_is_told_so_and_a_free_place_is_taken_again(world: World) -> None:
    running = await _ready(world, max_connections=3)
    await running.client.aclose()
    held = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
    await until(lambda: len(running.server.server_state.connections) == 3)
    answer = await _exchange(running)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in answer
    assert _code(answer) == "too_many_connections"
    assert running.router.metrics.client_errors["too_many_connections"] == 1
    for _, writer in held:
        writer.close()
    await until(lambda: not running.server.server_state.connections)
    answer = await _exchange(running, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("max_retries", [0, 1, 5, 9])
async def test_retries_are_as_many_as_the_setting_says_and_the_status_is_always_the_same(world: World, max_retries: int) -> None:
    running = await _ready(world, engines=8, max_retries=max_retries)
    answer = await running.ask(script="hang-up")
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "rejected-upstream-failed"
    assert int(answer.headers["retry-after"]) >= 1
    assert sum(len(engine.seen) for engine in world.engines) == min(8, max_retries + 1)
    await until(lambda: running.busy() == 0)
    await until(lambda: bool(world.api.state.stored("rejections")))
    assert {row.status for row in world.api.state.stored("rejections")} == {502}


# ── keys ──

KEYS = ("the-first-of-the-keys", "the-second-of-the-keys")


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}, {"authorization": f"Basic {KEYS[0]}"}, {"x-api-key": KEYS[0][:-1]}],
)
async def test_without_a_key_nothing_but_health_is_answered(world: World, headers: dict[str, str]) -> None:
    running = await _ready(world, gateway_keys=KEYS)
    for method, path in (
        ("POST", "/v1/chat/completions"),
        ("POST", "/tokenize"),
        ("GET", "/v1/models"),
        ("GET", "/v1/responses/resp_1-i0"),
    ):
        answer = await running.client.request(method, path, content=BODY if method == "POST" else b"", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"
    anthropic = await running.client.post("/v1/messages", content=BODY, headers=headers)
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (401, "authentication_error")
    for path in ("/health", "/ping", "/version", "/healthz", "/readyz"):
        assert (await running.client.get(path, headers=headers)).status_code == 200
    assert not world.engines[0].seen
    assert running.router.metrics.client_errors["invalid_api_key"] == 5


async def test_each_key_opens_the_gateway_in_either_header_and_stays_there(world: World) -> None:
    running = await _ready(world, gateway_keys=KEYS)
    for key in KEYS:
        for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
            assert (await running.ask(headers=headers)).status_code == 200
            assert (await running.client.get("/v1/models", headers=headers)).status_code == 200
    assert not any({"authorization", "x-api-key"} & request["headers"].keys() for request in world.engines[0].seen)
