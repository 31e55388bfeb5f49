"""A connection between two routers. It exchanges frames with the other router, and reports when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from fairlead_process.doors import STRANGER_SECONDS
from fairlead_router.deciding.frames import LARGEST_FRAME, LARGEST_GREETING, Body, Frame, FrameError, FrameReader, encode

SILENCE_SECONDS = 1.5
"""Seconds without a frame from the other router after which that router counts as gone."""
STALE_SHARE = 0.8
"""Share of `SILENCE_SECONDS` after which a silent connection counts as stale. The next frame then closes the connection
and is not processed, because the frame may have waited while this process was suspended. By now the router that sent
the frame may have decided alone about its requests, and an answer would be a second decision.
"""
GREETING_SECONDS = 2.0
"""Seconds within which a router must prove its identity. After that its connection is closed, even if it keeps sending.
"""
MOST_UNSENT_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes that wait to be sent because the other router does not read. Beyond it, the other router
counts as gone.
"""


class RouterConnection(asyncio.Protocol):
    """A connection to another router. It calls `heard` with each frame, and `ended` once when the connection ends;
    after that it calls neither function. `hears_stale`: it also passes on a frame that arrives after a long silence;
    otherwise such a frame closes the connection.
    """

    def __init__(
        self, heard: Callable[[RouterConnection, Frame], None], ended: Callable[[RouterConnection], None], *, hears_stale: bool
    ) -> None:
        self._hears_stale = hears_stale
        self._heard = heard
        self._ended = ended
        self._reader = FrameReader(LARGEST_GREETING)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._made_at = self.heard_at = self._loop.time()
        self.is_open = True

    @property
    def is_silent(self) -> bool:
        """Whether no bytes have arrived from the other router for more than `SILENCE_SECONDS`."""
        return self._loop.time() - self.heard_at > SILENCE_SECONDS

    @property
    def is_stale(self) -> bool:
        """Whether the other router's silence is long enough that it may have given up on this router."""
        return self._loop.time() - self.heard_at > STALE_SHARE * SILENCE_SECONDS

    @property
    def is_overdue(self) -> bool:
        """Whether the other router has not proven its identity in time."""
        return self._loop.time() - self._made_at > GREETING_SECONDS

    def may_go(self) -> bool:
        """Return whether the connection may be closed to make room for another one (see `Visitor`): the other router is
        silent, or has not proven its identity within `STRANGER_SECONDS`.
        """
        is_stranger = self._reader.largest == LARGEST_GREETING
        return self.is_silent or (is_stranger and self._loop.time() - self._made_at > STRANGER_SECONDS)

    def turn_away(self) -> None:
        """Close the connection to make room for another one (see `Visitor`)."""
        self.close()

    def trust(self) -> None:
        """Accept larger frames, because the peer has proven its identity."""
        self._reader.largest = LARGEST_FRAME

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's callback: the connection is made."""
        self._transport = cast(asyncio.Transport, transport)
        if not self.is_open:
            self._transport.abort()
            return
        self._made_at = self.heard_at = self._loop.time()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """The event loop's callback: bytes arrived."""
        if not self.is_open or (self.is_stale and not self._hears_stale):
            self.close()
            return
        self.heard_at = self._loop.time()
        try:
            for frame in self._reader.feed(data):
                self._heard(self, frame)
                if not self.is_open:
                    return
        except FrameError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's callback: the connection is gone."""
        self.close()

    def say(self, pool: str, body: Body) -> None:
        """Send a frame about the pool. `pool`: the pool's `namespace/name`, or "" for a frame about no pool. All frames
        of one turn of the event loop are sent together.
        """
        if not self.is_open:
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(encode(Frame(pool, body)))

    def close(self) -> None:
        """End the connection at once; unsent frames are lost."""
        if not self.is_open:
            return
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        self._ended(self)

    def _flush(self) -> None:
        if self._transport is None or not self._unsent or not self.is_open:
            return
        if self._transport.is_closing():
            self.close()
            return
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        if self._transport.get_write_buffer_size() > MOST_UNSENT_BYTES:
            self.close()
