"""HTTP/2 and gRPC of the picker's port, tested with single frames and bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, cast

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_process.grpc_server import grpc_connection, grpc_stream, http2
from fairlead_process.grpc_server.frame_reader import MOST_STEPS, STREAM_STEPS
from fairlead_process.grpc_server.grpc_connection import GrpcConnection
from fairlead_process.grpc_server.grpc_stream import MOST_WAITING, STREAM_WINDOW, GrpcStream
from fairlead_router.serving.body_memory import BodyMemory
from fairlead_testing.steps import LINE, CountedArray, counted, work_of
from fairlead_testing.waiting import PATIENCE_SECONDS

LARGEST = 1000


class Transport:
    """A transport that accepts writes until it is full."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def get_write_buffer_size(self) -> int:
        return 0


class Echo:
    """A service that sends each message back, and keeps the received ones."""

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream
        self.heard: list[bytes | str] = []

    def message(self, payload: bytes) -> None:
        self.heard.append(payload)
        self.stream.send(payload)

    def keeps(self, size: int) -> bool:
        return True

    def half_closed(self) -> None:
        self.heard.append("half-closed")
        self.stream.finish(0)

    def gone(self) -> None:
        self.heard.append("gone")


class Client:
    """A client that sends bytes, and reads the answer as frames."""

    def __init__(self) -> None:
        self.echoes: list[Echo] = []
        self.transport = cast(Any, Transport())
        self.encoder = hpack.Encoder()
        self.connection = GrpcConnection(self._open, LARGEST, lambda _: None)
        self.connection.connection_made(self.transport)

    def _open(self, stream: GrpcStream) -> Echo | None:
        if stream.path != b"/echo":
            return None
        self.echoes.append(Echo(stream))
        return self.echoes[-1]

    def begin(self, number: int = 1, path: str = "/echo", content_type: str = "application/grpc", *, ended: bool = False) -> bytes:
        block = self.encoder.encode([(":method", "POST"), (":path", path), (":scheme", "http"), ("content-type", content_type)])
        return http2.frame(http2.HEADERS, http2.END_HEADERS | (http2.END_STREAM if ended else 0), number, block)

    def feed(self, *data: bytes) -> None:
        self.connection.data_received(b"".join(data))
        while self.connection._is_behind:
            self.connection._catch_up()

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        found, start, data = [], 0, bytes(self.transport.written)
        while start < len(data):
            high, low, kind, flags, number = http2.HEAD.unpack_from(data, start)
            stop = start + 9 + ((high << 8) | low)
            found.append((kind, flags, number, data[start + 9 : stop]))
            start = stop
        return found

    def data(self, number: int = 1) -> bytes:
        return b"".join(payload for kind, _, stream, payload in self.frames() if kind == http2.DATA and stream == number)

    def trailers(self, number: int = 1) -> dict[str, str] | None:
        decoder, found = hpack.Decoder(), None
        for kind, flags, stream, payload in self.frames():
            if kind == http2.HEADERS:
                fields = {name.decode(): value.decode() for name, value in decoder.decode(payload, raw=True)}
                if stream == number and flags & http2.END_STREAM:
                    found = fields
        return found

    def goaway(self) -> int | None:
        return next((int.from_bytes(payload[4:8], "big") for kind, _, _, payload in self.frames() if kind == http2.GOAWAY), None)


def grpc_message(payload: bytes) -> bytes:
    return b"\x00" + len(payload).to_bytes(4, "big") + payload


def data(payload: bytes, number: int = 1, *, ended: bool = False) -> bytes:
    return http2.frame(http2.DATA, http2.END_STREAM if ended else 0, number, payload)


def within_a_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]  # pytest's own loop does not run inside hypothesis


HELLO = http2.PREFACE + http2.settings({})


@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_messages_come_whole_however_they_are_cut(step: int) -> None:
    client = Client()
    sent = (
        HELLO + client.begin() + data(grpc_message(b"one")[:4]) + data(grpc_message(b"one")[4:] + grpc_message(b"")) + data(b"", ended=True)
    )
    for start in range(0, len(sent), step):
        client.feed(sent[start : start + step])
    assert client.echoes[0].heard == [b"one", b"", "half-closed"]
    assert client.data() == grpc_message(b"one") + grpc_message(b"")
    assert (client.trailers() or {})["grpc-status"] == "0"


