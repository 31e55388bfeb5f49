"""Streams of a picker over a real scheduler: whatever a proxy sends, every request is ended in the account."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import hpack
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import PriorityClass
from fairlead_process.grpc_server import http2
from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import OK
from fairlead_router.main import Router
from fairlead_router.picking.accounts import WHOLE_ANSWER_BYTES
from fairlead_router.picking.streams import PickerStream
from fairlead_router.pools.pool import Pool
from fairlead_router.settings import RouterSettings
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.examples import examples
from fairlead_testing.running.ext_proc_proxy import (
    DESTINATION,
    headers_of,
    request_body,
    request_headers,
    response_body,
    response_headers,
)
from fairlead_testing.waiting import PATIENCE_SECONDS


class HeardStream:
    """A stream that keeps its answers."""

    path = b"/envoy.service.ext_proc.v3.ExternalProcessor/Process"
    authority = b"picker"

    connection = None

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.ends: list[int] = []

    def send(self, message: bytes) -> None:
        assert not self.ends
        self.said.append(ProcessingResponse.FromString(message))

    def finish(self, status: int, message: str = "") -> None:
        self.ends.append(status)

    def drop(self) -> None: ...

    def when_sent(self, then: Callable[[], None]) -> None:
        then()


class Proxied:
    """A router with one pool, and streams to its picker."""

    def __init__(self, directory: Path, *, picker_any_path: bool = False, **table: Any) -> None:
        self.time = 1000.0
        settings = RouterSettings(
            api_urls=("http://127.0.0.1:1",),
            api_token="t" * 20,
            router_id="router-0",
            spool_dir=directory,
            picker_any_path=picker_any_path,
        )
        self.router = Router(settings, lambda facts: SharedScheduler(facts, "router-0", 1, sample_rate=1.0), "start")
        given_table: dict[str, Any] = {"prefills_in_flight": 1, **table}
        self.router.pools.apply(routing_table(["10.0.0.1:8000", "10.0.0.2:8000"], **given_table))
        self.streams: list[tuple[PickerStream, HeardStream]] = []

    @property
    def pool(self) -> Pool:
        return self.router.pools.all()[0]

    def open(self) -> tuple[PickerStream, HeardStream]:
        heard = HeardStream()
        stream: Any = heard
        made = self.router.picker.open(stream)
        assert isinstance(made, PickerStream)
        self.streams.append((made, heard))
        return made, heard

    def tick(self) -> None:
        self.router.pools.tick()

    def open_accounts(self) -> int:
        scheduler = self.pool.scheduler
        assert isinstance(scheduler, SharedScheduler)
        assert not scheduler.discrepancies()
        counted = sum(row.in_flight + row.waiting for row in scheduler.in_flight())
        bodies = self.router.body_memory.held
        return counted + len(self.pool.account.tickets) + sum(self.pool.account.direct.values()) + self.router.picker.active + bodies


BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello " * 600}], "stream": True}).encode()
SSE = {"content-type": "text/event-stream"}
_SAID = (
    request_headers(),
    request_headers(ended=True, method="GET", path="/v1/models"),
    request_headers(subset=["10.0.0.2:8000"]),
    request_headers(subset=[]),
    request_headers(path="/nothing"),
    request_headers(path="/v1/responses/resp_1/cancel", ended=True),
    request_headers(headers={"content-encoding": "GZip"}),
    request_headers(path="/tokenize", headers={"Content-Encoding": "deflate, gzip"}),
    request_body(BODY, ended=True),
    request_body(b"{", ended=False),
    request_body(b"", ended=True),
    response_headers(200, SSE),
    response_headers(200, SSE, served="10.0.0.2:8000"),
    response_headers(200, SSE, served="nowhere"),
    response_headers(503, {}, ended=True),
    response_headers(404, {}, ended=True),
    response_body(b'data: {"choices": [{"index": 0, "delta": {"content": "tok"}, "finish_reason": "stop"}]}\n\n', ended=False),
    response_body(b"", ended=True),
    request_body(gzip.compress(BODY, mtime=0), ended=True),
    request_body(gzip.compress(zlib.compress(BODY + b" " * 3_000_000), mtime=0), ended=True),
)
_WORDS: list[bytes] = [message.SerializeToString() for message in _SAID]
_BODY, _BEGUN, _BUSY, _NOT_FOUND, _TOKEN, _END = (_WORDS[place] for place in (8, 11, 14, 15, 16, 17))
_EVENTS = st.one_of(
    st.sampled_from(_WORDS),
    st.sampled_from(_WORDS),
    st.builds(lambda word, cut: word[: cut % (len(word) + 1)], st.sampled_from(_WORDS), st.integers(0, 4000)),
    st.binary(max_size=30),
    st.sampled_from(["half-close", "gone", "tick"]),
)
_USUAL: list[bytes | str] = [_WORDS[0], _BODY, _BEGUN, _TOKEN, _END, "half-close"]


def _play(stream: PickerStream, event: bytes | str, tick: Callable[[], None]) -> None:
    if event == "half-close":
        stream.half_closed()
    elif event == "gone":
        stream.gone()
    elif event == "tick":
        tick()
    else:
        assert isinstance(event, bytes)
        stream.message(event)


@examples(100)
@given(data=st.data())
def test_no_stream_crashes_or_leaves_an_account_open_whatever_is_said_on_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def play() -> None:
        proxied = Proxied(tmp_path_factory.mktemp("spool"))
        try:
            made = [proxied.open() for _ in range(3)]
            over: set[int] = set()
            for _ in range(data.draw(st.integers(1, 24))):
                number = data.draw(st.sampled_from(range(3)))
                stream, heard = made[number]
                if number in over or heard.ends:
                    continue
                event = data.draw(_EVENTS)
                _play(stream, event, proxied.tick)
                await asyncio.sleep(0)
                if event == "gone":
                    over.add(number)
                assert len(heard.ends) <= 1
                assert 13 not in heard.ends  # INTERNAL: a fault of the router
            for stream, heard in made:
                if not heard.ends:
                    stream.gone()
            await asyncio.sleep(0)
            proxied.tick()
            assert proxied.open_accounts() == 0
            assert not proxied.router.metrics.client_errors["internal_error"]
            assert not proxied.router.metrics.accounting_errors
        finally:
            await proxied.router.api.close()

    asyncio.run(play())


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[Proxied]:
    made = Proxied(tmp_path)
    yield made
    await made.router.api.close()


async def test_a_usual_stream_ends_well_and_is_served(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    for event in _USUAL:
        _play(stream, event, proxied.tick)
    said = [one.WhichOneof("response") for one in heard.said]
    assert said == ["request_headers", "request_body", "response_headers", "response_body", "response_body"]
    assert heard.ends == [OK]
    assert proxied.pool.counters.served == 1
    assert sum(proxied.pool.counters.ttft.counts) == 1
    assert proxied.open_accounts() == 0


async def _mutation(proxied: Proxied, headers: dict[str, str]) -> Any:
    stream, heard = proxied.open()
    stream.message(request_headers(headers=headers).SerializeToString())
    stream.message(_BODY)
    return heard.said[0]


@pytest.mark.parametrize("passes", [False, True])
async def test_engines_get_no_priority_of_the_clients_own_where_they_get_that_of_its_class(proxied: Proxied, passes: bool) -> None:
    proxied.pool.passes_priority = passes
    said = await _mutation(proxied, {"x-vllm-priority": "-9"})
    assert ("x-vllm-priority" in said.request_headers.response.header_mutation.remove_headers) is passes


async def test_a_message_has_the_priority_of_its_class_in_a_header_as_its_protocol_has_no_field(proxied: Proxied) -> None:
    table = proxied.pool.table
    classes = (PriorityClass(name="batch", priority=-7),)
    proxied.pool.update(replace(table, version=9, priority_classes=classes, engine=replace(table.engine, pass_priority=True)), 0.0)
    sent = {":path": "/v1/messages", "x-llm-d-inference-objective": "batch", "x-vllm-priority": "-9", "x-override-rid": "1"}
    mutation = (await _mutation(proxied, sent)).request_headers.response.header_mutation
    assert headers_of(mutation)["x-vllm-priority"] == "7"
    assert list(mutation.remove_headers) == ["x-override-rid"]


async def test_an_adapter_in_a_header_is_refused_and_an_id_that_is_not_shown_is_replaced(proxied: Proxied) -> None:
    said = await _mutation(proxied, {"x-amzn-sagemaker-adapter-identifier": "sql-lora"})
    assert said.immediate_response.status.code == 400
    for sent, kept in (("a", True), ("a" * 300, False)):
        said = await _mutation(proxied, {"x-request-id": sent})
        assert ("x-request-id" not in headers_of(said.request_headers.response.header_mutation)) is kept


async def test_a_refused_request_is_in_no_account(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[3])
    stream.message(_BODY)
    assert [one.immediate_response.status.code for one in heard.said] == [503]
    assert heard.ends == [OK]
    assert proxied.open_accounts() == 0


async def test_a_request_that_the_scheduler_fails_on_costs_its_key_no_tokens(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = sha256(b"secret").hexdigest()
    proxied.router.keys.replace([GatewayKeyFacts(id="k", digest=digest, tokens_per_minute=100)], 0.0)

    def failing(*_: object) -> None:
        raise ZeroDivisionError("in a policy")

    def status_of_one() -> int:
        stream, heard = proxied.open()
        stream.message(request_headers(headers={"authorization": "Bearer secret"}).SerializeToString())
        stream.message(_BODY)
        return int(heard.said[0].immediate_response.status.code)

    with monkeypatch.context() as patched:
        patched.setattr(proxied.pool.scheduler, "submit", failing)
        assert status_of_one() == 500
    assert [status_of_one(), status_of_one()] == [0, 429], "0: it was picked for"


def _costs(proxied: Proxied) -> tuple[int, int, int]:
    uses = proxied.router.keys.use.take(0.0, final=True)
    return sum(one.requests for one in uses), sum(one.prompt_tokens for one in uses), sum(one.output_tokens for one in uses)


_CHAT = response_body(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' * 5, ended=False).SerializeToString()
_TOLD = response_body(
    b'data: {"choices": [], "usage": {"prompt_tokens": 700, "completion_tokens": 9}}\n\ndata: [DONE]\n\n', ended=False
).SerializeToString()


@pytest.mark.parametrize(
    ("events", "prompt", "output"),
    [
        (["gone"], 902, {0}),
        ([_BEGUN, "gone"], 902, {0}),
        ([_BEGUN, _CHAT, "gone"], 902, {4, 5}),
        ([_BEGUN, _CHAT, _TOLD, "gone"], 700, {9}),
        ([_BEGUN, _CHAT, _TOLD, _END, "half-close"], 700, {9}),
        ([_BUSY, "half-close"], 0, {0}),
        ([_NOT_FOUND, "half-close"], 0, {0}),
    ],
    ids=["unanswered", "begun", "broken off", "last event came", "ended", "failed", "declined"],
)
async def test_what_a_picked_request_costs_its_key_follows_from_how_it_ended(
    proxied: Proxied, events: list[bytes | str], prompt: int, output: set[int]
) -> None:
    digest = sha256(b"secret").hexdigest()
    proxied.router.keys.replace([GatewayKeyFacts(id="k", digest=digest, tokens_per_minute=10**6)], 0.0)
    stream, _ = proxied.open()
    stream.message(request_headers(headers={"authorization": "Bearer secret"}).SerializeToString())
    stream.message(_BODY)
    for event in events:
        _play(stream, event, proxied.tick)
    assert proxied.open_accounts() == 0
    requests, prompt_tokens, output_tokens = _costs(proxied)
    assert (requests, prompt_tokens) == (1, prompt)
    assert output_tokens in output


async def test_a_picked_answer_that_is_given_later_is_charged_when_it_is_seen(proxied: Proxied) -> None:
    digest = sha256(b"secret").hexdigest()
    proxied.router.keys.replace([GatewayKeyFacts(id="k", digest=digest)], 0.0)
    body = json.dumps({"model": "mock", "input": "hello " * 600, "background": True}).encode()
    stream, _ = proxied.open()
    stream.message(request_headers(path="/v1/responses", headers={"authorization": "Bearer secret"}).SerializeToString())
    stream.message(request_body(body, ended=True).SerializeToString())
    stream.message(response_headers(200, {"content-type": "application/json"}).SerializeToString())
    stream.message(response_body(b'{"id": "resp_a", "status": "queued", "usage": null}', ended=True).SerializeToString())
    _play(stream, "half-close", proxied.tick)
    usage = {"input_tokens": 1000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 0}}
    done = json.dumps({"id": "resp_a", "status": "completed", "usage": usage}).encode()
    for piece, ended in ((done[:50], False), (done, True), (done, True)):
        stream, _ = proxied.open()
        stream.message(request_headers("GET", "/v1/responses/resp_a", ended=True).SerializeToString())
        await asyncio.sleep(0)
        stream.message(response_headers(200, {"content-type": "application/json"}).SerializeToString())
        stream.message(response_body(piece, ended=ended).SerializeToString())
        _play(stream, "half-close", proxied.tick)
    assert _costs(proxied) == (1, 1000, 50)
    assert proxied.open_accounts() == 0


async def test_a_request_whose_proxy_fell_back_waited_in_the_queue_no_longer_for_that(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[0])
    stream.message(_BODY)
    (ticket,) = proxied.pool.account.tickets.values()
    waited, first = ticket.queued_seconds, headers_of(heard.said[0].request_headers.response.header_mutation)[DESTINATION]
    served, instance = ("10.0.0.2:8000", "i1") if first.startswith("10.0.0.1") else ("10.0.0.1:8000", "i0")
    await asyncio.sleep(0.01)
    stream.message(response_headers(200, SSE, served=served).SerializeToString())
    assert isinstance(ticket.verdict, Dispatch)
    assert (ticket.verdict.instance, ticket.queued_seconds) == (instance, waited)


async def test_failures_past_the_scheduler_make_an_engine_the_last_for_such_requests_alone(proxied: Proxied) -> None:
    scheduler, circuits = proxied.pool.scheduler, proxied.pool.choice.circuits
    for told in ("10.0.0.1:8000,10.0.0.2:8000",) * 3 + ("10.0.0.2:8000,10.0.0.1:8000",):
        stream, heard = proxied.open()
        stream.message(_WORDS[1])
        assert headers_of(heard.said[0].request_headers.response.header_mutation)[DESTINATION] == told
        stream.message(response_headers(500, {}, ended=True).SerializeToString())
    assert scheduler.broken(proxied.router.now()) == ()
    assert circuits.broken(proxied.router.now()) == ["i0"]


async def test_those_before_the_one_that_served_a_request_past_the_scheduler_have_failed(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[1])
    (said,) = heard.said
    assert headers_of(said.request_headers.response.header_mutation)[DESTINATION] == "10.0.0.1:8000,10.0.0.2:8000"
    stream.message(response_headers(200, {}, served="10.0.0.2:8000").SerializeToString())
    assert proxied.pool.account.direct == {"i1": 1}
    assert proxied.pool.counters.upstream_errors["passed-over"] == 1
    stream.message(_END)
    stream.half_closed()
    assert proxied.open_accounts() == 0


async def test_a_queued_request_goes_when_the_one_before_it_has_its_first_token(proxied: Proxied) -> None:
    (first, _), (second, _), (third, heard) = (proxied.open() for _ in range(3))
    for stream in (first, second, third):
        stream.message(_WORDS[0])
        stream.message(_BODY)
    assert not heard.said
    first.message(_BEGUN)
    first.message(_TOKEN)
    assert heard.said[0].WhichOneof("response") == "request_headers"


async def test_a_router_that_closes_breaks_off_what_is_under_way(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[0])
    stream.message(_BODY)
    proxied.router.picker.close()
    assert heard.ends == [14]  # UNAVAILABLE
    assert proxied.open_accounts() == 0


async def test_no_header_of_a_proxy_becomes_a_line_of_its_own_at_an_engine(proxied: Proxied) -> None:
    asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(engine, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        proxied.router.pools.apply(routing_table([f"{host}:{port}"], version=2))
        stream, heard = proxied.open()
        headers = {"x-kept": "1", "x-bad": "a\r\nx-evil: 1\r\n\r\nDELETE / HTTP/1.1", "x-b\r\nx-evil": "1", "x-nul": "a\0b"}
        stream.message(request_headers(ended=True, method="GET", path="/v1/responses/resp_1", headers=headers).SerializeToString())
        async with asyncio.timeout(PATIENCE_SECONDS):
            lines = (await asked).split(b"\r\n")
            while not heard.ends:
                await asyncio.sleep(0)
    assert b"x-kept: 1" in lines
    assert not any(line.startswith((b"x-evil", b"x-bad", b"x-b", b"x-nul")) for line in lines)


async def test_a_picked_answer_that_is_too_long_to_keep_is_charged_by_its_usage(proxied: Proxied) -> None:
    digest = sha256(b"secret").hexdigest()
    proxied.router.keys.replace([GatewayKeyFacts(id="k", digest=digest)], 0.0)
    body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello " * 600}], "logprobs": True}).encode()
    answer = json.dumps(
        {
            "choices": [{"index": 0, "message": {"content": "a"}, "logprobs": {"content": [{"token": "a" * 100}] * 50_000}}],
            "usage": {"prompt_tokens": 700, "completion_tokens": 90},
        }
    ).encode()
    assert len(answer) > WHOLE_ANSWER_BYTES
    stream, _ = proxied.open()
    stream.message(request_headers(headers={"authorization": "Bearer secret"}).SerializeToString())
    stream.message(request_body(body, ended=True).SerializeToString())
    stream.message(response_headers(200, {"content-type": "application/json"}).SerializeToString())
    for start in range(0, len(answer), 60_000):
        piece = answer[start : start + 60_000]
        stream.message(response_body(piece, ended=start + 60_000 >= len(answer)).SerializeToString())
    _play(stream, "half-close", proxied.tick)
    assert _costs(proxied) == (1, 700, 90)


# ── bodies ──

ENCODED = {
    "gzip": gzip.compress(BODY),
    "GZIP": gzip.compress(BODY),
    "deflate, gzip": gzip.compress(zlib.compress(BODY)),
    "identity, x-gzip": gzip.compress(BODY),
}


async def _said_all(heard: HeardStream, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(heard.said) < count:
            await asyncio.sleep(0)


def _passed_body(heard: HeardStream) -> bytes:
    said = (one.request_body.response.body_mutation.streamed_response.body for one in heard.said if one.HasField("request_body"))
    return b"".join(said)


@pytest.mark.parametrize("coding", ENCODED)
@pytest.mark.parametrize("name", ["content-encoding", "Content-Encoding"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_body_in_any_codings_reaches_its_engine_plain(proxied: Proxied, coding: str, name: str, path: str) -> None:
    stream, heard = proxied.open()
    stream.message(request_headers(path=path, headers={name: coding}).SerializeToString())
    stream.message(request_body(ENCODED[coding], ended=True).SerializeToString())
    await _said_all(heard, 2)
    assert json.loads(_passed_body(heard))["messages"] == json.loads(BODY)["messages"]
    assert "content-encoding" in heard.said[0].request_headers.response.header_mutation.remove_headers
    stream.gone()
    assert proxied.open_accounts() == 0


async def test_a_body_is_decoded_while_others_have_their_turns_and_its_memory_is_held_meanwhile(proxied: Proxied) -> None:
    plain = BODY + b" " * 8_000_000
    stream, heard = proxied.open()
    stream.message(request_headers(headers={"content-encoding": "gzip"}).SerializeToString())
    encoded = gzip.compress(plain)
    stream.message(request_body(encoded, ended=True).SerializeToString())
    turns, most = 0, 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not heard.said:
            await asyncio.sleep(0)
            turns += 1
            most = max(most, proxied.router.body_memory.held)
    assert turns >= 7, "of about a MiB each"
    assert most > 6_000_000
    assert proxied.router.body_memory.held == 0, "the proxy has it"


@pytest.mark.parametrize("end", ["gone", "half-close", "answered"])
async def test_a_request_that_ends_while_its_body_is_decoded_is_picked_for_no_more(proxied: Proxied, end: str) -> None:
    stream, heard = proxied.open()
    stream.message(request_headers(headers={"content-encoding": "gzip"}).SerializeToString())
    stream.message(request_body(gzip.compress(BODY + b" " * 8_000_000), ended=True).SerializeToString())
    await asyncio.sleep(0)
    if end == "answered":
        for word in (response_headers(504, {}).SerializeToString(), _END):
            stream.message(word)
    else:
        _play(stream, end, proxied.tick)
    for _ in range(30):
        await asyncio.sleep(0)
    if end == "answered":
        stream.half_closed()
    assert not any(one.HasField("request_headers") for one in heard.said)
    assert proxied.pool.counters.submitted == 0
    assert proxied.pool.counters.upstream_errors == {}
    assert proxied.open_accounts() == 0


async def test_a_response_that_is_looked_for_when_its_proxy_gives_up_is_in_no_account(proxied: Proxied) -> None:
    proxied.router.picker._picker._held.remember("resp_1", proxied.pool.key, "i0")
    stream, heard = proxied.open()
    stream.message(request_headers("GET", "/v1/responses/resp_1", ended=True).SerializeToString())
    stream.message(response_headers(504, {}).SerializeToString())
    stream.message(_END)
    for _ in range(30):
        await asyncio.sleep(0)
    stream.half_closed()
    assert heard.ends == [OK]
    assert not proxied.pool.counters.direct
    assert proxied.open_accounts() == 0


async def test_who_shows_no_key_has_nothing_decoded(proxied: Proxied) -> None:
    proxied.router.keys.required = True
    stream, heard = proxied.open()
    stream.message(request_headers(headers={"content-encoding": "br"}).SerializeToString())
    stream.message(_BODY)
    assert heard.said[0].immediate_response.status.code == 401


async def test_a_queued_request_holds_one_body_and_its_memory(proxied: Proxied) -> None:
    big = BODY.replace(b'"mock"', b'"default/chat"') + b" " * 1_000_000
    for _ in range(3):
        stream, heard = proxied.open()
        stream.message(_WORDS[0])
        stream.message(request_body(big, ended=True).SerializeToString())
    assert not heard.said
    assert proxied.router.body_memory.held == len(big)
    asked = stream._asked  # what a waiting request keeps is what is asked here
    assert b'"include_usage":true' in asked.body
    proxied.router.pools.shut_down()
    assert heard.said[0].immediate_response.status.code == 503
    assert (asked.body, proxied.router.body_memory.held) == (b"", 0)


class Wire:
    """A proxy's connection to the picker, frame by frame."""

    def __init__(self, proxied: Proxied) -> None:
        self.sent = bytearray()
        self.room = 10**9
        """Bytes that the picker may still send to it."""
        transport: Any = self
        server = proxied.router.picker
        self.connection = GrpcConnection(server.open, proxied.router.picker._picker.most_bytes, lambda _: None)
        self.connection.connection_made(transport)
        block = hpack.Encoder().encode(
            [(":method", "POST"), (":path", HeardStream.path.decode()), (":scheme", "http"), ("content-type", "application/grpc")]
        )
        self.feed(http2.PREFACE, http2.settings({}), http2.frame(http2.HEADERS, http2.END_HEADERS, 1, block))

    def feed(self, *data: bytes) -> None:
        self.connection.data_received(b"".join(data))

    def say(self, message: Any) -> None:
        payload = message if isinstance(message, bytes) else message.SerializeToString()
        whole = b"\x00" + len(payload).to_bytes(4, "big") + payload
        for start in range(0, len(whole), 16_384):
            self.feed(http2.frame(http2.DATA, 0, 1, whole[start : start + 16_384]))

    def write(self, data: bytes) -> None:
        self.sent += data
        if len(self.sent) > self.room:
            self.connection.pause_writing()

    def close(self) -> None:
        self.connection.connection_lost(None)

    abort = close

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None: ...

    def pause_reading(self) -> None: ...

    resume_reading = pause_reading


