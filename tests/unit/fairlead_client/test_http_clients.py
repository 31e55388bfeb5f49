"""A client never reads more than its bound from any server, and reports a longer answer in one line."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from fairlead_client.client import LARGEST_EVENT, ControlApi
from fairlead_client.http_clients import BY_PIECES, BoundedClient, NotReadable, UnboundedAnswer, decoded
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Later
from fairlead_client.problems import ApiUnreachable

PIECE = b" " * 65_536
MOST = 1_000_000


class Flood(httpx.AsyncBaseTransport):
    """An answer without an end; `sent` counts the bytes that were read."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers, self.sent, self.closed = status, headers or {}, 0, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(self.status, headers=self.headers, stream=_Endless(self))


class _Endless(httpx.AsyncByteStream):
    def __init__(self, flood: Flood) -> None:
        self._flood = flood

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._flood.sent < 100 * MOST:
            self._flood.sent += len(PIECE)
            yield PIECE

    async def aclose(self) -> None:
        self._flood.closed += 1


@pytest.mark.parametrize("status", [200, 404, 503])
@pytest.mark.parametrize("asks", ["whole", "by pieces"])
async def test_an_answer_without_an_end_is_left_at_the_bound(status: int, asks: str) -> None:
    flood = Flood(status)
    async with BoundedClient(MOST, transport=flood) as http:
        if asks == "by pieces" and status == 200:
            async with http.stream("GET", "http://there/", extensions=BY_PIECES) as answer:
                assert len([piece async for piece in _first(answer, 30)]) == 30, "nearly twice the bound"
            return
        with pytest.raises(UnboundedAnswer, match="answers with more than 1000000 bytes"):
            async with http.stream("GET", "http://there/", extensions=BY_PIECES if asks == "by pieces" else {}) as answer:
                await answer.aread()
    assert flood.sent <= MOST + len(PIECE)
    assert flood.closed


async def _first(answer: httpx.Response, count: int) -> AsyncIterator[bytes]:
    seen = 0
    async for piece in answer.aiter_raw():
        yield piece
        seen += 1
        if seen == count:
            return


async def test_a_compressed_answer_that_nobody_asked_for_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(bomb))

    async with BoundedClient(MOST, transport=httpx.MockTransport(answer)) as http:
        with pytest.raises(UnboundedAnswer, match="compresses its answers though nobody asked"):
            await http.get("http://there/")
    assert asked == ["identity"]


@pytest.mark.parametrize("status", [200, 500])
async def test_the_status_of_an_answer_that_nobody_reads_is_had_however_it_is_compressed(status: int) -> None:
    flood = Flood(status, {"content-encoding": "gzip"})
    async with BoundedClient(0, transport=flood) as http, http.stream("POST", "http://there/") as answer:
        assert answer.status_code == status
    assert (flood.sent, flood.closed) == (0, 1)


CALLS: dict[str, Callable[[httpx.AsyncBaseTransport], Awaitable[Any]]] = {
    "pools": lambda at: ControlApi("http://api", "t", at, largest=MOST).pools(),
    "advice": lambda at: ControlApi("http://api", "t", at, largest=MOST).advice(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_the_public_api_is_believed_no_further_than_its_bound(
    call: Callable[[httpx.AsyncBaseTransport], Awaitable[Any]], status: int
) -> None:
    flood = Flood(status)
    with pytest.raises(ApiUnreachable, match="answers with more than"):
        await call(flood)
    assert flood.sent <= MOST + len(PIECE)


@pytest.mark.parametrize(
    "document",
    [b'{"items": ' + b"[" * 200_000, b'{"x": ' + b'{"a":' * 200_000, b'{"items": "\xff"}', b"[", b"null"],
    ids=["lists", "objects", "bytes", "half", "null"],
)
@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_nests_or_is_no_json_is_one_short_line(document: bytes, status: int) -> None:
    at = httpx.MockTransport(lambda request: httpx.Response(status, content=document))
    with pytest.raises(ApiUnreachable) as refused:
        await ControlApi("http://api", "t", at).pools()
    assert len(str(refused.value)) < 300
    held = await SystemApi("http://api", "t", transport=at).held_pools()
    assert isinstance(held, Later)
    assert len(held.problem) < 600


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"{", b'"text"'])
def test_what_is_no_document_of_the_type_is_not_readable(content: bytes) -> None:
    with pytest.raises(NotReadable):
        decoded(content, dict[str, int])


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: " + b"x" * 65_000 + b"\n"], ids=["a line", "lines"])
async def test_a_live_event_without_an_end_is_left_at_its_bound(piece: bytes) -> None:
    taken: list[int] = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while len(taken) < 5000:
                taken.append(len(piece))
                yield piece

    at = httpx.MockTransport(lambda request: httpx.Response(200, stream=Endless()))
    with pytest.raises(ApiUnreachable, match="more than 16777216 bytes"):
        async for _ in ControlApi("http://api", "t", at).live(("pools",)):
            pass
    assert sum(taken) <= 2 * LARGEST_EVENT


async def test_live_events_arrive_whole_however_they_are_cut() -> None:
    stream = b"event: pools\r\nid: 7\r\ndata: [1,\r\ndata: 2]\r\n\r\n: beat\n\ndata: x\n\n"

    class Cut(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for byte in stream:
                yield bytes([byte])

    at = httpx.MockTransport(lambda request: httpx.Response(200, stream=Cut()))
    found = [(one.event, one.id, one.data) async for one in ControlApi("http://api", "t", at).live(("pools",))]
    assert found == [("pools", "7", "[1,\n2]"), ("message", None, "x")]