async def test_padded_frames_and_headers_in_several_frames_are_read() -> None:
    client = Client()
    whole = client.begin()
    block = whole[9:]
    first = http2.frame(http2.HEADERS, http2.PADDED | http2.HAS_PRIORITY, 1, b"\x02" + b"\x00" * 5 + block[:3] + b"\x00\x00")
    rest = http2.frame(http2.CONTINUATION, 0, 1, block[3:6]) + http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1, block[6:])
    client.feed(HELLO, first, rest, http2.frame(http2.DATA, http2.PADDED, 1, b"\x03" + grpc_message(b"x") + b"\x00" * 3))
    assert client.echoes[0].heard == [b"x"]


@pytest.mark.parametrize(
    ("path", "content_type", "message", "status"),
    [
        ("/other", "application/grpc", b"", "12"),
        ("/echo", "text/plain", b"", "3"),
        ("/echo", "application/grpc", b"\x01\x00\x00\x00\x01x", "12"),
        ("/echo", "application/grpc", b"\x00\x00\x01\x00\x00", "8"),
    ],
)
async def test_a_call_that_cannot_be_served_ends_with_a_status_and_the_connection_goes_on(
    path: str, content_type: str, message: bytes, status: str
) -> None:
    client = Client()
    client.feed(HELLO, client.begin(1, path, content_type), data(message), client.begin(3), data(grpc_message(b"y"), 3))
    assert (client.trailers() or {})["grpc-status"] == status
    assert client.echoes[-1].heard == [b"y"]


async def test_a_stream_that_ends_in_the_middle_of_a_message_is_refused() -> None:
    client = Client()
    client.feed(HELLO, client.begin(), data(b"\x00\x00", ended=True))
    assert (client.trailers() or {})["grpc-status"] == "3"
    assert client.echoes[0].heard == ["gone"]


async def test_answers_wait_for_the_peers_windows_and_come_whole() -> None:
    client = Client()
    client.connection = GrpcConnection(client._open, 1 << 20, lambda _: None)
    client.transport = full = cast(Any, Transport())
    client.connection.connection_made(full)
    payload = bytes(range(256)) * 1000
    client.feed(HELLO, http2.settings({http2.SETTING_WINDOW: 100_000}), client.begin(), data(grpc_message(payload)[:200_000]))
    client.feed(data(grpc_message(payload)[200_000:], ended=True))
    assert len(client.data()) == 65_535  # the connection's window
    assert client.trailers() is None
    client.feed(http2.window_update(0, 1_000_000))
    assert len(client.data()) == 100_000  # the stream's
    client.feed(http2.settings({http2.SETTING_WINDOW: 150_000}))
    assert len(client.data()) == 150_000
    client.feed(http2.window_update(1, 1_000_000))
    assert client.data() == grpc_message(payload)
    assert client.trailers() is not None


async def test_a_peer_that_takes_no_answers_gets_no_leave_to_send_more() -> None:
    client = Client()
    client.feed(HELLO, http2.settings({http2.SETTING_WINDOW: 0}), client.begin())
    piece, sent = grpc_message(b"x" * LARGEST), 0

    def leave() -> int:
        given = (payload for kind, _, number, payload in client.frames() if kind == http2.WINDOW_UPDATE and number == 1)
        return STREAM_WINDOW + sum(int.from_bytes(payload, "big") for payload in given)

    while sent + len(piece) <= leave():
        client.feed(data(piece))
        sent += len(piece)
        assert sent < 3 * MOST_WAITING
    client.feed(http2.window_update(1, 1 << 24), http2.window_update(0, 1 << 24))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(client.data()) < sent:
            await asyncio.sleep(0)
    assert client.goaway() is None


