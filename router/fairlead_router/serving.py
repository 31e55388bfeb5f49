"""The HTTP server around the gateway: its sockets, its limit of connections, and how it drains on a signal."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from fairlead_router.client_connections import ClientConnection, ConnectionLimits

FILES_KEPT_BACK = 256
"""Open files reserved for everything but connections to clients and engines: logs, spool, control API, listening
sockets.
"""

logger = logging.getLogger(__name__)


class GatewayServer(uvicorn.Server):
    """Uvicorn, but the first signal only asks `on_signal` to drain; the server stops when `should_exit` is set.

    A second signal stops at once.
    """

    def __init__(self, config: uvicorn.Config, loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._loop = loop
        self._on_signal = on_signal
        self._asked = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked:
            self.should_exit = True
            self.force_exit = True
            return
        self._asked = True
        self._loop.call_soon_threadsafe(self._on_signal)


def connections_for(wanted: int) -> int:
    """How many clients' connections the process can have: `wanted`, or fewer where it may not open
    two files for each of them.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + FILES_KEPT_BACK
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    possible = max(1, (max(soft, allowed) - FILES_KEPT_BACK) // 2)
    if possible < wanted:
        logger.warning(
            "fewer connections than wished for: the limit of open files is too low", extra={"wanted": wanted, "possible": possible}
        )
    return min(wanted, possible)


def server_config(app: Any, limits: ConnectionLimits) -> uvicorn.Config:
    """The uvicorn configuration of a gateway."""
    return uvicorn.Config(
        app,
        http=type("LimitedClientConnection", (ClientConnection,), {"limits": limits}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_seconds,  # type: ignore[arg-type]  # it is only ever given to call_later
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
