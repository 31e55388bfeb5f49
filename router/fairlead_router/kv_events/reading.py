"""Reads ZMQ sockets on the event loop, in slices so short that they do not noticeably delay requests.

A thread would not help: decoding and indexing hold the interpreter's lock, and the event loop would wait for the lock
for up to the switch interval of 5 ms. ZMQ itself receives in its own thread, without the lock.
"""

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Protocol

import zmq

Socket = zmq.Socket[bytes]

SLICE_SECONDS = 0.0005

logger = logging.getLogger(__name__)


class Readable(Protocol):
    """An object that reads sockets in the slices of a `SlicedReader`."""

    def read(self, until: float) -> bool:
        """Read received messages until `until`, a value of `time.perf_counter`. Return whether there may be more to
        read.
        """

    def give_up(self) -> None:
        """Stop reading permanently, because a bug of the router has made a read fail."""


class SlicedReader:
    """Lets `Readable` objects read one after the other when their sockets have data. Make it inside a running event
    loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Readable] = deque()
        self._scheduled = False

    def watch(self, socket: Socket, readable: Readable) -> None:
        """Call `readable` to read whenever data arrives at this socket."""
        self._loop.add_reader(_descriptor(socket), self.wake, readable)
        self.wake(readable)  # what came before is not told: a ZMQ socket tells changes only

    def unwatch(self, socket: Socket) -> None:
        """Stop watching the socket; call this before the socket is closed."""
        self._loop.remove_reader(_descriptor(socket))

    def wake(self, readable: Readable) -> None:
        """Call `readable` to read in one of the next slices."""
        if readable not in self._ready:
            self._ready.append(readable)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._slice)

    def _slice(self) -> None:
        """Let the readables with data read for one slice of time. Then the event loop serves requests before the next
        slice.
        """
        self._scheduled = False
        until = perf_counter() + SLICE_SECONDS
        while self._ready and perf_counter() < until:
            readable = self._ready.popleft()
            try:
                if readable.read(until):
                    self.wake(readable)
            except Exception:
                logger.exception("reading KV events failed; the router uses its own history of requests for this instance")
                readable.give_up()
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._slice)


def _descriptor(socket: Socket) -> int:
    return int(socket.getsockopt(zmq.FD))
