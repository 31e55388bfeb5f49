"""Answers are judged by their content over real HTTP, in each protocol, streamed or not.

The gateway, divided calls and the endpoint picker are tested.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from fairlead.instances import Role
from fairlead_process.starting import bind
from fairlead_router.picking import accounts
from fairlead_router.pools.account import PoolAccount
from fairlead_router.pools.tickets import Ticket
from fairlead_router.protocols.answers import Usage
from fairlead_router.relaying import passing, proxying
from fairlead_router.serving.body_memory import SOFT_SHARE
from fairlead_testing.running.ext_proc_proxy import Proxy, request_body, request_headers, response_body, response_headers
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until


def _event(document: object, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(document)}\n\n"


def _named(kind: str, **fields: Any) -> str:
    return _event({"type": kind, **fields}, kind)


DONE = "data: [DONE]\n\n"
ERROR = {"message": "KV load failed", "type": "InternalServerError", "param": None, "code": 500}
CHAT_USAGE = {"prompt_tokens": 40, "completion_tokens": 200}
MESSAGE_START = _named(
    "message_start",
    message={"usage": {"input_tokens": 3, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7, "output_tokens": 1}},
)
RESPONSE_USAGE = {"input_tokens": 40, "output_tokens": 200, "input_tokens_details": {"cached_tokens": 4}}


@dataclass(frozen=True)
class Spoken:
    """One protocol: its clients' requests and its engines' answers."""

    path: str
    body: dict[str, Any]
    begins: str
    content: str
    ends: str
    """With 200 tokens of output, of a prompt of 40."""
    error: str

    @property
    def good(self) -> str:
        return self.begins + self.content + self.ends


MESSAGES = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
CHAT = Spoken(
    "/v1/chat/completions",
    MESSAGES,
    _event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}),
    _event({"choices": [{"index": 0, "delta": {"content": "tok"}, "finish_reason": None}]}),
    _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}) + _event({"choices": [], "usage": CHAT_USAGE}) + DONE,
    _event({"error": ERROR}) + DONE,
)
COMPLETION = Spoken(
    "/v1/completions",
    {"prompt": "x", "max_tokens": 9},
    _event({"choices": [{"index": 0, "text": "", "finish_reason": None}]}),
    _event({"choices": [{"index": 0, "text": "tok", "finish_reason": None}]}),
    _event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}) + _event({"choices": [], "usage": CHAT_USAGE}) + DONE,
    _event({"error": ERROR}) + DONE,
)
MESSAGE = Spoken(
    "/v1/messages",
    MESSAGES,
    MESSAGE_START + _named("content_block_start", content_block={"type": "text", "text": ""}) + _named("ping"),
    _named("content_block_delta", delta={"type": "text_delta", "text": "tok"}),
    _named("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 200}) + _named("message_stop"),
    _event({"type": "error", "error": {"type": "api_error", "message": "KV load failed"}}, "error"),
)
RESPONSE = Spoken(
    "/v1/responses",
    {"input": "x"},
    _named("response.created", response={"id": "resp_1-i0", "error": None}) + _named("response.in_progress", response={"id": "resp_1-i0"}),
    _named("response.output_text.delta", delta="tok"),
    _named("response.incomplete", response={"id": "resp_1-i0", "status": "incomplete", "usage": RESPONSE_USAGE}),
    _named("response.failed", response={"status": "failed", "error": {"code": "server_error", "message": "KV load failed"}}),
)
PROTOCOLS = pytest.mark.parametrize("spoken", [CHAT, COMPLETION, MESSAGE, RESPONSE], ids=lambda spoken: spoken.path)


def _raw(*pieces: str, ends: bool = True, kind: str = "text/event-stream") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece.encode()), piece.encode()) for piece in pieces if piece)
    return head + body + (b"0\r\n\r\n" if ends else b"")


def _whole(document: object) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def _ask(running: RunningRouter, spoken: Spoken, *, stream: bool = True, script: str = "", **more: Any) -> httpx.Response:
    body = {"model": "mock", "stream": stream, **spoken.body, **more}
    return await running.client.post(spoken.path, json=body, headers={"x-script": script})


def _counted(running: RunningRouter) -> tuple[int, int, int, int]:
    counters = running.pool.counters
    return counters.served, counters.failed, counters.upstream_errors["answer"], sum(counters.ttft.counts)


async def _settled(running: RunningRouter) -> None:
    await until(lambda: running.busy() == 0)
    assert running.router.metrics.accounting_errors == 0
    assert running.scheduler.discrepancies() == ()


def _failures_before_content(spoken: Spoken) -> dict[str, bytes]:
    error = spoken.error
    return {
        "error first": _raw(error),
        "error after what is not content": _raw(": keep-alive\n\n", spoken.begins, ": keep-alive\n\n", error),
        "error in pieces": _raw(*(spoken.begins + error)[:-2]) if len(error) < 200 else _raw(error[:7], error[7:]),
        "error with other line ends": _raw((spoken.begins + error).replace("\n", "\r\n")),
        "error that is not ended": _raw(error.split("\n\n")[0]),
        "only the last mark": _raw(DONE),
        "nothing": _raw(),
        "comments": _raw(": keep-alive\n\n", ": keep-alive\n\n"),
        "no content": _raw(spoken.begins),
        "no content and the last mark": _raw(spoken.begins, DONE),
        "cut before content": _raw(spoken.begins, spoken.content[:12]),
        "an error in place of a stream": _whole({"object": "error", "message": "KV load failed", "code": 500}),
        "nothing in place of a stream": _whole(b""),
    }  # fmt: skip


@PROTOCOLS
@pytest.mark.parametrize("case", list(_failures_before_content(CHAT)))
async def test_a_failure_before_content_is_tried_elsewhere_and_counted_as_what_it_is(world: World, spoken: Spoken, case: str) -> None:
    running = await world.ready(2)
    bad, good = world.engines
    bad.raw = _failures_before_content(spoken)[case]
    good.events = [spoken.begins, spoken.content, spoken.ends]
    for _ in range(2):
        answer = await _ask(running, spoken, script="raw@i0")
        assert answer.status_code == 200
        assert answer.headers["x-fairlead-instance"] == "i1"
        assert "tok" in answer.text
        assert "KV load failed" not in answer.text
    assert len(bad.seen) == 1, "in turn it was the first for one of the two"
    await _settled(running)
    assert _counted(running) == (2, 0, 1, 2)
    assert running.pool.counters.retries == 1
    assert running.pool.counters.output_tokens == 400


@PROTOCOLS
async def test_when_no_engine_has_an_answer_its_client_gets_the_error_as_a_status(world: World, spoken: Spoken) -> None:
    running = await world.ready(2)
    for engine in world.engines:
        engine.raw = _raw(spoken.begins, spoken.error)
    answer = await _ask(running, spoken, script="raw")
    assert answer.status_code == (500 if spoken.path.endswith("completions") else 502)
    assert answer.headers["x-fairlead-rejection"] == "rejected-upstream-failed"
    assert "KV load failed" in answer.json()["error"]["message"]
    assert [len(engine.seen) for engine in world.engines] == [1, 1]
    await _settled(running)
    assert _counted(running) == (0, 0, 2, 0)
    assert running.pool.counters.refused["rejected-upstream-failed"] == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_an_engine_compresses_unasked_fails_with_that_reason(world: World, *, stream: bool) -> None:
    running = await world.ready(1)
    kind = b"text/event-stream" if stream else b"application/json"
    body = gzip.compress((CHAT.good if stream else json.dumps({"choices": [{"message": {"content": "x"}}]})).encode())
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-encoding: GZIP\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
    world.engines[0].raw = head + body
    answer = await _ask(running, CHAT, stream=stream, script="raw")
    assert answer.status_code == 502
    assert "i0 answered 200, but no answer: it is compressed (content-encoding: gzip)" in answer.json()["error"]["message"]
    assert "empty" not in answer.text


async def test_a_refusal_inside_a_stream_keeps_its_status(world: World) -> None:
    running = await world.ready(2)
    for engine in world.engines:
        engine.raw = _raw(_event({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}), DONE)
    answer = await _ask(running, CHAT, script="raw")
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "too long" in answer.json()["error"]["message"]


@PROTOCOLS
async def test_an_error_after_content_is_passed_on_and_counted_as_failed(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    engine = world.engines[0]
    engine.raw = _raw(spoken.begins, spoken.content, spoken.error)
    answer = await _ask(running, spoken, script="raw")
    assert answer.status_code == 200
    assert answer.text == spoken.begins + spoken.content + spoken.error
    await _settled(running)
    assert _counted(running) == (0, 1, 1, 1)
    assert len(engine.seen) == 1


@PROTOCOLS
@pytest.mark.parametrize("part", [0, 9])
async def test_a_stream_cut_after_content_ends_with_an_error_event_and_is_counted_as_failed(
    world: World, spoken: Spoken, part: int
) -> None:
    running = await world.ready(1)
    world.engines[0].raw = _raw(spoken.begins, spoken.content, spoken.content[:part])
    answer = await _ask(running, spoken, script="raw")
    before, _, last = answer.text.rstrip("\n").rpartition("\n\n")
    assert before.rstrip("\n") == (spoken.begins + spoken.content + spoken.content[:part]).rstrip("\n")
    document = json.loads(last.partition("data: ")[2])
    assert (document if spoken is RESPONSE else document["error"])["message"].endswith("ended it: the stream ended before its answer did")
    await _settled(running)
    assert _counted(running) == (0, 1, 1, 1)


@PROTOCOLS
async def test_an_answer_whose_connection_breaks_after_its_last_event_is_served(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    world.engines[0].events = [spoken.begins, spoken.content, spoken.ends]
    world.engines[0].hang_up_after_events = True
    answer = await _ask(running, spoken)
    assert answer.text == spoken.good.replace(_event({"choices": [], "usage": CHAT_USAGE}), "")
    await _settled(running)
    assert _counted(running) == (1, 0, 0, 1)
    assert not running.pool.counters.upstream_errors


@PROTOCOLS
async def test_an_answer_that_ends_by_its_length_is_served(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    world.engines[0].events = [spoken.begins, spoken.content, spoken.ends]
    answer = await _ask(running, spoken)
    assert answer.text == spoken.good.replace(_event({"choices": [], "usage": CHAT_USAGE}), "")
    await _settled(running)
    assert _counted(running) == (1, 0, 0, 1)
    assert running.pool.counters.output_tokens == 200


@pytest.mark.parametrize(
    ("spoken", "body"),
    [
        (CHAT, {"object": "error", "message": "KV load failed", "code": 500}),
        (CHAT, {"error": ERROR}),
        (COMPLETION, {"choices": [{"index": 0, "text": "", "finish_reason": "error"}]}),
        (MESSAGE, {"type": "error", "error": {"type": "api_error", "message": "KV load failed"}}),
        (RESPONSE, {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "KV load failed"}}),
        (CHAT, b""),
    ],
)
async def test_a_whole_answer_that_is_an_error_is_tried_elsewhere(world: World, spoken: Spoken, body: object) -> None:
    running = await world.ready(2)
    world.engines[0].raw = _whole(body)
    for _ in range(2):
        answer = await _ask(running, spoken, stream=False, script="raw@i0")
        assert (answer.status_code, answer.json()["engine"]) == (200, "i1")
    await _settled(running)
    assert _counted(running) == (2, 0, 1, 0)


async def test_an_error_that_a_model_writes_is_no_error(world: World) -> None:
    running = await world.ready(1)
    text = 'data: {"error": {"message": "x"}}\n\n"usage": {"completion_tokens": 1} [DONE]'
    content = _event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})
    world.engines[0].events = [content, content, CHAT.ends]
    assert (await _ask(running, CHAT)).status_code == 200
    await _settled(running)
    assert (_counted(running), running.pool.counters.output_tokens) == ((1, 0, 0, 1), 200)


# ── the first token ──


@PROTOCOLS
async def test_comments_pings_and_empty_roles_are_no_first_token(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    engine = world.engines[0]
    engine.events, engine.stepwise_events = [": keep-alive\n\n" + spoken.begins, ": keep-alive\n\n", spoken.content, spoken.ends], True
    asking = asyncio.create_task(_ask(running, spoken))
    await until(lambda: len(engine.seen) == 1)
    ticket = next(iter(running.pool.account.tickets.values()))
    for number in range(2):
        await until(lambda: ticket.stream is not None and ticket.stream.events > 0)
        assert not ticket.saw_first_token
        assert ticket.stream is not None
        assert ticket.stream.generated_tokens == 0
        engine.step.set()
        await until(lambda: not engine.step.is_set())
        assert number < 2
    await until(lambda: ticket.saw_first_token)
    engine.step.set()
    answer = await asking
    assert answer.text.startswith(": keep-alive\n\n" + spoken.begins + ": keep-alive\n\n")
    await _settled(running)
    assert _counted(running) == (1, 0, 0, 1)


@pytest.mark.parametrize("limit", ["HELD_BYTES", "HELD_SECONDS"])
async def test_a_beginning_without_content_is_held_for_a_bounded_time_and_size(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(passing, limit, 0)
    running = await world.ready(2)
    for engine in world.engines:
        engine.events, engine.stepwise_events = [": keep-alive\n\n", CHAT.error], True
    body = {"model": "mock", "stream": True, **CHAT.body}
    async with running.client.stream("POST", CHAT.path, json=body) as answer:
        assert answer.status_code == 200, "the client's connection is kept alive"
        pieces = answer.aiter_text()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await anext(pieces) == ": keep-alive\n\n"
        for engine in world.engines:
            engine.step.set()
        assert "KV load failed" in "".join([piece async for piece in pieces])
    await _settled(running)
    assert _counted(running) == (0, 1, 1, 0)


# ── usage ──

COUNTS = _event({"choices": [], "usage": CHAT_USAGE})


@pytest.mark.parametrize("spoken", [CHAT, COMPLETION], ids=lambda spoken: spoken.path)
@pytest.mark.parametrize("options", [..., None, {}, {"include_usage": False}, {"continuous_usage_stats": True}, {"include_usage": True}])
async def test_usage_is_asked_for_and_kept_from_a_client_that_did_not_ask(world: World, spoken: Spoken, options: Any) -> None:
    running = await world.ready(1)
    engine = world.engines[0]
    engine.events = [piece for event in spoken.good.split("\n\n")[:-1] for piece in (event[:20], event[20:] + "\n\n") if piece]
    more = {} if options is ... else {"stream_options": options}
    answer = await _ask(running, spoken, **more)
    asked = options == {"include_usage": True}
    assert answer.text == (spoken.good if asked else spoken.good.replace(COUNTS, ""))
    assert engine.seen[0]["body"]["stream_options"] == {"include_usage": True}
    await _settled(running)
    assert running.pool.counters.output_tokens == 200


async def test_the_clients_bytes_stay_as_they_are_around_what_is_asked(world: World) -> None:
    running = await world.ready(1)
    body = b'\n{"stream": true, "seed": 123456789012345678901234567890, "a": 1, "a": 2,"model":"mock", "messages":[{"role":"user","content":"\\u00e9 }"}] } \n'
    answer = await running.client.post(CHAT.path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    (seen,) = world.engines[0].seen
    assert seen["raw"] == body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
    given = body.replace(b'"stream": true', b'"stream": true, "stream_options" : {"include_usage": false, "other": "x"}')
    assert (await running.client.post(CHAT.path, content=given)).status_code == 200
    changed = given.replace(b'{"include_usage": false, "other": "x"}', b'{"include_usage":true,"other":"x"}')
    assert world.engines[0].seen[1]["raw"] == changed


async def test_what_is_not_streamed_and_other_protocols_are_sent_as_they_came(world: World) -> None:
    running = await world.ready(1)
    for spoken, stream in ((CHAT, False), (MESSAGE, True), (RESPONSE, True)):
        world.engines[0].events = [spoken.good]
        await _ask(running, spoken, stream=stream)
    assert not any("stream_options" in seen["body"] for seen in world.engines[0].seen)


async def test_usage_is_asked_for_under_a_models_other_name(world: World) -> None:
    running = await world.ready(1)
    assert (await _ask(running, CHAT, model="default/chat")).status_code == 200
    (seen,) = world.engines[0].seen
    assert (seen["body"]["model"], seen["body"]["stream_options"]) == ("mock", {"include_usage": True})


class Refusing(ScriptedEngine):
    """An engine that knows no `stream_options`."""

    async def _answer(self, script: str, document: dict[str, Any], *streams: Any) -> None:
        if "stream_options" in document:
            self._write(streams[0], 400, b'{"error": {"message": "stream_options: Extra inputs are not permitted", "code": 400}}')
        else:
            await super()._answer(script, document, *streams)


@pytest.mark.parametrize("divided", [False, True])
async def test_an_engine_that_refuses_to_be_asked_gets_what_its_client_sent_and_is_not_asked_again(world: World, divided: bool) -> None:
    world.engines += [Refusing(name=f"i{number}") for number in range(2)]
    for engine in world.engines:
        await engine.start()
    world.api.state.set_table(world.table(**({"policy": "least-loaded", "roles": (Role.PREFILL, Role.DECODE)} if divided else {})))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    for _ in range(4):
        answer = await _ask(running, CHAT, max_tokens=3)
        assert answer.text.endswith(DONE)
        assert answer.text.count("tok ") == 3
    await _settled(running)
    assert _counted(running) == (4, 0, 0, 4)
    assert (running.pool.counters.retries, running.pool.counters.rejected_by_engine) == (0, 0)
    for engine in world.engines[1:] if divided else world.engines:
        asked = ["stream_options" in seen["body"] for seen in engine.seen if seen["body"].get("stream")]
        assert asked == [True] + [False] * (len(asked) - 1)
        if divided:
            assert all("kv_transfer_params" in seen["body"] for seen in engine.seen)
    answer = await _ask(running, CHAT, stream_options={"include_usage": True})
    assert answer.status_code == 400, "it is the client who asks"


class Picky(ScriptedEngine):
    """An engine that refuses a sampling parameter, in words of its client's choice."""

    async def _answer(self, script: str, document: dict[str, Any], *streams: Any) -> None:
        if "top_k" in document:
            self._write(streams[0], 400, json.dumps({"error": {"message": f"bad top_k: {document['top_k']}"}}).encode())
        else:
            await super()._answer(script, document, *streams)


