"""Heads, interim answers, trailers and chunks of engines' answers are bounded, however they arrive."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.plausibility import HEAD_BYTES, MOST_HEADERS, MOST_INTERIM
from fairlead_router.engines.loop_time import LoopTime
from fairlead_router.engines.upstream_connections import BeyondBounds, UpstreamConnection, UpstreamFailure
from fairlead_testing.examples import examples


class Wire(asyncio.Transport):
    """A transport that takes all bytes and records whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False

    def write(self, data: object) -> None: ...

    def abort(self) -> None:
        self.dropped = True

    def close(self) -> None:
        self.dropped = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.dropped


class Asked:
    """A connection with a request on it; `hear` passes it pieces of the answer."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.body: list[bytes] = []
        self.connection = UpstreamConnection(
            asyncio.new_event_loop(), "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: 0.0, lambda: 0.0)
        )
        self.connection.connection_made(self.wire)
        self.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
        self.connection._sink = self._sink

    def _sink(self, piece: bytes) -> bool:
        self.body.append(piece)
        return True

    def hear(self, pieces: Iterable[bytes]) -> int:
        """Return the number of bytes that the connection took before it was dropped."""
        taken = 0
        for piece in pieces:
            if self.wire.dropped or self.connection.complete:
                break
            self.connection.data_received(piece)
            taken += len(piece)
        self.connection._loop.close()
        return taken

    @property
    def failure(self) -> UpstreamFailure | None:
        return self.connection._failure


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
ENDLESS: dict[str, Iterator[bytes] | Iterable[bytes]] = {
    "a header": (HEAD + b"x: ", b"a" * 1000),
    "a header's name": (HEAD, b"a" * 1000),
    "headers": (HEAD, b"x-a: 1\r\n" * 100),
    "blanks before a header's value": (HEAD + b"x:", b" " * 1000),
    "a reason": (b"HTTP/1.1 200 ", b"O" * 1000),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    "interim answers in pieces": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\nx: y\r\n\r\n"),
    "an interim answer": (b"HTTP/1.1 103 Early Hints\r\nx: ", b"a" * 1000),
    "a chunk's extension": (CHUNKED + b"5;", b"a=b;" * 100),
    "a chunk's extension in quotes": (CHUNKED + b'5;a="', b"b" * 1000),
    "a chunk's size": (CHUNKED, b"0" * 1000),
    "trailers": (CHUNKED + b"1\r\nx\r\n0\r\n", b"x-trailer: 1\r\n" * 100),
    "a trailer": (CHUNKED + b"1\r\nx\r\n0\r\nx: ", b"a" * 1000),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("piece", [7, 1000, 200_000])
def test_what_never_ends_is_dropped_after_a_bounded_number_of_bytes(name: str, piece: int) -> None:
    begin, again = ENDLESS[name]
    endless = chain(begin, chain.from_iterable(repeat(again, 400_000)))
    asked = Asked()
    taken = asked.hear(bytes(islice(endless, piece)) for _ in range(1_000_000))
    assert asked.wire.dropped and isinstance(asked.failure, UpstreamFailure)
    assert asked.failure.kind == "protocol"
    assert taken <= HEAD_BYTES + 1000 + 2 * piece
    assert asked.connection.status or asked.connection.headers == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HEAD + b"x: " + b"a" * HEAD_BYTES + b"\r\ncontent-length: 1\r\n\r\nx", "a head of more than"),
        (HEAD + b"x: 1\r\n" * (MOST_HEADERS + 1) + b"content-length: 1\r\n\r\nx", f"with {MOST_HEADERS + 2} headers"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MOST_INTERIM + 1) + HEAD + b"content-length: 1\r\n\r\nx", "interim answers"),
    ],
)
def test_a_head_beyond_its_bounds_is_a_failure_even_if_it_comes_at_once(answer: bytes, words: str) -> None:
    asked = Asked()
    asked.hear([answer])
    assert isinstance(asked.failure, BeyondBounds) and words in asked.failure.words
    assert "10.0.0.7" not in asked.failure.words, "a client may read these"
    assert not asked.connection.status or not asked.body


def test_a_large_body_behind_a_small_head_and_many_small_chunks_are_no_fault() -> None:
    asked = Asked()
    asked.hear([HEAD + b"content-length: 300000\r\n\r\n" + b"x" * 300_000])
    assert asked.connection.complete and asked.failure is None
    asked = Asked()
    lines = chain([CHUNKED], chain.from_iterable(repeat([b"1;x=y\r\n", b"x\r\n"], 30_000)), [b"0\r\nx-trailer: 1\r\n\r\n"])
    asked.hear(lines)
    assert asked.connection.complete and asked.failure is None and len(b"".join(asked.body)) == 30_000 - asked.body.count(b"")


def test_each_request_on_a_connection_has_its_own_bounds() -> None:
    asked = Asked()
    answer = b"HTTP/1.1 103 Early Hints\r\n\r\n" * MOST_INTERIM + HEAD + b"x: " + b"a" * 30_000 + b"\r\ncontent-length: 1\r\n\r\nx"
    for _ in range(5):
        asked.connection.data_received(answer)
        assert asked.connection.complete
        asked.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    assert asked.failure is None


@examples(200)
@given(lines=st.lists(st.binary(max_size=40), max_size=30), cuts=st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_whatever_bytes_come_in_whatever_pieces_no_error_leaves_the_connection(lines: list[bytes], cuts: list[int]) -> None:
    answer = CHUNKED + b"\r\n".join(lines)
    asked = Asked()
    places = list(islice(chain.from_iterable(repeat(cuts)), len(answer)))
    pieces = iter(answer)
    asked.hear(piece for size in places if (piece := bytes(islice(pieces, size))))
    assert asked.failure is None or asked.failure.kind == "protocol"
