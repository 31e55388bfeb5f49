"""Requests whose client leaves before they are read, and requests whose body comes in pieces of any size."""

import asyncio
import os
import tracemalloc
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.serving.body_memory import BodyMemory, MemoryFull, MemoryShare, memory_for_bodies
from fairlead_router.serving.client_requests import BodyTooLarge, ClientGone, ClientRequest


def _request(memory: BodyMemory | None = None) -> ClientRequest:
    connection = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        forget=lambda _: None,
        flow=SimpleNamespace(resume_reading=lambda: None, pause_reading=lambda: None),
    )
    cycle = SimpleNamespace(waiting_for_100_continue=False, disconnected=False, default_headers=[])
    return ClientRequest(cast(Any, connection), cast(Any, cycle), memory or BodyMemory(10**9))


async def test_a_whole_body_of_a_client_that_has_left_is_not_worked_on() -> None:
    request = _request()
    request.arrived(b"{}")
    request.completed()
    request.left()
    with pytest.raises(ClientGone):
        await request.body(100, 1.0)


async def test_who_watches_a_client_that_has_left_is_told_at_once() -> None:
    request, told = _request(), list[str]()
    request.watch(lambda: told.append("first"))
    request.left()
    request.watch(lambda: told.append("second"))
    assert told == ["first", "second"]


EVENTS = st.one_of(
    st.tuples(st.just("arrived"), st.integers(0, 3000)),
    st.tuples(st.sampled_from(["body", "next_piece", "hold", "let_go"]), st.integers(0, 3000)),
    st.tuples(st.sampled_from(["completed", "left", "discard", "unwatch"]), st.just(0)),
)


@given(st.lists(EVENTS, max_size=25), st.integers(0, 8000), st.sampled_from(["unwatch", "left"]))
async def test_a_request_gives_back_all_the_memory_it_holds_whatever_happened_to_it(
    events: list[tuple[str, int]], room: int, ends: str
) -> None:
    memory = BodyMemory(room)
    request = _request(memory)
    for event, size in events:
        with suppress(BodyTooLarge, MemoryFull, ClientGone, TimeoutError):
            match event:
                case "arrived":
                    request.arrived(b"x" * size)
                case "body":
                    await request.body(size, 0.0)
                case "next_piece":
                    await request.next_piece(0.0)
                case "discard":
                    await request.discard(size, 0.0, 0.0)
                case "hold" | "let_go":
                    getattr(request, event)(size)
                case _:
                    getattr(request, event)()
        assert 0 <= memory.held <= room
    getattr(request, ends)()
    request.arrived(b"more of a body that nobody reads")
    assert memory.held == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=40))
def test_all_shares_together_are_what_is_held_and_never_more_than_there_is(takes: list[tuple[int, int]]) -> None:
    memory = BodyMemory(100)
    shares = [MemoryShare(memory) for _ in range(5)]
    for place, size in takes:
        had = memory.held
        assert shares[place].take(size) == (had + size <= 100)
        if size % 7 == 0:
            shares[place].release(size // 2)
        assert memory.held == sum(share.held for share in shares) <= 100
    for share in shares:
        share.release()
    assert memory.held == 0


async def test_a_body_for_which_there_is_no_room_is_given_up_at_once() -> None:
    memory = BodyMemory(5000)
    first, second = _request(memory), _request(memory)
    first.arrived(b"x" * 4000)
    waiting = asyncio.create_task(second.body(100_000, 60.0))
    await asyncio.sleep(0)
    second.arrived(b"x" * 500)
    second.arrived(b"x" * 600)
    with pytest.raises(MemoryFull):
        await waiting
    assert memory.held == 4000


def test_bodies_may_take_a_part_of_the_memory_that_there_is_and_two_of_them_always() -> None:
    assert 0 < memory_for_bodies(1000) <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4
    assert memory_for_bodies(2**60) == 2**61


async def test_a_body_in_chunks_of_two_bytes_takes_hardly_more_than_its_size() -> None:
    request = _request()
    tracemalloc.start()
    try:
        for number in range(200_000):
            request.arrived(b"%02d" % (number % 100))
        request.completed()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 400_000
    assert await request.body(1_000_000, 1.0) == b"".join(b"%02d" % (number % 100) for number in range(200_000))


async def test_pieces_of_all_sizes_come_together_in_their_order() -> None:
    request, pieces = _request(), [b"a", b"b" * 5000, b"c", b"d", b"e" * 5000, b"f"]
    for piece in pieces:
        request.arrived(piece)
    request.completed()
    assert await request.body(100_000, 1.0) == b"".join(pieces)