STALLED = BODY + b" " * 300_000
"""A number of bytes above a peer's initial window."""


@pytest.mark.parametrize("end", ["read", "reset", "lost", "late", "half-close"])
async def test_a_body_that_its_proxy_does_not_take_holds_its_memory_until_it_is_sent_or_dropped(proxied: Proxied, end: str) -> None:
    wire, memory = Wire(proxied), proxied.router.body_memory
    wire.say(request_headers())
    wire.say(request_body(STALLED, ended=True))
    assert memory.held >= len(STALLED)
    assert len(wire.sent) < 100_000
    if end == "read":
        wire.feed(http2.window_update(0, 10**6), http2.window_update(1, 10**6))
        assert len(wire.sent) > len(STALLED)
    elif end == "reset":
        wire.feed(http2.rst_stream(1, http2.CANCEL))
    elif end == "lost":
        wire.close()
    elif end == "late":
        for stream in tuple(proxied.router.picker._streams):
            stream.sweep(proxied.router.now() + 10**6, 1.0, 1.0)
    else:
        wire.feed(http2.frame(http2.DATA, http2.END_STREAM, 1))
    assert memory.held == 0
    wire.close()
    assert proxied.open_accounts() == 0


async def test_a_message_counts_before_all_of_it_is_there(proxied: Proxied) -> None:
    wire, memory = Wire(proxied), proxied.router.body_memory
    wire.say(request_headers())
    begun = (b"\x00" + (500_000).to_bytes(4, "big") + request_body(STALLED, ended=False).SerializeToString())[:200_000]
    for start in range(0, len(begun), 16_384):
        wire.feed(http2.frame(http2.DATA, 0, 1, begun[start : start + 16_384]))
    assert memory.held == len(begun)
    memory.most = memory.held + 10_000
    wire.feed(http2.frame(http2.DATA, 0, 1, bytes(16_384)))
    assert b"body_memory_full" in wire.sent
    assert memory.held == 0
    assert proxied.open_accounts() == 0


