"""Streams of a picker over a real scheduler: whatever a proxy says, no request's account stays open."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.schedulers import Dispatch
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_router.main import Router
from fairlead_router.picking.accounts import WHOLE_ANSWER_BYTES
from fairlead_router.picking.grpc_stream import OK
from fairlead_router.picking.serving import tls_context
from fairlead_router.picking.streams import PickerStream
from fairlead_router.pool import Pool
from fairlead_router.settings import RouterSettings
from fairlead_testing.builders.routing_tables import routing_table
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
    """A stream whose answers are kept."""

    path = b"/envoy.service.ext_proc.v3.ExternalProcessor/Process"
    authority = b"picker"

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.ends: list[int] = []

    def send(self, message: bytes) -> None:
        assert not self.ends
        self.said.append(ProcessingResponse.FromString(message))

    def finish(self, status: int, message: str = "") -> None:
        self.ends.append(status)


class Proxied:
    """A router with one pool, and streams to its picker."""

    def __init__(self, directory: Path, **table: Any) -> None:
        self.time = 1000.0
        settings = RouterSettings(api_urls=("http://127.0.0.1:1",), api_token="t" * 20, router_id="router-0", spool_dir=directory)
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
        return counted + len(self.pool.tickets) + sum(self.pool.direct.values()) + self.router.picker.active


BODY = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "hello " * 600}], "stream": True}).encode()
SSE = {"content-type": "text/event-stream"}
_SAID = (
    request_headers(),
    request_headers(ended=True, method="GET", path="/v1/models"),
    request_headers(subset=["10.0.0.2:8000"]),
    request_headers(subset=[]),
    request_headers(path="/nothing"),
    request_headers(path="/v1/responses/resp_1/cancel", ended=True),
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
)
_WORDS: list[bytes] = [message.SerializeToString() for message in _SAID]
_EVENTS = st.one_of(
    st.sampled_from(_WORDS),
    st.sampled_from(_WORDS),
    st.builds(lambda word, cut: word[: cut % (len(word) + 1)], st.sampled_from(_WORDS), st.integers(0, 4000)),
    st.binary(max_size=30),
    st.sampled_from(["half-close", "gone", "tick"]),
)
_USUAL: list[bytes | str] = [_WORDS[0], _WORDS[6], _WORDS[9], _WORDS[14], _WORDS[15], "half-close"]


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


@settings(max_examples=100, deadline=None)
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


async def test_a_refused_request_is_in_no_account(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[3])
    stream.message(_WORDS[6])
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
        stream.message(_WORDS[6])
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
        (["gone"], 900, {0}),
        ([_WORDS[9], "gone"], 900, {0}),
        ([_WORDS[9], _CHAT, "gone"], 900, {4, 5}),
        ([_WORDS[9], _CHAT, _TOLD, "gone"], 700, {9}),
        ([_WORDS[9], _CHAT, _TOLD, _WORDS[15], "half-close"], 700, {9}),
        ([_WORDS[12], "half-close"], 0, {0}),
        ([_WORDS[13], "half-close"], 0, {0}),
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
    stream.message(_WORDS[6])
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
    stream.message(_WORDS[6])
    (ticket,) = proxied.pool.tickets.values()
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
    assert proxied.pool.direct == {"i1": 1}
    assert proxied.pool.counters.upstream_errors["passed-over"] == 1
    stream.message(_WORDS[15])
    stream.half_closed()
    assert proxied.open_accounts() == 0


async def test_a_queued_request_goes_when_the_one_before_it_has_its_first_token(proxied: Proxied) -> None:
    (first, _), (second, _), (third, heard) = (proxied.open() for _ in range(3))
    for stream in (first, second, third):
        stream.message(_WORDS[0])
        stream.message(_WORDS[6])
    assert not heard.said
    first.message(_WORDS[9])
    first.message(_WORDS[14])
    assert heard.said[0].WhichOneof("response") == "request_headers"


async def test_a_router_that_closes_breaks_off_what_is_under_way(proxied: Proxied) -> None:
    stream, heard = proxied.open()
    stream.message(_WORDS[0])
    stream.message(_WORDS[6])
    proxied.router.picker.close()
    assert heard.ends == [14]  # UNAVAILABLE
    assert proxied.open_accounts() == 0


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="FAIRLEAD_PICKER_TLS_CERT_FILE"):
        tls_context(tmp_path / "none.pem", tmp_path / "none.key")
    assert ssl.HAS_ALPN


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