async def test_a_peer_that_sends_without_leave_loses_its_connection() -> None:
    client = Client()
    client.feed(HELLO, http2.settings({http2.SETTING_WINDOW: 0}), client.begin())
    for _ in range(3 * MOST_WAITING // LARGEST):
        client.feed(data(grpc_message(b"x" * LARGEST)))
        if client.transport.is_closed:
            break
    assert client.goaway() == http2.FLOW_CONTROL_ERROR


async def test_a_long_message_in_frames_of_one_byte_holds_up_nobody() -> None:
    client = Client()
    client.connection = GrpcConnection(client._open, 1 << 24, lambda _: None)
    client.connection.connection_made(client.transport)
    message = grpc_message(b"x" * 8_000_000)
    client.feed(HELLO, client.begin())
    for start in range(0, len(message) - 5000, 200_000):
        client.feed(data(message[start : min(start + 200_000, len(message) - 5000)]))
    stream = client.echoes[0].stream
    stream._buffer = CountedArray(stream._buffer)
    with counted(grpc_stream):
        assert work_of(lambda: client.feed(*(data(b"x") for _ in range(4999)))) < 5000 * 200 * LINE, "a frame costs some lines"
    assert isinstance(stream._buffer, CountedArray), "which grew where it is"
    client.feed(data(b"x"))
    assert [len(one) for one in client.echoes[0].heard] == [8_000_000]


@pytest.mark.parametrize("frame", [http2.window_update(0, 1), http2.settings({http2.SETTING_WINDOW: 70_000})], ids=["leave", "settings"])
async def test_thousands_of_frames_that_concern_all_streams_hold_up_nobody(frame: bytes) -> None:
    client = Client()
    client.feed(HELLO, *(client.begin(number) for number in range(1, 4000, 2)))
    assert work_of(lambda: client.feed(frame * 5000)) < 5000 * 200 * LINE, "a frame costs some lines, and none for each stream"


async def test_a_full_socket_is_not_read_from_until_it_drains() -> None:
    client = Client()
    client.feed(HELLO, client.begin())
    client.connection.pause_writing()
    assert not client.transport.reads
    client.echoes[0].stream.send(b"later")
    await asyncio.sleep(0)
    assert client.data() == b""
    client.connection.resume_writing()
    await asyncio.sleep(0)
    assert client.transport.reads
    assert client.data() == grpc_message(b"later")


async def test_a_reset_and_a_lost_connection_end_streams_once() -> None:
    client = Client()
    client.feed(HELLO, client.begin(1), client.begin(3), http2.rst_stream(1, http2.CANCEL), data(grpc_message(b"late")))
    client.echoes[0].stream.send(b"nobody hears")
    client.connection.connection_lost(None)
    assert [echo.heard for echo in client.echoes] == [["gone"], ["gone"]]


async def test_a_connection_that_leaves_refuses_streams_and_closes_after_the_last() -> None:
    client = Client()
    client.feed(HELLO, client.begin(1))
    client.connection.leave()
    client.feed(client.begin(3), data(grpc_message(b"of a refused stream"), 3), http2.rst_stream(3, http2.CANCEL))
    client.feed(data(grpc_message(b"z")), data(b"", ended=True))
    await asyncio.sleep(0)
    assert [(payload[:4], payload[4:8]) for kind, _, _, payload in client.frames() if kind == http2.GOAWAY] == [
        ((1).to_bytes(4, "big"), http2.NO_ERROR.to_bytes(4, "big"))
    ]
    assert (http2.RST_STREAM, 0, 3, http2.REFUSED_STREAM.to_bytes(4, "big")) in client.frames()
    assert client.data() == grpc_message(b"z")
    assert client.transport.is_closed


async def test_pings_and_settings_are_acknowledged() -> None:
    client = Client()
    client.feed(HELLO, http2.frame(http2.PING, 0, 0, b"12345678"))
    assert (http2.PING, http2.ACK, 0, b"12345678") in client.frames()
    assert (http2.SETTINGS, http2.ACK, 0, b"") in client.frames()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\n", http2.PROTOCOL_ERROR),
        (HELLO + data(b"", 5), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.CONTINUATION, 0, 1, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.frame(http2.PUSH_PROMISE, 0, 1, b""), http2.PROTOCOL_ERROR),
        (HELLO + http2.window_update(0, 0), http2.FLOW_CONTROL_ERROR),
        (HELLO + http2.frame(http2.SETTINGS, 0, 0, b"x"), http2.FRAME_SIZE_ERROR),
        (HELLO + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), http2.COMPRESSION_ERROR),
        (HELLO + http2.HEAD.pack(0xFFFF, 0xFF, http2.DATA, 0, 1), http2.FRAME_SIZE_ERROR),
    ],
)
async def test_what_is_not_http2_ends_the_connection_with_its_code(sent: bytes, code: int) -> None:
    client = Client()
    client.feed(sent)
    assert client.goaway() == code
    assert client.transport.is_closed


_FRAMES = st.builds(http2.frame, st.integers(0, 11), st.integers(0, 255), st.sampled_from([0, 1, 1, 3, 5, 2]), st.binary(max_size=40))


@given(st.lists(st.one_of(_FRAMES, st.binary(max_size=30), st.just(data(grpc_message(b"x")))), max_size=15), st.integers(1, 60))
def test_no_bytes_crash_a_connection_and_each_stream_ends_once(parts: list[bytes], step: int) -> None:
    async def test() -> None:
        client = Client()
        sent = HELLO + client.begin() + b"".join(parts)
        for start in range(0, len(sent), step):
            if client.transport.is_closed:
                break
            client.feed(sent[start : start + step])
        client.connection.connection_lost(None)
        for echo in client.echoes:
            assert sum(word in ("gone", "half-closed") for word in echo.heard if isinstance(word, str)) == 1

    within_a_loop(test)


# ── strangers ──


