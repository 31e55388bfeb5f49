"""Writes the API's responses, in one piece or as an endless stream. A client that stops reading an endless stream is
disconnected, so that it occupies no task and no buffers. A stream also ends when its reader loses the right to read it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import msgspec
from fastapi import Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import NotFound

KNOWN_SECONDS = 30.0
"""Seconds between two checks of a stream's reader. A stream ends at most about this many seconds after the reader's
credential ended or its rights changed.
"""

_log = logging.getLogger(__name__)


class BoundedStream(StreamingResponse):
    """A streaming response that ends if the client does not accept one of its writes within `patience_seconds`."""

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
            _log.warning("stream closed: its client stopped reading", extra={"path": scope["path"]})


async def while_known(
    content: AsyncGenerator[bytes, None], is_still_known: Callable[[], Awaitable[bool]], monotonic: Callable[[], float] = time.monotonic
) -> AsyncIterator[bytes]:
    """Yield the content until its reader loses the right to read it. A check at the start of a stream is not enough,
    because a stream can last for days.
    """
    looked_at = monotonic()
    async with aclosing(content):
        async for piece in content:
            if monotonic() - looked_at >= KNOWN_SECONDS:
                if not await is_still_known():
                    return
                looked_at = monotonic()
            yield piece


class OfPool(Protocol):
    """An item of a list that belongs to a pool, named as namespace/name."""

    @property
    def pool(self) -> str: ...


Item = TypeVar("Item", bound=OfPool)


def answer(content: object, status: int = 200) -> Response:
    """Return a JSON response that contains one or several of the API's dataclasses."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def seen(caller: Caller, item: Item, kind: str, name: str) -> Item:
    """Return the item. Raises NotFound if the caller may not see the item's pool, so that the response does not reveal
    that the pool exists.
    """
    if not caller.sees(item.pool):
        raise NotFound(kind, name)
    return item


OPEN_PATHS = frozenset({"/healthz", "/readyz", "/v1/login", "/v1/login-modes", "/v1/login/oidc"})
"""Paths that need no token."""
