"""Answers of the gateway itself: bad input, limits, models, health, refusals."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from fairlead.tables import EarlyRejectionFacts, PoolKey
from fairlead_router.serving import http_server
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing import having_seen
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until


async def _raw(running: RunningRouter, data: bytes) -> bytes:
    """Return all bytes that the router answers to these bytes until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(data)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"model": 7, "messages": []}', "model"),
        (b'{"model": "mock"}', "messages"),
        (b'{"model": "mock", "messages": "hi"}', "messages"),
        (b'{"model": "mock", "messages": [{"content": "x"}], "stream": 7}', "stream"),
    ],
)
async def test_a_bad_body_is_a_400_and_reaches_no_engine(world: World, content: bytes, param: str | None) -> None:
    running = await world.ready()
    answer = await running.client.post("/v1/chat/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert not any(engine.seen for engine in world.engines)
    assert running.busy() == 0


async def test_an_unknown_model_is_a_404_naming_the_known_ones(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(model="gpt-none")
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": "model: 'gpt-none' is not served here; known: mock",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_the_bytes_of_a_token_are_learnt_from_whole_answers_and_from_streams_with_usage(world: World) -> None:
    running = await world.ready()
    for _ in range(10):
        await running.ask(text="two bytes each, ")  # the engine counts 8 tokens
        await running.ask(text="two bytes each, ", stream=True, stream_options={"include_usage": True})
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_bytes_per_token{pool="default/chat"} 2.75' in page
    assert 'fairlead_router_prompt_tokens_error{bytes_per_token="declared",pool="default/chat"} 0.3125' in page


async def test_several_pools_of_one_model_are_chosen_by_header(world: World) -> None:
    running = await world.ready()
    other = PoolKey(namespace="default", name="zeta")
    world.api.state.set_table(world.table(pool=other))
    await until(lambda: len(running.router.pools) == 2)
    assert (await running.ask()).headers["x-fairlead-pool"] == "default/chat"
    assert (await running.ask(headers={"x-fairlead-pool": "default/zeta"})).headers["x-fairlead-pool"] == "default/zeta"
    assert (await running.ask(headers={"x-fairlead-pool": "default/none"})).status_code == 404
    models = (await running.client.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == ["mock", "default/chat", "default/zeta"]
    assert (await running.client.get("/v1/models/default/zeta")).json()["root"] == "mock"


async def _with_a_limit_of_8_mib(world: World) -> RunningRouter:
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    running = await world.start_router(max_body_bytes=8 * 1024 * 1024)
    await until(lambda: running.router.informing.synced)
    return running


async def test_a_ten_megabyte_body_over_the_limit_is_a_413_with_and_without_a_length(world: World) -> None:
    running = await _with_a_limit_of_8_mib(world)
    text = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "x" * 10_000_000}]}).encode()
    answer = await running.client.post("/v1/chat/completions", content=text)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 65536):
            yield text[start : start + 65536]

    answer = await running.client.post("/v1/chat/completions", content=pieces())
    assert answer.status_code == 413
    assert not any(engine.seen for engine in world.engines)
    assert (await running.ask()).status_code == 200


async def test_a_slow_client_sends_its_too_large_body_to_the_end_and_reads_why_it_was_refused(world: World) -> None:
    running = await _with_a_limit_of_8_mib(world)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 2_000_000
            await asyncio.sleep(0.4)

    answer = await running.client.post("/v1/chat/completions", content=pieces(), headers={"content-length": "10000000"})
    assert answer.json()["error"]["code"] == "request_too_large"


