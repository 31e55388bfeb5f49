"""A request whose client has left before anybody asks for it, and one whose body comes in pieces of any size."""

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead_router.client_requests import ClientGone, ClientRequest


def _request() -> ClientRequest:
    connection = SimpleNamespace(loop=asyncio.get_running_loop(), forget=lambda _: None)
    return ClientRequest(cast(Any, connection), cast(Any, SimpleNamespace(waiting_for_100_continue=False, disconnected=False)))


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
