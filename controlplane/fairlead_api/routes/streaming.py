"""Endless answers: a reader that stops reading is cut off after a while, so that it holds no task and no buffers."""

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)


class BoundedStream(StreamingResponse):
    """A streaming response that gives up when one of its writes is not taken within `patience_seconds`."""

    patience_seconds = 10.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def bounded(message: MutableMapping[str, Any]) -> None:
            async with asyncio.timeout(self.patience_seconds):
                await send(message)

        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        try:
            await super().__call__(scope, receive, bounded)
        except* TimeoutError:
            _log.warning("stream closed, reader does not read", extra={"path": scope["path"]})
