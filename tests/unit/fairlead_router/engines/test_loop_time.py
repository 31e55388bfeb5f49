"""Reading an engine's bytes takes a bounded share of the event loop, in short steps, whatever the bytes are."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.engines.loop_time import (
    BURST_SECONDS,
    PART_BYTES,
    QUICK_BYTES,
    SHARE,
    STEP_SECONDS,
    USUAL_SECONDS,
    USUAL_SECONDS_A_BYTE,
    LoopTime,
)
from fairlead_router.engines.upstream_connections import UpstreamConnection, UpstreamFailure
from fairlead_testing.examples import examples

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


class Loop:
    """A loop in virtual time that records the time spent working and the duration of the longest step."""

    def __init__(self) -> None:
        self.now = self.worked = self.longest = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), callback))
        return self

    def step(self, callback: Callable[[], None]) -> None:
        before = self.worked
        callback()
        self.longest = max(self.longest, self.worked - before)

    def go_on(self) -> bool:
        """Run the next step that is due; return whether there was one."""
        if not self._due:
            return False
        at, _, callback = heapq.heappop(self._due)
        self.now = max(self.now, at)
        self.step(callback)
        return True


class Wire(asyncio.Transport):
    reading = True
    dropped = False

    def write(self, data: object) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.dropped = True

    def close(self) -> None:
        self.dropped = True

    def is_closing(self) -> bool:
        return self.dropped


class Answer:
    """An answer in which each byte costs `cost` seconds."""

    def __init__(self, loop: Loop, time: LoopTime, cost: float) -> None:
        self.loop, self.wire, self.got = loop, Wire(), bytearray()
        self.largest = 0
        self._cost = cost
        self.ready = True
        self.connection = UpstreamConnection(loop, "10.0.0.7:8000", lambda connection: None, time)  # type: ignore[arg-type]
        self.connection.connection_made(self.wire)
        self.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
        self.connection._sink = self._sink

    def _sink(self, piece: bytes) -> bool:
        self.loop.worked += len(piece) * self._cost
        self.loop.now += len(piece) * self._cost
        self.largest = max(self.largest, len(piece))
        self.got += piece
        return self.ready

    def use_up_share(self) -> None:
        for _ in range(2):
            self.connection._time.count("10.0.0.7:8000", 1.0, 1)

    def hear(self, piece: bytes) -> None:
        assert self.wire.reading
        self.loop.step(lambda: self.connection.data_received(piece))


def world(cost: float) -> tuple[Loop, Answer]:
    loop = Loop()
    return loop, Answer(loop, LoopTime(lambda: loop.worked, lambda: loop.now), cost)


@examples(200)
@given(
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=8),
    cost=st.floats(0, 2e-6),
)
def test_every_byte_arrives_once_and_in_order_and_no_step_is_long(sizes: list[int], cost: float) -> None:
    loop, answer = world(cost)
    body = b"".join(bytes([65 + number % 26]) * size for number, size in enumerate(sizes))
    pieces, at = [HEAD % (len(body) + 1)], 0
    for size in sizes:
        pieces.append(body[at : at + size])
        at += size
    for piece in pieces:
        while not answer.wire.reading:
            assert loop.go_on(), "nobody would ever read on"
        answer.hear(piece)
    while loop.go_on():
        pass
    assert bytes(answer.got) == body
    assert answer.wire.reading
    assert answer.largest <= PART_BYTES
    assert loop.longest <= STEP_SECONDS + PART_BYTES * cost * 1.01


@examples(100)
@given(size=st.integers(QUICK_BYTES + 1, 60_000), cost=st.floats(1e-7, 2e-6), answers=st.integers(1, 4))
def test_all_answers_of_an_engine_together_take_no_more_than_its_share_of_the_loop(size: int, cost: float, answers: int) -> None:
    loop = Loop()
    time = LoopTime(lambda: loop.worked, lambda: loop.now)
    hostile = [Answer(loop, time, cost) for _ in range(answers)]
    for one in hostile:
        one.hear(HEAD % 10**12)
    for _ in range(50):
        for one in hostile:
            if one.wire.reading:
                one.hear(b"\n" * size)
        loop.go_on()
    read = sum(len(one.got) for one in hostile)
    usual = USUAL_SECONDS * (read / PART_BYTES + 50 * answers) + USUAL_SECONDS_A_BYTE * read
    step = STEP_SECONDS + PART_BYTES * cost
    assert loop.worked <= usual + BURST_SECONDS + SHARE * loop.now + step


def test_bytes_at_the_usual_cost_are_never_paused() -> None:
    loop, answer = world(2e-9)
    answer.hear(HEAD % 10**12)
    for _ in range(100):
        answer.hear(b"x" * 256_000)
        while loop.go_on():
            pass
    assert len(answer.got) == 25_600_000
    assert loop.now == pytest.approx(loop.worked)


def test_another_engine_is_read_while_one_has_used_up_its_share() -> None:
    loop = Loop()
    time = LoopTime(lambda: loop.worked, lambda: loop.now)
    hostile = Answer(loop, time, 1e-5)
    hostile.hear(HEAD % 10**9)
    hostile.hear(b"\n" * 100_000)
    loop.go_on()
    assert time.pause("10.0.0.7:8000") > 0 and not hostile.wire.reading
    assert time.pause("10.0.0.8:8000") == 0


def test_a_client_that_reads_slowly_stops_the_reading_and_its_resuming_goes_on_where_it_stopped() -> None:
    loop, answer = world(0.0)
    answer.hear(HEAD % 100_000)
    answer.ready = False
    answer.hear(b"x" * 99_999)
    assert len(answer.got) == PART_BYTES and not answer.wire.reading and not loop.go_on()
    answer.ready = True
    answer.connection.resume()
    while loop.go_on():
        pass
    assert len(answer.got) == 99_999 and answer.wire.reading


def test_bytes_behind_an_answer_close_the_connection_and_never_reach_the_next_request() -> None:
    loop, answer = world(1e-5)
    body = b"x" * (2 * PART_BYTES - len(HEAD % 8000))
    head = HEAD % len(body)
    assert len(head) + len(body) == 2 * PART_BYTES - (len(HEAD % 8000) - len(head))
    answer.hear(head + body + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
    while loop.go_on():
        pass
    assert answer.connection.closed and b"evil" not in answer.got


def test_a_connection_that_was_dropped_reads_nothing_more() -> None:
    loop, answer = world(1e-5)
    answer.hear(HEAD % 10**9)
    answer.hear(b"\n" * 200_000)
    got = len(answer.got)
    answer.connection.abort()
    while loop.go_on():
        pass
    assert len(answer.got) == got


def test_a_body_of_tiny_chunks_is_held_in_few_pieces() -> None:
    _, answer = world(0.0)
    answer.connection._sink = None
    answer.hear(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    answer.hear(b"1\r\nx\r\n" * 40_000)
    assert len(answer.connection._pieces) < 2048 and sum(map(len, answer.connection._pieces)) == 40_000


async def test_what_arrived_before_there_was_a_sink_reaches_it_in_parts() -> None:
    work = 0.0

    def cost(piece: bytes) -> bool:
        nonlocal work
        parts.append(len(piece))
        work += 1e-9 * len(piece)
        return True

    parts: list[int] = []
    connection = UpstreamConnection(asyncio.get_running_loop(), "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: work))
    connection.connection_made(Wire())
    connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD % 200_000 + b"x" * 200_000)
    assert connection.complete
    last = await connection.pipe(cost)
    assert sum(parts) + len(last) == 200_000 and max(*parts, len(last)) <= PART_BYTES


async def test_a_sink_that_is_full_gets_the_rest_of_what_was_held_once_it_can_take_more_even_if_the_engine_has_gone() -> None:
    got = bytearray()

    def sink(piece: bytes) -> bool:
        got.extend(piece)
        return False

    loop = asyncio.get_running_loop()
    for gone in (False, True):
        got.clear()
        connection = UpstreamConnection(loop, "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: 0.0))
        connection.connection_made(Wire())
        connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
        connection.data_received(HEAD % 50_000 + b"x" * 50_000)
        passing = asyncio.ensure_future(connection.pipe(sink))
        if gone:
            connection.connection_lost(None)
        while not passing.done():
            await asyncio.sleep(0)
            connection.resume()
        assert len(got) + len(await passing) == 50_000


async def test_who_waits_for_a_full_sink_learns_that_the_answer_was_dropped() -> None:
    connection = UpstreamConnection(asyncio.get_running_loop(), "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: 0.0))
    connection.connection_made(Wire())
    connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD % 60_000 + b"x" * 50_000)
    passing = asyncio.ensure_future(connection.pipe(lambda piece: False))
    await asyncio.sleep(0)
    connection.abort()
    with pytest.raises(UpstreamFailure, match="dropped"):
        await passing


class Engine:
    """An engine that writes `pieces` and then closes; the connection gets them when it reads. `breaks`: whether the
    loss is reported although the connection is not read, as after a failed write.
    """

    def __init__(self, answer: Answer, pieces: list[bytes], *, breaks: bool) -> None:
        self._answer, self._pieces, self._breaks, self.gone = answer, pieces, breaks, False

    def go_on(self) -> None:
        wire, connection = self._answer.wire, self._answer.connection
        if self.gone or wire.dropped:
            return
        if self._pieces and wire.reading:
            self._answer.hear(self._pieces.pop(0))
        elif not self._pieces and (wire.reading or self._breaks):
            self.gone = True
            connection.connection_lost(None)


def cut(text: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(text), *(place % len(text) for place in places)})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def framed(body: bytes, framing: str, size: int) -> bytes:
    if framing == "length":
        return HEAD % len(body) + body
    if framing == "close":
        return b"HTTP/1.1 200 OK\r\n\r\n" + body
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    ended = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + ended


@examples(300)
@given(
    size=st.integers(1, 120_000),
    places=st.lists(st.integers(0, 120_000), max_size=8),
    framing=st.sampled_from(["length", "chunks", "close"]),
    chunk=st.integers(200, 50_000),
    cost=st.sampled_from([0.0, 1e-7, 2e-6]),
    full=st.lists(st.booleans(), max_size=30),
    breaks=st.booleans(),
    used_up=st.booleans(),
)
def test_an_answer_arrives_whole_and_in_order_however_it_is_cut_and_held_though_its_engine_closes_behind_it(
    size: int, places: list[int], framing: str, chunk: int, cost: float, full: list[bool], breaks: bool, used_up: bool
) -> None:
    loop, answer = world(cost)
    if used_up:
        answer.use_up_share()
    body = b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))
    engine = Engine(answer, cut(framed(body, framing, chunk), places), breaks=breaks)
    turns = 0
    while not (engine.gone or answer.connection.complete) or answer.connection.is_held:
        answer.ready = not (full and full.pop())
        engine.go_on()
        if not loop.go_on():
            answer.connection.resume()  # as by a client that has read what it got
        turns += 1
        assert turns < 10_000, "nobody would ever read on"
    assert answer.connection.complete and answer.connection._failure is None
    assert bytes(answer.got) + answer.connection._take() == body


def test_unasked_bytes_close_an_idle_connection_also_while_its_engine_has_used_up_its_share() -> None:
    _, answer = world(0.0)
    answer.hear(HEAD % 2 + b"ok")
    assert answer.connection.complete
    answer.connection.busy = False
    answer.use_up_share()
    assert answer.connection._time.pause("10.0.0.7:8000") > 0
    answer.hear(HEAD % 2000 + b"x" * 2000)
    assert answer.connection.closed and answer.wire.dropped, "the next request would get these bytes as its answer"


def test_a_sink_that_fails_in_a_later_step_drops_the_connection() -> None:
    loop, answer = world(1e-6)
    answer.hear(HEAD % 10**6)
    answer.hear(b"x" * 50_000)
    assert answer.connection.is_held

    def fails(piece: bytes) -> bool:
        raise RuntimeError("a fault of the router")

    answer.connection._sink = fails
    with pytest.raises(RuntimeError, match="a fault of the router"):
        loop.go_on()
    assert answer.wire.dropped and answer.connection._failure is not None and not answer.connection.is_held


def test_one_long_interruption_of_a_step_stops_no_honest_engine() -> None:
    loop, answer = world(0.0)
    answer.hear(HEAD % 10**6)
    answer._cost = 1e-4  # a garbage collection of 0.4 s
    answer.hear(b"x" * PART_BYTES)
    answer._cost, now = 0.0, loop.now
    while loop.go_on():
        pass
    assert answer.wire.reading and loop.now - now < 1e-6


@pytest.mark.parametrize("more", [0, 1000])
async def test_who_gets_what_was_held_gets_nothing_more_once_it_has_dropped_the_answer(more: int) -> None:
    connection = UpstreamConnection(asyncio.get_running_loop(), "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: 0.0))
    connection.connection_made(Wire())
    connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD % (60_000 + more) + b"x" * 60_000)
    parts: list[bytes] = []

    def drops(piece: bytes) -> bool:
        parts.append(piece)
        connection.abort(UpstreamFailure("answer", "reported an error"))
        return True

    with pytest.raises(UpstreamFailure, match="reported an error"):
        await connection.pipe(drops)
    assert len(parts) == 1


async def test_a_slow_client_gets_everything_that_arrived_before_its_engine_was_lost() -> None:
    connection = UpstreamConnection(asyncio.get_running_loop(), "10.0.0.7:8000", lambda connection: None, LoopTime(lambda: 0.0))
    connection.connection_made(Wire())
    connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD % 60_000 + b"x" * 50_000)
    got = bytearray()

    def sink(piece: bytes) -> bool:
        got.extend(piece)
        return False

    passing = asyncio.ensure_future(connection.pipe(sink))
    await asyncio.sleep(0)
    connection.connection_lost(ConnectionResetError())
    await asyncio.sleep(0)
    while not passing.done():
        connection.resume()
        await asyncio.sleep(0)
    with pytest.raises(UpstreamFailure, match="was lost"):
        await passing
    assert len(got) == 50_000
