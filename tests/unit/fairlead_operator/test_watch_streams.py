"""For any content of a watch's stream, kopf gets the events before an error, and the watch restarts after a pause."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from fairlead_operator import watch_streams
from fairlead_operator.watch_streams import FAILURES, GONE, Watches, WatchLines, take_whole_answers
from fairlead_process.kubernetes_api import BoundedResponse
from fairlead_testing.examples import examples

PODS = "/api/v1/pods"


def event(number: int) -> bytes:
    metadata = {"name": f"pod-{number}", "uid": f"uid-{number}", "resourceVersion": str(number)}
    return json.dumps({"type": "MODIFIED", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}).encode() + b"\n"


def error(code: int, **more: Any) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "injected", "code": code, **more}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


BAD = {
    "500": error(500),
    "429": error(429, details={"retryAfterSeconds": 7}),
    "403": error(403),
    "504": error(504, message=None),
    "no code": b'{"type":"ERROR","object":{}}\n',
    "no json": b"upstream connect error\n",
    "no event": b'{"kind":"Status","code":500}\n',
    "a list": b"[]\n",
    "null": b"null\n",
    "no object": b'{"type":"ADDED","object":null}\n',
    "no metadata": b'{"type":"ADDED","object":{"metadata":null}}\n',
    "no uid": b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}\n',
    "nesting": b'{"type":"ADDED","object":{"metadata":{"name":"x","uid":"y"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}}\n",
    "no UTF-8": b'{"type":"ADDED\xff"}\n',
    "cut": event(9)[:-10],
    "without its end": event(9)[:-1],
}


class Pauses:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Content:
    """A stream that arrives in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(watches: Watches, pieces: list[bytes]) -> tuple[list[bytes], str]:
    """Return the lines that kopf gets, and how the stream ended."""
    lines = []
    try:
        async for line in WatchLines(cast(aiohttp.StreamReader, Content(pieces)), PODS, watches).iter_chunked(1024):
            lines.append(line)  # noqa: PERF401 - those before a fault are kept
    except aiohttp.ClientPayloadError as broken:
        return lines, str(broken)
    return lines, ""


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
@given(before=st.integers(0, 4), places=st.lists(st.integers(0, 100_000), max_size=8))
@examples(20)
async def test_events_before_a_fault_are_heard_and_the_watch_begins_again_after_a_pause(bad: bytes, before: int, places: list[int]) -> None:
    pauses = Pauses()
    events = [event(number) for number in range(before)]
    lines, ended = await read(Watches(pauses), cut(b"".join(events) + bad, places))
    assert lines == events
    assert 0 < len(ended) < 400
    assert len(pauses.seconds) == 1


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
@examples(100)
async def test_any_bytes_end_a_stream_as_a_broken_one_or_are_nothing(content: bytes, places: list[int]) -> None:
    lines, ended = await read(Watches(Pauses()), cut(content, places))
    assert lines == []
    assert bool(content.strip(b" \t\r\n\x0b\x0c")) == bool(ended)


async def test_an_expired_version_is_left_to_kopf_which_lists_again() -> None:
    pauses = Pauses()
    assert await read(Watches(pauses), [event(1), error(410)]) == ([event(1), error(410)], "")
    assert pauses.seconds == []


async def test_pauses_grow_while_a_watch_fails_and_each_third_failure_lists_all_objects_again() -> None:
    pauses = Pauses()
    watches = Watches(pauses)
    got = [await read(watches, [error(500)]) for _ in range(7)]
    assert pauses.seconds == [1, 2, 4, 8, 15, 15, 15]
    assert [lines for lines, _ in got] == [[GONE] if number % FAILURES == 0 else [] for number in range(1, 8)]
    await read(watches, [event(1)])
    await read(watches, [error(500)])
    assert pauses.seconds[-1] == 1, "an event ends the row"


@pytest.mark.parametrize(("asked", "waited"), [(7, 7), (0, 1), (-5, 1), (10**9, 60)])
async def test_a_server_is_given_the_time_it_asks_for_up_to_a_minute(asked: int, waited: int) -> None:
    pauses = Pauses()
    await read(Watches(pauses), [error(429, details={"retryAfterSeconds": asked})])
    assert pauses.seconds == [waited]


async def test_a_watch_that_ends_at_once_is_not_asked_again_at_once() -> None:
    pauses = Pauses()
    watches = Watches(pauses)
    for _ in range(3):
        assert await read(watches, []) == ([], "")
    assert await read(watches, [event(1)]) == ([event(1)], "")
    assert pauses.seconds == [1, 2, 4]