async def test_a_greeting_without_a_stream_is_told_to_go_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "FIRST_STREAM_SECONDS", 0.01)
    client = Client()
    client.feed(HELLO)
    await asyncio.sleep(0.05)
    assert [code for kind, _, _, payload in client.frames() if kind == http2.GOAWAY for code in payload[4:8]] == [0, 0, 0, http2.NO_ERROR]
    assert client.transport.is_closed


async def test_a_connection_is_idle_only_without_streams_and_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "FIRST_STREAM_SECONDS", 0.01)
    monkeypatch.setattr(grpc_connection, "IDLE_STREAMS_SECONDS", 0.01)
    client = Client()
    client.feed(HELLO, client.begin())
    await asyncio.sleep(0.05)
    assert not client.transport.is_closed, "a stream is open"
    client.feed(http2.rst_stream(1, http2.CANCEL))
    await asyncio.sleep(0.05)
    assert client.transport.is_closed


async def test_thousands_of_whole_requests_in_one_read_leave_others_their_turns() -> None:
    client = Client()
    flood = b"".join(client.begin(number) + http2.rst_stream(number, http2.CANCEL) for number in range(1, 4001, 2))
    client.connection.data_received(HELLO + flood)
    begun = [len(client.echoes)]
    for _ in range(3):
        assert not client.transport.reads, "no more is read meanwhile"
        await asyncio.sleep(0)
        begun.append(len(client.echoes))
    assert max(late - early for early, late in pairwise([0, *begun])) <= MOST_STEPS // STREAM_STEPS
    assert begun == sorted(set(begun)), "each turn has some"
    while not client.transport.reads:
        await asyncio.sleep(0)
    assert len(client.echoes) == 2000


@pytest.mark.parametrize("kind", [http2.PING, http2.WINDOW_UPDATE, http2.PRIORITY, 99])
async def test_floods_of_small_frames_leave_others_their_turns_too(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    client = Client()
    take = client.connection._frames._came

    def count(*arguments: Any) -> None:
        nonlocal taken
        taken += 1
        take(*arguments)

    client.connection._frames._came = count
    payload = (1).to_bytes(4, "big") if kind == http2.WINDOW_UPDATE else bytes(8)
    client.connection.data_received(HELLO + http2.frame(kind, 0, 0, payload) * 20_000)
    assert taken <= MOST_STEPS


async def test_who_begins_and_resets_without_end_is_asked_to_go_and_the_streams_of_others_end_in_peace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_connection, "MOST_RESETS", 50)
    monkeypatch.setattr(grpc_connection, "MOST_REFUSED", 50)
    client = Client()
    client.feed(HELLO, client.begin())
    number = 1
    while not any(kind == http2.GOAWAY for kind, *_ in client.frames()):
        number += 2
        assert number < 500
        client.feed(client.begin(number), http2.rst_stream(number, http2.CANCEL))
    goaway = next(payload for kind, _, _, payload in client.frames() if kind == http2.GOAWAY)
    assert int.from_bytes(goaway[4:8], "big") == http2.ENHANCE_YOUR_CALM
    assert not client.transport.is_closed
    client.feed(data(grpc_message(b"still here")))
    assert client.echoes[0].heard == [b"still here"]
    served = len(client.echoes)
    for _ in range(60):
        number += 2
        client.feed(client.begin(number))
        if client.transport.is_closed:
            break
    assert client.transport.is_closed, "who does not hear is cut"
    assert len(client.echoes) == served


async def test_a_full_picker_refuses_streams_unseen() -> None:
    client = Client()
    client.connection = GrpcConnection(client._open, LARGEST, lambda _: None, lambda: len(client.echoes) >= 3)
    client.connection.connection_made(client.transport)
    client.feed(HELLO, *(client.begin(number) for number in range(1, 20, 2)))
    refused = [payload for kind, _, _, payload in client.frames() if kind == http2.RST_STREAM]
    assert refused == [http2.REFUSED_STREAM.to_bytes(4, "big")] * 7


async def test_what_streams_wait_to_send_is_counted_until_it_is_sent_or_dropped() -> None:
    memory, client = BodyMemory(2**30), Client()
    client.connection = GrpcConnection(client._open, 1 << 24, lambda _: None, memory=memory)
    client.connection.connection_made(client.transport)
    client.feed(HELLO, client.begin(1), client.begin(3))
    for echo in client.echoes:
        echo.stream.send(b"x" * 300_000)
    assert 400_000 < memory.held < 700_000, "the peer's windows are smaller"
    client.feed(http2.rst_stream(1, http2.CANCEL))
    client.feed(http2.window_update(0, 1_000_000), http2.window_update(3, 1_000_000))
    await asyncio.sleep(0)
    client.connection._flush_streams()
    assert memory.held == 0