async def test_a_body_just_under_the_limit_arrives_whole(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(text="ü" * 4_000_000)
    assert answer.status_code == 200
    (seen,) = [request for engine in world.engines for request in engine.seen]
    assert seen["body"]["messages"][0]["content"] == "ü" * 4_000_000


@pytest.mark.parametrize(
    "head",
    [
        b"x-long: " + b"a" * 70_000 + b"\r\n",
        b"".join(b"x-%d: %s\r\n" % (number, b"a" * 1000) for number in range(80)),
    ],
)
async def test_headers_over_64_kib_are_a_431(world: World, head: bytes) -> None:
    running = await world.ready()
    answer = await _raw(running, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n{}")
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "headers_too_large"


async def test_headers_and_trailers_over_64_kib_together_are_a_431(world: World) -> None:
    running, long = await world.ready(), b"a" * 40_000
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nx-long: " + long + b"\r\n\r\n"
    answer = await _raw(running, head + b"2\r\n{}\r\n0\r\nx-late: " + long + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


async def test_headers_that_never_end_are_a_431_before_they_fill_memory(world: World) -> None:
    running = await world.ready()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nx-endless: ")
    sent = 0
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sent < 10_000_000 and not reader.at_eof():
                writer.write(b"a" * 16384)
                await writer.drain()
                sent += 16384
                await asyncio.sleep(0)
    except ConnectionError:
        pass  # it hung up, as it should
    assert sent < 10_000_000
    writer.close()


async def test_headers_of_60_kib_are_fine_and_a_large_body_behind_them_too(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(text="y" * 300_000, headers={"x-long": "a" * 60_000})
    assert answer.status_code == 200


async def test_what_is_not_http_is_a_400(world: World) -> None:
    running = await world.ready()
    answer = await _raw(running, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405), ("GET", "/nothing", 404), ("POST", "/nothing", 404)],
)
async def test_wrong_methods_and_paths_are_told(world: World, method: str, path: str, status: int) -> None:
    running = await world.ready()
    answer = await running.client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_completions_and_embeddings_are_proxied_too(world: World) -> None:
    running = await world.ready()
    completion = await running.client.post("/v1/completions", json={"model": "mock", "prompt": ["a", "b"]})
    embedding = await running.client.post("/v1/embeddings", json={"model": "mock", "input": "text", "stream": True})
    assert completion.status_code == 200
    assert embedding.status_code == 200
    lines = [request["line"] for engine in world.engines for request in engine.seen]
    assert sorted(lines) == ["POST /v1/completions HTTP/1.1", "POST /v1/embeddings HTTP/1.1"]
    await until(lambda: running.busy() == 0)


async def test_readiness_means_a_table_or_knowing_there_is_none(world: World) -> None:
    await world.api.stop()
    running = await world.start_router()
    assert (await running.client.get("/readyz")).status_code == 503
    assert (await running.client.get("/healthz")).status_code == 200
    await world.api.start()
    await until(lambda: running.router.informing.synced)
    assert (await running.client.get("/readyz")).status_code == 200


async def test_a_table_that_cannot_be_used_is_refused_and_the_next_good_one_taken(world: World) -> None:
    running = await world.ready(parameters={"no_such": 1})
    assert (await running.ask()).status_code == 404
    assert running.router.metrics.tables_refused == 1
    world.api.state.set_table(world.table(version=2))
    await until(lambda: len(running.router.pools) == 1)
    assert (await running.ask()).status_code == 200
    world.api.state.set_table(world.table(version=3, parameters={"no_such": 1}))
    await until(lambda: running.router.metrics.tables_refused == 2)
    assert (await running.ask()).status_code == 200


async def test_a_pool_without_instances_is_a_503_with_a_reason(world: World) -> None:
    running = await world.ready(count=0)
    answer = await running.ask()
    assert answer.status_code == 503
    assert answer.headers["x-fairlead-rejection"] == "rejected-no-endpoints"
    assert int(answer.headers["retry-after"]) >= 1
    assert running.busy() == 0


async def test_early_rejection_is_a_429_with_retry_after(world: World) -> None:
    rejecting = EarlyRejectionFacts(mode="Load", headroom=0.001)
    running = await world.ready(count=1, prefills_in_flight=1, early_rejection=rejecting)
    having_seen(running.scheduler)
    assert (await running.ask(text="x" * 200_000)).status_code == 200, "an idle instance tries what an estimate would refuse"
    occupied = asyncio.create_task(running.ask(text="hello", script="stepwise", stream=True, max_tokens=2))
    await until(lambda: len(world.engines[0].seen) == 2)
    answer = await running.ask(text="y" * 200_000)
    assert answer.status_code == 429
    assert answer.headers["x-fairlead-rejection"] == "rejected-predicted-ttft"
    assert int(answer.headers["retry-after"]) >= 1
    world.engines[0].step.set()
    assert (await occupied).status_code == 200
    assert running.busy() == 0
    await until(lambda: bool(world.api.state.stored("rejections")))


async def test_metrics_and_the_debug_view_tell_pools_and_instances(world: World) -> None:
    running = await world.ready()
    await running.ask()
    await until(lambda: len(running.pool.engines.kv_usage) == 2)
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_requests_total{outcome="served",pool="default/chat"} 1.0' in page
    assert 'fairlead_router_kv_usage{instance="i0",pool="default/chat"} 0.5' in page
    debug = (await running.admin.get("/debug/pools")).json()["pools"][0]
    assert debug["table"]["version"] == 1
    assert debug["kv_usage"] == {"i0": 0.5, "i1": 0.5}
    assert [row["in_flight"] for row in debug["in_flight"]] == [0, 0]
    for path in ("/metrics", "/debug/pools"):
        assert (await running.client.get(path)).status_code == 404, "only on the operators' port"


async def test_a_router_that_stops_serves_its_clients_and_its_queue_and_takes_no_new_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LINGER_SECONDS", PATIENCE_SECONDS)
    running = await world.ready(count=1, prefills_in_flight=1)
    engine = world.engines[0]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{running.port}", trust_env=False, timeout=PATIENCE_SECONDS) as idle:
        assert (await idle.get("/readyz")).status_code == 200
        under_way = asyncio.create_task(running.ask(stream=True, script="silent"))
        await until(lambda: len(engine.seen) == 1)
        waiting = asyncio.create_task(running.ask(text="waits"))
        await until(lambda: running.pool.account.waiting == 1)
        running.router.informing.draining = True
        leaving = asyncio.create_task(running.server.let_clients_go(PATIENCE_SECONDS))
        await asyncio.sleep(0)
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient(trust_env=False) as late:
                await late.get(f"http://127.0.0.1:{running.port}/readyz")
        unready = await idle.get("/readyz")
        assert (unready.status_code, unready.headers["connection"]) == (503, "close")
        under_way.cancel()
        answered = await waiting
        assert (answered.status_code, answered.headers["connection"]) == (200, "close")
        await asyncio.wait_for(leaving, PATIENCE_SECONDS)
    assert running.busy() == 0


async def test_idle_clients_of_a_router_that_stops_are_let_go_after_a_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LINGER_SECONDS", 0.05)
    running = await world.ready(count=1)
    assert (await running.client.get("/readyz")).status_code == 200
    running.router.informing.draining = True
    await asyncio.wait_for(running.server.let_clients_go(PATIENCE_SECONDS), PATIENCE_SECONDS / 2)
    assert not running.server.server_state.connections


async def test_while_draining_new_requests_are_refused_and_old_ones_finish(world: World) -> None:
    running = await world.ready(count=1, timeouts=Timeouts(shutdown=2 * PATIENCE_SECONDS))
    engine = world.engines[0]
    old = asyncio.create_task(running.ask(stream=True, script="stepwise"))
    await until(lambda: len(engine.seen) == 1)
    draining = asyncio.create_task(running.router.drain())
    await until(lambda: running.router.informing.draining)
    refused = await running.ask()
    assert refused.status_code == 503
    assert refused.headers["x-fairlead-rejection"] == "rejected-shutting-down"
    assert (await running.client.get("/readyz")).status_code == 503
    assert not draining.done()
    while not old.done():
        engine.step.set()
        await asyncio.sleep(0.01)
    assert (await old).text.endswith("data: [DONE]\n\n")
    await draining


async def test_while_draining_what_waits_in_the_queue_is_refused_with_the_reason_and_what_runs_finishes(world: World) -> None:
    running = await world.ready(count=1, timeouts=Timeouts(shutdown=2 * PATIENCE_SECONDS), prefills_in_flight=1)
    engine = world.engines[0]
    under_way = asyncio.create_task(running.ask(stream=True, script="silent"))
    await until(lambda: len(engine.seen) == 1)
    waiting = asyncio.create_task(running.ask(stream=True, text="waits"))
    anthropic = {"model": "mock", "messages": [{"role": "user", "content": "waits too"}], "max_tokens": 3, "stream": True}
    waiting_too = asyncio.create_task(running.client.post("/v1/messages", json=anthropic))
    await until(lambda: running.pool.account.waiting == 2)
    draining = asyncio.create_task(running.router.drain())
    for refused in (await waiting, await waiting_too):
        assert refused.status_code == 503
        assert refused.headers["x-fairlead-rejection"] == "rejected-shutting-down"
        assert int(refused.headers["retry-after"]) >= 1
    assert (await waiting_too).json()["error"]["type"] == "overloaded_error"
    assert not draining.done(), "what runs may finish"
    under_way.cancel()
    await draining
    assert len(engine.seen) == 1
    assert running.busy() == 0


def _post(text: str, *headers: bytes, version: bytes = b"1.1", stream: bool = False) -> bytes:
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": text}], "stream": stream}).encode()
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"POST /v1/chat/completions HTTP/%s\r\nhost: x\r\n%scontent-length: %d\r\n\r\n%s" % (version, lines, len(body), body)


async def test_pipelined_requests_are_answered_in_order_each_with_its_own_answer(world: World) -> None:
    running = await world.ready(count=1)
    requests = (_post("one", stream=True), _post("two" * 30_000), _post("three", b"connection: close", stream=True))
    answer = await _raw(running, b"".join(requests))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"data: [DONE]") == 2
    assert [request["body"]["messages"][0]["content"][:5] for request in world.engines[0].seen] == ["one", "twotw", "three"]
    await until(lambda: running.busy() == 0)


async def test_a_client_that_leaves_with_requests_in_its_pipeline_cancels_the_one_under_way(world: World) -> None:
    running = await world.ready(count=1)
    _, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(_post("one", b"x-script: silent"))
    await until(lambda: len(world.engines[0].seen) == 1)
    writer.close()
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.cancelled == 1


async def test_http_1_0_gets_a_body_without_chunks_that_ends_with_the_connection(world: World) -> None:
    running = await world.ready(count=1)
    answer = await _raw(running, _post("x", version=b"1.0", stream=True))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_client_that_asks_first_is_told_to_go_on_or_that_its_body_is_too_large(world: World) -> None:
    running = await world.ready(count=1)
    head, _, body = _post("x", b"expect: 100-continue", b"connection: close").partition(b"\r\n\r\n")
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(head + b"\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    writer.close()
    refused = await _raw(
        running, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    )
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in refused


async def test_a_body_that_does_not_come_is_a_408(world: World) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(timeouts=Timeouts(body=0.2))
    await until(lambda: running.router.informing.synced)
    answer = await _raw(running, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_connection_serves_many_requests_one_after_the_other(world: World) -> None:
    running = await world.ready()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    for number in range(20):
        writer.write(_post(f"turn {number}"))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        assert json.loads(await reader.readexactly(length))["model"] == "mock"
    writer.close()
    at_once = 3  # this request, its metrics and models, and whether it tells KV events
    assert running.router.upstream.opened <= 2 * at_once, "upstream connections are kept alive too"