async def test_a_line_without_an_end_is_left_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_streams, "LONGEST_LINE", 10_000)
    taken: list[int] = []

    class Endless:
        async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
            while len(taken) < 1000:
                taken.append(size)
                yield b"x" * 1000

    with pytest.raises(aiohttp.ClientPayloadError, match="more than 10000 bytes"):
        async for _ in WatchLines(cast(aiohttp.StreamReader, Endless()), PODS, Watches(Pauses())).iter_chunked(1024):
            pass
    assert len(taken) == 11


DOCUMENTS = {
    "a list": (200, b'{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}', {}, True),
    "an object": (200, b'{"kind":"Pod","metadata":{"name":"x"}}', {}, True),
    "discovery": (200, b'{"kind":"APIResourceList","resources":[]}', {}, True),
    "nothing": (200, b"{}", {}, False),
    "null": (200, b"null", {}, False),
    "a list without a version": (200, b'{"kind":"PodList","items":[]}', {}, False),
    "half": (200, b'{"kind":"PodList","metad', {}, False),
    "nesting": (200, b'{"kind":"x","a":' + b"[" * 200_000, {}, False),
    "a refusal": (409, b'{"kind":"Status","details":{"name":"x"}}', {}, True),
    "a refusal in words": (404, b"404 page not found", {}, True),
    "another document": (503, b'{"details":"no healthy upstream"}', {}, True),
    "a wait": (429, b'{"kind":"Status","details":{"retryAfterSeconds":3}}', {"Retry-After": "3"}, True),
    "a wait until a date": (429, b'{"kind":"Status"}', {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, False),
    "an endless wait": (429, b'{"kind":"Status"}', {"Retry-After": "1000000000"}, False),
    "an endless wait inside": (429, b'{"kind":"Status","details":{"retryAfterSeconds":1e9}}', {}, False),
    "details that are none": (500, b'{"kind":"Status","details":"x"}', {}, False),
    "a refusal that nests": (500, b'{"kind":"Status","a":' + b"[" * 200_000, {}, False),
    "a refusal that is no UTF-8": (500, b"\xff\xfe", {}, False),
}


@pytest.mark.parametrize(("status", "body", "headers", "taken"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
async def test_an_answer_that_kopf_could_not_read_counts_as_none(status: int, body: bytes, headers: dict[str, str], taken: bool) -> None:
    async def whole() -> bytes:
        return body

    answer = SimpleNamespace(status=status, headers=headers, read=whole)
    request = cast(aiohttp.ClientRequest, SimpleNamespace(url=URL("https://kubernetes/api/v1/pods")))

    async def send(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
        return cast(aiohttp.ClientResponse, answer)

    if taken:
        assert await take_whole_answers(request, send) is cast(Any, answer)
    else:
        with pytest.raises(aiohttp.ClientConnectionError, match="the answer is not whole"):
            await take_whole_answers(request, send)


async def test_a_watch_whose_version_the_server_has_forgotten_begins_at_the_present_state_after_growing_pauses() -> None:
    pauses = Pauses()
    answers = [SimpleNamespace(status=410, release=lambda: None)] * 2 + [SimpleNamespace(status=200, content=Content([event(1)]))]
    request = SimpleNamespace(url=URL(f"https://kubernetes{PODS}?watch=true&resourceVersion=5"))
    asked: list[str] = []

    async def send(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
        asked.append(request.url.query_string)
        return cast(aiohttp.ClientResponse, answers.pop(0))

    answer = await Watches(pauses)(cast(aiohttp.ClientRequest, request), send)
    assert [line async for line in answer.content.iter_chunked(10)] == [event(1)]
    assert asked == ["watch=true&resourceVersion=5", "watch=true", "watch=true"]
    assert pauses.seconds == [1, 2]


@pytest.mark.parametrize("bad", [error(500), BAD["no uid"], BAD["cut"], b""], ids=["500", "no uid", "cut", "the end"])
async def test_an_answer_of_a_real_server_is_read_and_left_as_kopf_does(bad: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event(1) + bad)
        return response

    app, pauses, lines = web.Application(), Pauses(), list[bytes]()
    app.router.add_get(PODS, answer)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession(middlewares=(Watches(pauses), take_whole_answers), response_class=BoundedResponse) as session,
    ):
        for _ in range(2):
            with suppress(aiohttp.ClientPayloadError):
                async with await session.get(server.make_url(PODS), params={"watch": "true"}) as response:
                    async for line in response.content.iter_chunked(1024):
                        lines.append(line)
    assert lines == [event(1)] * 2
    assert pauses.seconds == ([1, 1] if bad else [])
