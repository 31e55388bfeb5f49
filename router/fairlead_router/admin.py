"""The operators' port of a router: metrics, a debug view and health. Clients use another port."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn

from fairlead_process.doors import Door
from fairlead_process.http_connections import serving_beside
from fairlead_router.gateway.informing import Informing, Scope, Send, send_answer, send_json
from fairlead_router.protocols.refusals import BadRequest

Receive = Callable[[], Awaitable[dict[str, Any]]]

ADMIN_PATHS = ("/metrics", "/debug/pools", "/healthz", "/readyz")


class AdminApp:
    """The ASGI application of the operators' port."""

    def __init__(self, informing: Informing) -> None:
        self._informing = informing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in ADMIN_PATHS:
            message = f"{path[:200]!r} is not a path of the operators' port; there are {', '.join(ADMIN_PATHS)}"
            await send_answer(send, BadRequest(404, "not_found", message).answer())
        elif scope["method"] not in ("GET", "HEAD"):
            message = f"{path} takes GET, not {scope['method']}"
            await send_answer(send, BadRequest(405, "method_not_allowed", message, None, [(b"allow", b"GET, HEAD")]).answer())
        elif path == "/metrics":
            await self._informing.send_metrics(send)
        elif path == "/debug/pools":
            await self._informing.send_debug(send)
        elif path == "/readyz":
            await self._informing.send_readiness(send)
        else:
            await send_json(send, 200, {"status": "alive"})


def serving_admin(informing: Informing, listener: socket.socket, door: Door) -> AbstractAsyncContextManager[uvicorn.Server]:
    """Serve the operators' port on `listener` while the block runs."""
    return serving_beside(AdminApp(informing), listener, door, "admin")
