"""Requests through a real router to engines over loopback: headers passed and withheld, and failures of both ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fairlead.tables import Outlook
from fairlead_router.relaying import proxying
from fairlead_router.settings import Timeouts
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import USAGE, RunningRouter, World, until


async def _settled(running: RunningRouter) -> None:
    await until(lambda: running.busy() == 0)
    assert running.router.metrics.accounting_errors == 0


async def test_an_answer_passes_with_headers_that_say_what_was_decided(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(headers={"x-fairlead-instance": "i9", "x-custom": "kept", "x-request-id": "mine"})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert answer.headers["x-fairlead-pool"] == "default/chat"
    assert answer.headers["x-fairlead-instance"] == answer.json()["engine"]
    assert answer.headers["x-fairlead-reason"] == "round-robin"
    assert answer.headers["x-fairlead-decision"]
    assert int(answer.headers["x-fairlead-queued-ms"]) < 1000 * PATIENCE_SECONDS
    engine = next(engine for engine in world.engines if engine.seen)
    headers = engine.seen[0]["headers"]
    assert headers["x-custom"] == "kept"
    assert headers["x-request-id"] == "mine"
    assert headers["host"] == engine.address
    assert not any(name.startswith("x-fairlead") for name in headers)
    await _settled(running)
    assert running.pool.counters.served == 1
    assert running.pool.counters.output_tokens == 3


async def test_trailers_of_a_request_do_not_pass_for_headers(world: World) -> None:
    running = await world.ready(count=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "x"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nx-kept: 1\r\n\r\n"
    writer.write(head + b"%x\r\n%s\r\n0\r\nx-script: bad-request\r\nx-session-id: s\r\nconnection: x-kept\r\n\r\n" % (len(body), body))
    assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
    headers = world.engines[0].seen[0]["headers"]
    assert headers["x-kept"] == "1"
    assert not {"x-script", "x-session-id"} & headers.keys()
    writer.close()
    await _settled(running)


async def test_a_client_may_name_the_pool_and_the_engine_sees_the_model(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(model="default/chat", temperature=0.5)
    assert answer.json()["model"] == "mock"
    (seen,) = [request for engine in world.engines for request in engine.seen]
    assert seen["body"]["temperature"] == 0.5


async def test_streams_are_passed_on_chunk_by_chunk(world: World) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 4}
    async with running.client.stream("POST", "/v1/chat/completions", json=document, headers={"x-script": "stepwise"}) as answer:
        pieces = answer.aiter_raw()
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_SECONDS):
                piece = await anext(pieces)
            assert piece.count(b"data: ") == 1
            engine.step.set()
        rest = b"".join([piece async for piece in pieces])
    assert rest.endswith(b"data: [DONE]\n\n")
    await _settled(running)
    assert running.pool.counters.served == 1
    assert running.pool.counters.output_tokens == 4


async def test_usage_asked_for_by_the_client_is_read_from_the_stream(world: World) -> None:
    running = await world.ready()
    answer = await running.ask(stream=True, stream_options={"include_usage": True})
    assert '"cached_tokens": 2' in answer.text
    await _settled(running)
    await until(lambda: any(load.completed for load in world.api.state.stored("loads")))
    (load,) = [load for load in world.api.state.stored("loads") if load.completed]
    assert (load.output_tokens, load.hit_tokens) == (3, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_its_request_at_the_engine(world: World, stream: bool) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    script = "stepwise" if stream else "silent"
    task = asyncio.create_task(running.ask(stream=stream, script=script))
    await until(lambda: len(engine.seen) == 1)
    await until(lambda: running.busy() > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: engine.disconnects == 1)
    await _settled(running)
    assert running.pool.counters.cancelled == 1


async def test_a_client_that_leaves_the_queue_is_forgotten_and_the_next_is_served(world: World) -> None:
    running = await world.ready(count=1, prefills_in_flight=1)
    engine = world.engines[0]
    first = asyncio.create_task(running.ask(stream=True, script="silent"))
    await until(lambda: len(engine.seen) == 1)
    second = asyncio.create_task(running.ask(stream=True, text="two"))
    await until(lambda: running.pool.account.waiting == 1)
    third = asyncio.create_task(running.ask(stream=True, text="three"))
    await until(lambda: running.pool.account.waiting == 2)
    second.cancel()
    await until(lambda: running.pool.account.waiting == 1)
    first.cancel()
    assert (await third).status_code == 200
    assert [request["body"]["messages"][0]["content"] for request in engine.seen] == ["hello", "three"]
    await _settled(running)
    assert running.pool.counters.cancelled == 2


@pytest.mark.parametrize("script", ["error-500", "hang-up", "busy"])
async def test_a_failing_engine_is_replaced_before_the_first_byte(world: World, script: str) -> None:
    running = await world.ready(count=3)
    for _ in range(3):
        answer = await running.ask(script=f"{script}@i0", stream=True)
        assert answer.status_code == 200
        assert answer.headers["x-fairlead-instance"] != "i0"
    await _settled(running)
    assert running.pool.counters.served == 3
    assert running.pool.counters.retries == len(world.engines[0].seen) > 0


@pytest.mark.parametrize(("script", "tries", "words"), [("error-500", 2, "failed in the same way on"), ("hang-up", 3, "no instance")])
async def test_when_every_try_fails_the_client_gets_a_reason_and_tries_are_bounded(
    world: World, script: str, tries: int, words: str
) -> None:
    running = await world.ready(count=5)
    answer = await running.ask(script=script)
    assert answer.status_code == 502
    assert answer.headers["x-fairlead-rejection"] == "rejected-upstream-failed"
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-upstream-failed"
    assert answer.json()["error"]["code"] == "rejected-upstream-failed"
    assert words in answer.json()["error"]["message"]
    assert (answer.headers.get("x-should-retry") == "false") is ("retry-after" not in answer.headers) is (tries == 2)
    assert sum(len(engine.seen) for engine in world.engines) == tries
    await _settled(running)


async def test_an_engine_that_is_not_there_is_replaced(world: World) -> None:
    running = await world.ready(count=2)
    await world.engines[0].stop()
    for _ in range(4):
        assert (await running.ask()).json()["engine"] == "i1"
    await _settled(running)


async def test_an_engine_silent_for_too_long_is_given_up_before_the_first_byte(world: World) -> None:
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    running = await world.start_router(timeouts=Timeouts(connect=PATIENCE_SECONDS, first_byte=5.0))
    await until(lambda: running.router.informing.synced)
    answer = await running.ask(script="silent@i0", stream=True)
    again = await running.ask(script="silent@i0", stream=True)
    assert {answer.headers["x-fairlead-instance"], again.headers["x-fairlead-instance"]} == {"i1"}
    await until(lambda: world.engines[0].disconnects == 1)
    await _settled(running)


async def test_a_request_that_takes_longer_than_allowed_ends_with_an_error_event(world: World) -> None:
    await world.start_engines(1)
    world.api.state.set_table(world.table())
    running = await world.start_router(timeouts=Timeouts(total=2.0))
    await until(lambda: running.router.informing.synced)
    answer = await running.ask(script="stepwise", stream=True)
    assert "exceeded its total time of 2 s" in answer.text
    await _settled(running)


async def test_a_request_that_waits_for_longer_than_it_may_take_is_refused_and_recorded(world: World) -> None:
    coming = replace(world.table(), outlook=Outlook.COMING)
    world.api.state.set_table(coming)
    running = await world.start_router(timeouts=Timeouts(total=1.5))
    await until(lambda: running.router.informing.synced)
    routed, direct = await asyncio.gather(running.ask(), running.client.post("/tokenize", json={"model": "mock", "prompt": "x"}))
    assert (routed.status_code, routed.headers["x-fairlead-rejection"]) == (503, "rejected-no-endpoints")
    assert "retry-after" in routed.headers
    assert direct.status_code == 503
    await _settled(running)
    assert running.pool.counters.refused["rejected-no-endpoints"] == 1
    assert running.pool.counters.cancelled == 0
    await until(lambda: bool(world.api.state.stored("rejections")))


@pytest.mark.parametrize("asks", [True, False])
async def test_a_stream_whose_engine_dies_ends_with_an_error_event(world: World, asks: bool) -> None:
    """A client that asked for usage gets each piece at once, so also a part of an event; other clients do not."""
    running = await world.ready(count=2)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if asks else {}
    answer = await running.ask(script="die-mid-stream", stream=True, **options)
    assert answer.status_code == 200
    *events, error = [event for event in answer.text.split("\n\n") if event]
    assert len(events) == 2 + asks
    assert all(event.startswith("data: {") for event in events)
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "rejected-upstream-failed"
    await _settled(running)
    assert running.pool.counters.failed == 1


async def test_an_unstreamed_answer_cut_halfway_is_tried_elsewhere(world: World) -> None:
    running = await world.ready(count=2)
    for _ in range(4):
        answer = await running.ask(script="die-halfway@i0")
        assert (answer.status_code, answer.json()["engine"]) == (200, "i1")
    assert world.engines[0].seen
    await _settled(running)
    assert (running.pool.counters.served, running.pool.counters.failed) == (4, 0)
    for engine in world.engines:
        engine.seen.clear()
    answer = await running.ask(script="die-halfway")
    assert answer.status_code == 502
    assert answer.headers["x-fairlead-rejection"] == "rejected-upstream-failed"
    assert [len(engine.seen) for engine in world.engines] == [1, 1]
    await _settled(running)


async def test_a_long_unstreamed_answer_is_tried_elsewhere_until_its_client_has_a_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxying, "WHOLE_ANSWER_BYTES", 300_000)
    running = await world.ready(count=2, policy="least-loaded")
    for engine, size in zip(world.engines, (200_000, 600_000), strict=True):
        engine.raw = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 900000\r\n\r\n" + b" " * size
        engine.hangs_up_after_raw = True
    answer = await running.ask(script="raw@i0")
    assert (answer.status_code, answer.headers["x-fairlead-instance"], len(world.engines[0].seen)) == (200, "i1", 1)
    with pytest.raises(httpx.RemoteProtocolError):
        await running.ask(script="raw")
    await _settled(running)
    assert len(world.engines[1].seen) == 2, "what broke off is not tried again"
    assert (running.pool.counters.served, running.pool.counters.failed) == (1, 1)


@pytest.mark.parametrize(
    ("path", "status", "cut"),
    [
        ("/v1/chat/completions", 500, False),
        ("/v1/chat/completions", 503, False),
        ("/v1/chat/completions", 200, True),
        ("/tokenize", 500, False),
        ("/tokenize", 503, False),
    ],
)
async def test_exhausted_tries_answer_with_the_headers_of_the_last_engine(world: World, path: str, status: int, cut: bool) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    engine.raw = (
        b"HTTP/1.1 %d X\r\nretry-after: 7\r\nx-request-id: engines-own\r\nx-ratelimit-remaining: 3\r\netag: x\r\ncontent-language: de\r\n"
        b"content-type: text/plain\r\nset-cookie: a=b\r\nx-fairlead-pool: evil\r\ncontent-length: 4\r\n\r\n%s"
        % (status, b"" if cut else b"oops")
    )
    engine.hangs_up_after_raw = cut
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}], "prompt": "x"}
    for given in ({}, {"x-request-id": "clients"}):
        answer = await running.client.post(path, json=document, headers={"x-script": "raw", **given})
        assert answer.status_code == 502
        (told,) = answer.headers.get_list("x-request-id")
        assert told == "clients" if given else told.startswith("router-0-")
        assert answer.headers["x-ratelimit-remaining"] == "3"
        assert answer.headers.get_list("x-fairlead-pool") == ["default/chat"]
        assert answer.headers.get_list("content-type") == ["application/json"]
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert not {"etag", "content-language", "set-cookie"}.intersection(answer.headers)
        assert answer.headers["retry-after"] == ("7" if status == 503 else answer.headers["retry-after"])


async def test_the_usage_of_an_answer_too_long_to_be_held_is_read_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "WHOLE_ANSWER_BYTES", 1000)
    running = await world.ready(count=1)
    answer = json.dumps({"choices": [{"message": {"content": "\n\n" + "x" * 4_000_000}}], "usage": USAGE}).encode()
    world.engines[0].raw = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer)
    assert (await running.ask(script="raw")).content == answer
    await _settled(running)
    assert running.pool.counters.output_tokens == USAGE["completion_tokens"]


async def test_the_engines_own_refusal_of_a_request_is_passed_on(world: World) -> None:
    running = await world.ready()
    for stream in (False, True):
        answer = await running.ask(script="bad-request", stream=stream)
        assert (answer.status_code, answer.json()) == (400, {"error": "context too long"})
    await _settled(running)


async def test_what_an_engine_refuses_is_its_clients_fault_and_no_failure_of_the_engine(world: World) -> None:
    running = await world.ready(count=1)
    for _ in range(20):
        assert (await running.ask(script="bad-request", stream=True)).status_code == 400
    assert (await running.ask()).status_code == 200, "the circuit stays closed"
    await _settled(running)
    counters = running.pool.counters
    assert (counters.rejected_by_engine, counters.failed, counters.cancelled, counters.served) == (20, 0, 0, 1)
    assert counters.upstream_errors == {}
    assert sum(counters.ttft.counts) == 0
    page = (await running.admin.get("/metrics")).text
    assert 'fairlead_router_requests_total{outcome="rejected-by-engine",pool="default/chat"} 20.0' in page
    stored = world.api.state.stored
    await until(lambda: sum(load.completed for load in stored("loads")) == 1 and sum(load.requests for load in stored("loads")) == 21)
    loads = stored("loads")
    assert sum(load.failed + load.cancelled + load.ttft_total for load in loads) == 0


async def test_a_broken_engine_is_left_alone_until_it_works_again(world: World) -> None:
    running = await world.ready(count=2)
    world.engines[0].broken = True
    for _ in range(30):
        assert (await running.ask()).json()["engine"] == "i1"
    tried = len(world.engines[0].seen)
    assert tried < 10, "the circuit never opened"
    world.engines[0].broken = False
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await running.ask()).json()["engine"] != "i0":
            await asyncio.sleep(0.1)
    await _settled(running)


async def test_a_kept_alive_connection_closed_by_the_engine_is_no_failure(world: World) -> None:
    running = await world.ready(count=1)
    engine = world.engines[0]
    for _ in range(5):
        assert (await running.ask()).status_code == 200
        for writer in tuple(engine._writers):
            writer.transport.abort()
    await _settled(running)
    assert running.pool.counters.served == 5


async def test_a_request_that_its_engines_die_of_ends_after_as_many_as_are_allowed(world: World) -> None:
    running = await world.ready(count=6)
    for _ in range(6):
        assert (await running.ask()).status_code == 200, "each has an idle connection from now on"
    answer = await running.ask(script="die")
    assert (answer.status_code, answer.headers["x-fairlead-rejection"]) == (502, "rejected-upstream-failed")
    died = [engine.name for engine in world.engines if len(engine.seen) > 1]
    assert len(died) == world.settings().max_retries + 1
    assert all(len(engine.seen) <= 2 for engine in world.engines), "none got it twice"
    await _settled(running)


async def test_a_client_slower_than_its_engine_pauses_it_and_loses_nothing(world: World) -> None:
    running = await world.ready(count=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=65536)
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-script: flood\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    # Nothing is read: whatever does not fit into buffers must stay at the engine.
    await until(lambda: any(call.connection is not None and call.connection.paused for call in running.router.calls._calls))
    text = await reader.readuntil(b"\r\n\r\n")
    events = 0
    while size := int(await reader.readline(), 16):
        events += (await reader.readexactly(size + 2)).count(b"\n\n")
    assert events == 400 * 500 + 3 + 1
    assert b"200 OK" in text
    writer.close()
    await _settled(running)


CREDENTIALS = {"authorization": "bearer mine", "cookie": "a=b", "x-api-key": "mine"}


@pytest.mark.parametrize("passes", [False, True])
async def test_a_clients_credentials_reach_engines_only_when_the_pool_says_so(world: World, passes: bool) -> None:
    running = await world.ready(pass_client_credentials=passes)
    await running.ask(headers=CREDENTIALS)
    await running.client.post("/tokenize", json={"model": "mock"}, headers=CREDENTIALS)
    await running.client.get("/v1/responses/resp_1-i0", headers=CREDENTIALS)
    for request in (request for engine in world.engines for request in engine.seen):
        assert (CREDENTIALS.items() <= request["headers"].items()) is passes
        assert (not CREDENTIALS.keys() & request["headers"].keys()) is not passes


async def test_an_engine_that_wants_a_credential_nobody_passes_is_a_502_with_the_remedy(world: World) -> None:
    running = await world.ready(count=2)
    for engine in world.engines:
        engine.raw = b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\n\r\n"
    answer = await running.ask(script="raw")
    assert answer.status_code == 502
    message = answer.json()["error"]["message"]
    assert "spec." not in message, "clients set no spec; the log has the remedy"
    assert "credential" in message
    assert running.pool.counters.upstream_errors == {"credential": 2}
    assert (await running.ask()).status_code == 200
    await _settled(running)


async def test_headers_of_an_engine_that_are_none_of_its_clients_business_do_not_pass(world: World) -> None:
    running = await world.ready(count=1)
    world.engines[0].raw = (
        b"HTTP/1.1 200 OK\r\nset-cookie: fairlead-session=x\r\nx-fairlead-pool: evil\r\nx-fairlead-other: 1\r\nconnection: close, x-inner\r\n"
        b'x-inner: 1\r\nkeep-alive: timeout=5\r\nx-kept: 1\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"tokens":1}'
    )
    for answer in (
        await running.ask(script="raw"),
        await running.client.post("/tokenize", json={"model": "mock"}, headers={"x-script": "raw"}),
    ):
        assert answer.status_code == 200
        assert answer.headers["x-kept"] == "1"
        assert answer.headers.get_list("x-fairlead-pool") == ["default/chat"]
        assert not {"set-cookie", "x-fairlead-other", "x-inner", "keep-alive"} & set(answer.headers)


async def test_a_redirect_of_an_engine_is_its_failure_and_not_passed_on(world: World) -> None:
    running = await world.ready(count=2)
    for engine in world.engines:
        engine.raw = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:8080/v1/tokens\r\ncontent-length: 0\r\n\r\n"
    assert (await running.ask(script="raw@i0")).status_code == 200
    answer = await running.ask(script="raw")
    assert answer.status_code == 502
    assert "location" not in answer.headers
    assert "a redirect, which is not passed on" in answer.json()["error"]["message"]
    await _settled(running)