async def test_no_client_can_end_that_engines_are_asked_for_usage(world: World) -> None:
    world.engines.append(Picky(name="i0"))
    await world.engines[0].start()
    world.api.state.set_table(world.table())
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    refused = await _ask(running, CHAT, top_k="stream_options")
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "bad top_k: stream_options")
    await _ask(running, CHAT)
    assert world.engines[0].seen[-1]["body"]["stream_options"] == {"include_usage": True}


async def test_an_engines_other_refusals_pass_unchanged(world: World) -> None:
    running = await world.ready(1)
    answer = await _ask(running, CHAT, script="bad-request")
    assert (answer.status_code, answer.text) == (400, '{"error": "context too long"}')
    assert len(world.engines[0].seen) == 1
    assert running.pool.counters.rejected_by_engine == 1


async def test_the_prompt_of_a_message_is_counted_with_what_a_cache_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await world.ready(1)
    counted: list[Usage] = []
    complete = PoolAccount.complete

    def counting(account: PoolAccount, ticket: Ticket, now: float, usage: Usage) -> None:
        counted.append(usage)
        complete(account, ticket, now, usage)

    monkeypatch.setattr(PoolAccount, "complete", counting)
    world.engines[0].events = [MESSAGE.good]
    await _ask(running, MESSAGE)
    usage = {"input_tokens": 3, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7, "output_tokens": 200}
    world.engines[0].raw = _whole({"type": "message", "content": [], "usage": usage})
    await _ask(running, MESSAGE, stream=False, script="raw")
    await _settled(running)
    assert counted == [Usage(200, 30, 40)] * 2


