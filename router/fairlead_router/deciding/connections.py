"""A connection between two routers: frames both ways, and the news of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from fairlead_router.deciding.frames import Body, Frame, FrameError, FrameReader, encode

SILENCE_SECONDS = 1.5
"""A router not heard for so long is taken for gone."""
MOST_UNSENT_BYTES = 16 * 1024 * 1024
"""A router that reads so much too slowly is taken for gone too."""


class RouterConnection(asyncio.Protocol):
    """`heard` is given each frame and `ended` told once, after which nothing is heard."""

    def __init__(self, heard: Callable[[RouterConnection, Frame], None], ended: Callable[[RouterConnection], None]) -> None:
        self._heard = heard
        self._ended = ended
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self.heard_at = self._loop.time()
        self.is_open = True

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for too long."""
        return self._loop.time() - self.heard_at > SILENCE_SECONDS

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's: the connection stands."""
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        """The event loop's: bytes came."""
        self.heard_at = self._loop.time()
        try:
            frames = self._reader.feed(data)
        except FrameError:
            self.close()
            return
        for frame in frames:
            if not self.is_open:
                return
            self._heard(self, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's: the connection is gone."""
        self.close()

    def say(self, pool: str, body: Body) -> None:
        """Send a frame, with all others of this turn of the event loop."""
        if not self.is_open:
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(encode(Frame(pool, body)))

    def close(self) -> None:
        """End it at once; what was not sent is lost."""
        if not self.is_open:
            return
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._ended(self)

    def _flush(self) -> None:
        if self._transport is None or not self._unsent or not self.is_open:
            return
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        if self._transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self.close()
