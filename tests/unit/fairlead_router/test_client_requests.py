"""A request whose client has left before anybody asks for it."""

import asyncio
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