async def test_an_answer_goes_on_while_requests_take_all_the_memory(proxied: Proxied) -> None:
    wire, memory = Wire(proxied), proxied.router.body_memory
    wire.say(request_headers())
    wire.say(_BODY)
    wire.say(_BEGUN)
    memory.most = 0
    for _ in range(3):
        wire.say(response_body(b"data: " + b" " * 60_000 + b"\n\n", ended=False))
    wire.feed(http2.window_update(0, 10**6), http2.window_update(1, 10**6))
    assert len(wire.sent) > 180_000
    wire.say(_TOKEN)
    wire.say(_END)
    assert proxied.pool.counters.served == 1
    wire.close()
    assert proxied.open_accounts() == 0


async def test_a_peer_that_reads_nothing_takes_no_bodies_out_of_the_account(proxied: Proxied) -> None:
    """The peer's windows are as large as possible, so only its transport shows that it reads nothing."""
    wire, memory, large = Wire(proxied), proxied.router.body_memory, BODY + b" " * 3_000_000
    wire.room = 65_536
    wire.feed(http2.settings({http2.SETTING_WINDOW: 2**31 - 1, http2.SETTING_FRAME_SIZE: 256 * 1024}), http2.window_update(0, 2**30))
    wire.say(request_headers())
    wire.say(request_body(large, ended=True))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(wire.sent) < 600_000
    assert memory.held >= len(large)
    wire.room = 10**9
    wire.connection.resume_writing()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while memory.held or len(wire.sent) <= len(large):
            await asyncio.sleep(0)
    wire.close()