async def test_the_usage_of_a_long_whole_answer_is_read_wherever_it_stands(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "WHOLE_ANSWER_BYTES", 100_000)
    running = await world.ready(1)
    for fields in ({"usage": CHAT_USAGE, "data": ["x" * 300_000]}, {"data": ["x" * 300_000], "usage": CHAT_USAGE, "more": "y" * 50_000}):
        world.engines[0].raw = _whole(fields)
        assert (await _ask(running, CHAT, stream=False, script="raw")).json() == fields
    await _settled(running)
    assert running.pool.counters.output_tokens == 400


METADATA = json.dumps({"data": [{"shape": [2], "start": 0, "end": 8}], "usage": {"prompt_tokens": 40, "total_tokens": 40}})


def _vector() -> bytes:
    """Return an embedding in bytes, as vLLM gives it for `encoding_format: bytes`."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\nmetadata: {METADATA}\r\ncontent-length: 8\r\n\r\n"
    return head.encode() + b"{\x00\x80?\x00\x00\x80\xbf"


EMBEDDING = Spoken("/v1/embeddings", {"input": "x", "encoding_format": "bytes"}, "", "", "", "")


@pytest.mark.parametrize("picked", [False, True])
async def test_an_embedding_in_bytes_comes_with_what_its_bytes_are_and_costs_what_its_engine_says(
    world: World, proxies: list[Proxy], monkeypatch: pytest.MonkeyPatch, *, picked: bool
) -> None:
    counted: list[Usage] = []
    complete = PoolAccount.complete

    def counting(account: PoolAccount, ticket: Ticket, now: float, usage: Usage) -> None:
        counted.append(usage)
        complete(account, ticket, now, usage)

    monkeypatch.setattr(PoolAccount, "complete", counting)
    running, proxy = await _picked(world, proxies)
    world.engines[0].raw = _vector()
    if picked:
        await proxy.request(_body(EMBEDDING, stream=False), path=EMBEDDING.path, headers={"x-script": "raw"})
        await _all_settled(running)
    else:
        answer = await _ask(running, EMBEDDING, stream=False, script="raw")
        assert answer.headers["metadata"] == METADATA
        assert answer.content == b"{\x00\x80?\x00\x00\x80\xbf"
        await _settled(running)
    assert counted == [Usage(0, None, 40)]


GIVEN_UP: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"choices": [{"index": 0, "message": {"content": "tok"}, "finish_reason": "abort"}]},
    "/v1/completions": {"choices": [{"index": 0, "text": "tok", "finish_reason": "abort"}]},
    "/v1/messages": {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "tok"}]},
    "/v1/responses": {"object": "response", "status": "cancelled", "background": False, "output": [{"type": "message"}]},
}


@PROTOCOLS
async def test_a_whole_answer_that_its_engine_gives_up_is_made_elsewhere(world: World, spoken: Spoken) -> None:
    running = await world.ready(2)
    world.engines[0].raw = _whole(GIVEN_UP[spoken.path])
    for _ in range(2):
        answer = await _ask(running, spoken, stream=False, script="raw@i0")
        assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, "i1")
    assert len(world.engines[0].seen) == 1
    await _settled(running)
    assert _counted(running)[:3] == (2, 0, 1)


@pytest.mark.parametrize("picked", [False, True])
async def test_content_types_are_read_in_any_letters_and_engines_are_asked_not_to_compress(
    world: World, proxies: list[Proxy], *, picked: bool
) -> None:
    running, proxy = await _picked(world, proxies)
    whole = {"choices": [{"index": 0, "message": {"content": "tok"}, "finish_reason": "length"}], "usage": CHAT_USAGE}
    document = _whole(whole).replace(b"application/json", b"Application/JSON")
    for number, raw in enumerate((document, _raw(CHAT.good, kind="TEXT/Event-Stream; charset=utf-8")), start=1):
        world.engines[0].raw = raw
        if picked:
            await proxy.request(_body(CHAT), path=CHAT.path, headers={"x-script": "raw"})
            await _all_settled(running)
        else:
            assert (await _ask(running, CHAT, script="raw")).status_code == 200
            assert world.engines[0].seen[-1]["headers"]["accept-encoding"] == "identity"
            await _settled(running)
        assert (running.pool.counters.served, running.pool.counters.output_tokens) == (number, 200 * number)


# ── clients that leave ──


@PROTOCOLS
async def test_a_client_that_closes_at_the_last_event_was_served(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    engine = world.engines[0]
    engine.events, engine.stepwise_events = [spoken.good, ": the body's end comes later\n\n"], True
    body = {"model": "mock", "stream": True, **spoken.body}
    if spoken in (CHAT, COMPLETION):
        body["stream_options"] = {"include_usage": True}
    async with running.client.stream("POST", spoken.path, json=body) as answer:
        pieces = answer.aiter_text()
        text = ""
        while not text.endswith(spoken.ends):
            async with asyncio.timeout(PATIENCE_SECONDS):
                text += await anext(pieces)
    await _settled(running)
    assert (_counted(running), running.pool.counters.cancelled) == ((1, 0, 0, 1), 0)
    assert running.pool.counters.output_tokens == 200
    engine.step.set()


@PROTOCOLS
async def test_a_client_that_closes_before_the_last_event_has_left_and_after_an_error_was_failed(world: World, spoken: Spoken) -> None:
    running = await world.ready(1)
    engine = world.engines[0]
    engine.stepwise_events = True
    for events, shown in (([spoken.begins + spoken.content], spoken.content), ([spoken.content + spoken.error], spoken.error)):
        engine.events = [*events, ": more\n\n"]
        async with running.client.stream("POST", spoken.path, json={"model": "mock", "stream": True, **spoken.body}) as answer:
            pieces, text = answer.aiter_text(), ""
            while not text.endswith(shown):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    text += await anext(pieces)
        await _settled(running)
    assert (running.pool.counters.cancelled, running.pool.counters.failed, running.pool.counters.served) == (1, 1, 0)
    engine.step.set()


# ── divided calls ──

ROLES = (Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE)


@PROTOCOLS
async def test_a_decode_leg_that_fails_before_content_is_tried_elsewhere(world: World, spoken: Spoken) -> None:
    running = await world.ready(4, policy="least-loaded", roles=ROLES)
    for engine in world.engines[2:]:
        engine.events = [spoken.good]
    world.engines[2].raw = _raw(spoken.begins, spoken.error)
    for _ in range(2):
        answer = await _ask(running, spoken, script="raw@i2")
        assert answer.status_code == 200
        assert "tok" in answer.text
        assert answer.headers["x-fairlead-decode"] == "i3"
    await _settled(running)
    assert _counted(running)[:3] == (2, 0, len(world.engines[2].seen))
    assert world.engines[2].seen
    assert sum(running.pool.counters.handover.counts) == 2, "to the first token, in every protocol"


async def test_a_prefill_leg_that_fails_in_a_body_is_tried_elsewhere(world: World) -> None:
    running = await world.ready(4, policy="least-loaded", roles=ROLES)
    world.engines[0].raw = _whole({"object": "error", "message": "boom", "code": 500})
    for _ in range(3):
        answer = await _ask(running, CHAT, script="raw@i0")
        assert (answer.status_code, answer.headers["x-fairlead-instance"]) == (200, "i1")
    await _settled(running)
    assert _counted(running)[:3] == (3, 0, len(world.engines[0].seen))
    assert world.engines[0].seen


# ── the endpoint picker ──


@pytest.fixture
async def proxies() -> AsyncIterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        await proxy.__aexit__()


async def _picked(world: World, proxies: list[Proxy]) -> tuple[RunningRouter, Proxy]:
    running = await world.ready(1)
    listener = bind("picker", "127.0.0.1", 0)
    await running.router.picker.listen(listener)
    proxies.append(Proxy(f"127.0.0.1:{listener.getsockname()[1]}"))
    return running, proxies[0]


def _body(spoken: Spoken, **more: Any) -> bytes:
    return json.dumps({"model": "mock", "stream": True, **spoken.body, **more}).encode()


async def _all_settled(running: RunningRouter) -> None:
    await until(lambda: not running.router.picker.active)
    await _settled(running)


@PROTOCOLS
@pytest.mark.parametrize("asks", [True, False])
async def test_a_picked_requests_usage_is_asked_for_and_kept_from_a_client_that_did_not_ask(
    world: World, proxies: list[Proxy], spoken: Spoken, asks: bool
) -> None:
    running, proxy = await _picked(world, proxies)
    world.engines[0].events = [piece for event in spoken.good.split("\n\n")[:-1] for piece in (event[:20], event[20:] + "\n\n") if piece]
    answer = await proxy.request(_body(spoken, **({"stream_options": {"include_usage": True}} if asks else {})), path=spoken.path)
    hidden = not asks and spoken in (CHAT, COMPLETION)
    assert answer.body.decode() == (spoken.good.replace(COUNTS, "") if hidden else spoken.good)
    assert ("stream_options" in world.engines[0].seen[0]["body"]) is (asks or hidden)
    await _all_settled(running)
    assert (_counted(running), running.pool.counters.output_tokens) == ((1, 0, 0, 1), 200)


@PROTOCOLS
@pytest.mark.parametrize("case", list(_failures_before_content(CHAT)))
async def test_a_picked_requests_failure_before_content_is_passed_on_and_counted(
    world: World, proxies: list[Proxy], spoken: Spoken, case: str
) -> None:
    running, proxy = await _picked(world, proxies)
    world.engines[0].raw = _failures_before_content(spoken)[case]
    answer = await proxy.request(_body(spoken), path=spoken.path, headers={"x-script": "raw"})
    assert answer.status == 200, "its headers have gone on"
    await _all_settled(running)
    assert _counted(running) == (0, 1, 1, 0)


@PROTOCOLS
async def test_a_picked_requests_failure_after_content_is_passed_on_and_counted(world: World, proxies: list[Proxy], spoken: Spoken) -> None:
    running, proxy = await _picked(world, proxies)
    for number, end in enumerate((spoken.error, "", spoken.content[:9]), start=1):
        world.engines[0].raw = _raw(spoken.begins, spoken.content, end)
        answer = await proxy.request(_body(spoken), path=spoken.path, headers={"x-script": "raw"})
        assert answer.body.decode() == spoken.begins + spoken.content + end
        await _all_settled(running)
        assert _counted(running) == (0, number, number, number)


async def test_a_picked_requests_body_that_is_an_error_is_counted_as_failed(world: World, proxies: list[Proxy]) -> None:
    running, proxy = await _picked(world, proxies)
    world.engines[0].raw = _whole({"object": "error", "message": "boom", "code": 500})
    await proxy.request(_body(CHAT, stream=False), path=CHAT.path, headers={"x-script": "raw"})
    await _all_settled(running)
    assert _counted(running) == (0, 1, 1, 0)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_a_picked_request_past_the_scheduler_whose_answer_is_an_error_is_counted_as_failed(
    world: World, proxies: list[Proxy], kind: str
) -> None:
    running, proxy = await _picked(world, proxies)
    error = json.dumps({"error": ERROR})
    world.engines[0].raw = _raw(f"data: {error}\n\n", DONE, kind=kind) if "event" in kind else _raw(error[:4], error[4:], kind=kind)
    await proxy.request(b'{"model": "mock", "prompt": "x"}', path="/tokenize", headers={"x-script": "raw"})
    await until(lambda: not running.router.picker.active)
    assert running.pool.counters.direct == {"failed": 1}
    assert running.pool.counters.upstream_errors["answer"] == 1


@pytest.mark.parametrize("spoken", [CHAT, MESSAGE, RESPONSE], ids=lambda spoken: spoken.path)
@pytest.mark.parametrize("picked", [False, True])
async def test_an_answer_too_long_to_hold_that_its_engine_gives_up_is_passed_on_and_counted_as_failed(
    world: World, proxies: list[Proxy], monkeypatch: pytest.MonkeyPatch, spoken: Spoken, *, picked: bool
) -> None:
    for module in (proxying, accounts):
        monkeypatch.setattr(module, "WHOLE_ANSWER_BYTES", 100_000)
    running, proxy = await _picked(world, proxies)
    usage = {"input_tokens": 40, "output_tokens": 200}
    world.engines[0].raw = _whole({"padding": "x" * 1_000_000, "usage": usage, **GIVEN_UP[spoken.path]})
    if picked:
        await proxy.request(_body(spoken, stream=False), path=spoken.path, headers={"x-script": "raw"})
    else:
        assert len((await _ask(running, spoken, stream=False, script="raw")).content) > 1_000_000
    await _all_settled(running)
    assert _counted(running)[:3] == (0, 1, 1)


@pytest.mark.parametrize("room", [10**9, 520_000, 300_000])
async def test_a_picked_answer_takes_its_share_of_the_memory_and_is_judged_without_it_too(
    world: World, proxies: list[Proxy], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    running, proxy = await _picked(world, proxies)
    memory, held = running.router.body_memory, [0]
    monkeypatch.setattr(memory, "most", room)
    monkeypatch.setattr(memory, "soft", int(SOFT_SHARE * room))
    piece = accounts.RoutedAccount.piece

    def noting(account: accounts.RoutedAccount, data: bytes, now: float, *, last: bool) -> bytes:
        shown = piece(account, data, now, last=last)
        held.append(memory.held)
        return shown

    monkeypatch.setattr(accounts.RoutedAccount, "piece", noting)
    world.engines[0].raw = _whole({"choices": [{"message": {"content": "x" * 500_000}, "finish_reason": "stop"}], "usage": CHAT_USAGE})
    answer = await proxy.request(_body(CHAT, stream=False), path=CHAT.path, headers={"x-script": "raw"})
    assert len(answer.body) > 500_000
    await _all_settled(running)
    assert (max(held) >= 500_000) is (room == 10**9)
    assert max(held) <= memory.soft, "the rest is for requests"
    assert (memory.held, running.pool.counters.output_tokens, _counted(running)[0]) == (0, 200, 1)


@pytest.mark.parametrize("picked", [False, True])
async def test_several_answers_of_which_one_is_missing_are_no_whole_answer(world: World, proxies: list[Proxy], *, picked: bool) -> None:
    running, proxy = await _picked(world, proxies)
    one = _event({"choices": [{"index": 1, "text": "tok", "finish_reason": None}]})
    end = _event({"choices": [{"index": 1, "text": "", "finish_reason": "stop"}]})
    world.engines[0].events = [one, end]
    if picked:
        await proxy.request(_body(COMPLETION, prompt=["x", "y"]), path=COMPLETION.path)
    else:
        answer = await _ask(running, COMPLETION, prompt=["x", "y"])
        assert answer.text.startswith(one + end)
        assert "the stream ended before its answer did" in answer.text
    await _all_settled(running)
    assert _counted(running)[:3] == (0, 1, 1)


async def test_a_picked_request_whose_stream_is_dropped_at_its_last_event_was_served(world: World, proxies: list[Proxy]) -> None:
    running, proxy = await _picked(world, proxies)
    for end, outcome in ((CHAT.ends, "served"), ("", "cancelled"), (CHAT.error, "failed")):
        stream = proxy.open()
        await stream.say(request_headers("POST", CHAT.path, {}), request_body(_body(CHAT), ended=True))
        await stream.hear()
        await stream.hear()
        text = (CHAT.begins + CHAT.content + end).encode()
        await stream.say(response_headers(200, {"content-type": "text/event-stream"}), response_body(text, ended=False))
        await stream.hear()
        await stream.hear()
        stream.call.cancel()
        await _all_settled(running)
        assert getattr(running.pool.counters, outcome) == 1
    assert running.pool.counters.output_tokens == 200 + 1 + 1, "the engine's figure, and the content of what broke off"


async def test_a_picked_request_is_not_asked_for_usage_where_an_engine_refused_it(world: World, proxies: list[Proxy]) -> None:
    world.engines.append(Refusing(name="i0"))
    await world.engines[0].start()
    world.api.state.set_table(world.table())
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    listener = bind("picker", "127.0.0.1", 0)
    await running.router.picker.listen(listener)
    proxies.append(Proxy(f"127.0.0.1:{listener.getsockname()[1]}"))
    statuses = [(await proxies[0].request(_body(CHAT), path=CHAT.path)).status for _ in range(3)]
    assert statuses == [400, 200, 200], "no proxy can send the first once more"
