"""How much of a body is read before its caller is known."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from fairlead_api.http.strictness import LARGEST_CHECKED, LARGEST_OF_STRANGERS, StrictBodies

SPACES = b" " * 16384


async def asked(path: str, size: int) -> tuple[int, int]:
    """Return the answer's status (200 if the body reached the endpoint) and the number of bytes read of a body of
    `size`.

    The caller is known, except at a login.
    """
    read = 0
    statuses: list[int] = []

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        statuses.append(200)

    async def receive() -> MutableMapping[str, Any]:
        nonlocal read
        read += len(SPACES)
        return {"type": "http.request", "body": SPACES, "more_body": read < size}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    known = {} if path.startswith("/v1/login") else {"caller": "somebody"}
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "state": {"request_id": "r", **known}}
    await StrictBodies(endpoint)(scope, receive, send)
    return statuses[0], read


@pytest.mark.parametrize("path", ["/v1/login", "/v1/login/oidc"])
async def test_of_a_stranger_no_more_is_read_than_a_login_has(path: str) -> None:
    assert await asked(path, LARGEST_OF_STRANGERS) == (200, LARGEST_OF_STRANGERS)
    assert await asked(path, 32 << 20) == (413, LARGEST_OF_STRANGERS + len(SPACES))


@pytest.mark.parametrize("path", ["/v1/pools/default/chat/plans", "/v1/tokens", "/v1/plans/p/apply"])
async def test_a_body_that_is_not_read_strictly_is_refused(path: str) -> None:
    assert await asked(path, LARGEST_CHECKED) == (200, LARGEST_CHECKED)
    assert await asked(path, 32 << 20) == (413, LARGEST_CHECKED + len(SPACES))


@pytest.mark.parametrize("path", ["/v1/pools/default/chat/simulations", "/internal/v1/pools/default/chat/state"])
async def test_traces_and_what_processes_say_may_be_larger(path: str) -> None:
    assert await asked(path, 4 << 20) == (200, 4 << 20)