async def test_a_stream_on_which_nothing_is_said_ends(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.sweep(stream.arrived_at + 29.0, 30.0, 600.0)
    assert not heard.ends
    stream.sweep(stream.arrived_at + 30.0, 30.0, 600.0)
    assert heard.ends == [4]  # DEADLINE_EXCEEDED
    assert proxied.open_accounts() == 0


# ── answers and names ──


@pytest.mark.parametrize(
    ("path", "content_type", "body", "served"),
    [
        ("/v1/load_lora_adapter", "text/plain", b"", True),
        ("/v1/load_lora_adapter", "application/json", b'{"message": "loaded"}', True),
        ("/v1/load_lora_adapter", "text/event-stream", b"", True),
        ("/v1/load_lora_adapter", "application/json", b'{"error": {"message": "no"}}', False),
        ("/v1/load_lora_adapter", "text/event-stream", b'data: {"error": {"message": "no"}}\n\n', False),
        ("/v1/chat/completions", "application/json", b"", False),
        ("/v1/chat/completions", "text/event-stream", b"", False),
    ],
)
async def test_an_answer_to_a_path_that_is_not_known_may_be_anything_but_an_error(
    tmp_path: Path, path: str, content_type: str, body: bytes, served: bool
) -> None:
    proxied = Proxied(tmp_path, picker_any_path=True)
    stream, _ = proxied.open()
    stream.message(request_headers(path=path).SerializeToString())
    stream.message(_BODY)
    stream.message(response_headers(200, {"content-type": content_type}).SerializeToString())
    stream.message(response_body(body, ended=True).SerializeToString())
    stream.half_closed()
    counters = proxied.pool.counters
    assert (counters.served, counters.failed, counters.upstream_errors) == ((1, 0, {}) if served else (0, 1, {"answer": 1}))
    assert proxied.open_accounts() == 0
    await proxied.router.api.close()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions"])
async def test_an_instance_that_lacks_the_name_is_neither_chosen_nor_a_fallback(proxied: Proxied, path: str) -> None:
    proxied.pool.choice.names.contradicted("i0", "mock", proxied.router.now())
    stream, heard = proxied.open()
    stream.message(request_headers(path=path).SerializeToString())
    stream.message(_BODY)
    assert headers_of(heard.said[0].request_headers.response.header_mutation)[DESTINATION] == "10.0.0.2:8000"
    stream.gone()


async def test_a_queued_request_goes_to_no_instance_that_is_found_to_lack_its_name_meanwhile(proxied: Proxied) -> None:
    (first, _), (second, _), (_third, heard) = waiting = [proxied.open() for _ in range(3)]
    for stream, _ in waiting:
        stream.message(_WORDS[0])
        stream.message(_BODY)
    assert not heard.said
    (chosen,) = (row.instance for row in proxied.pool.scheduler.in_flight() if row.waiting)
    other = next(address for instance, address in proxied.pool.addresses.items() if instance != chosen)
    proxied.pool.choice.names.contradicted(chosen, "mock", proxied.router.now())
    for stream in (first, second):
        stream.gone()
    assert headers_of(heard.said[0].request_headers.response.header_mutation)[DESTINATION] == other
    assert proxied.pool.counters.retries == 0, "no engine was sent it before"
    waiting[2][0].gone()
    assert proxied.open_accounts() == 0


async def test_what_a_proxy_saw_fail_holds_against_it_unless_the_client_left(proxied: Proxied) -> None:
    circuits = proxied.pool.choice.circuits
    for _ in range(3):
        stream, _ = proxied.open()
        stream.message(_WORDS[1])
        stream.message(response_headers(200, {}, served="10.0.0.2:8000").SerializeToString())
        stream.gone()
    assert proxied.pool.counters.direct == {"cancelled": 3}
    assert circuits.broken(proxied.router.now()) == []
    for _ in range(3):
        stream, _ = proxied.open()
        stream.message(_WORDS[1])
        stream.message(response_headers(500, {}).SerializeToString())
        stream.gone()
    assert proxied.pool.counters.direct == {"cancelled": 3, "failed": 3}
    assert circuits.broken(proxied.router.now()) == ["i0"]
