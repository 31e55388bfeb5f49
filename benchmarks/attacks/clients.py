"""Attacks of hostile clients on a router's port. Each attack continues until it is cancelled."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_REFUSALS = (b"HTTP/1.1 4", b"HTTP/1.1 5")
_BEGIN_TOGETHER = 200
"""Maximum number of connections that are opened at the same time."""


@dataclass
class Attacker:
    """A client that attacks the port `port`. `size` is a factor for the number of connections that the attack opens and
    of bytes that it sends.
    """

    port: int
    size: float = 1.0
    opened: int = 0
    refused: int = 0
    """Number of connections that were refused, closed without an answer, or could not be opened."""
    sessions: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def number(self, usual: int) -> int:
        return max(1, round(usual * self.size))

    async def open(self, first: bytes, then: bytes = b"", pause: float = 0.0) -> None:
        """Open a connection and send `first` on it, and then `then` after each pause. Return when the connection is
        closed.
        """
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self.refused += 1
            return
        self.opened += 1
        self._writers.add(writer)
        sending = asyncio.create_task(self._send(writer, first, then, pause))
        try:
            answer = await reader.read(4096)
            self.refused += not answer or answer.startswith(_REFUSALS)
        except OSError:
            self.refused += 1
        finally:
            sending.cancel()
            self._writers.discard(writer)
            writer.transport.abort()

    async def _send(self, writer: asyncio.StreamWriter, first: bytes, then: bytes, pause: float) -> None:
        with suppress(OSError):
            writer.write(first)
            await writer.drain()
            while then:
                await asyncio.sleep(pause)
                writer.write(then)
                await writer.drain()

    async def many(self, connections: int, first: bytes, then: bytes = b"", pause: float = 0.0) -> None:
        """Keep this number of connections open: each is opened again after it was closed."""

        async def one() -> None:
            while True:
                await self.open(first, then, pause)
                await asyncio.sleep(1.0)

        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(one())
                if number % _BEGIN_TOGETHER == 0:
                    await asyncio.sleep(0.05)


async def idle(attacker: Attacker) -> None:
    """Open connections that send nothing."""
    await attacker.many(attacker.number(10_000), b"")


async def half_heads(attacker: Attacker) -> None:
    """Send request heads that never end. Each head grows by one header every second."""
    await attacker.many(attacker.number(2_000), HEAD, b"x-a: b\r\n", 1.0)


async def half_bodies(attacker: Attacker) -> None:
    """Send bodies of 8 MB without their last byte."""
    body = b'{"model":"pool-0","prompt":"' + b"x" * (7_900_000)
    await attacker.many(attacker.number(120), HEAD + b"content-length: 8000000\r\n\r\n" + body)


async def resets(attacker: Attacker) -> None:
    """Open connections that are reset after half a request."""
    linger = struct.pack("ii", 1, 0)

    async def one() -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", attacker.port)
                attacker.opened += 1
                writer.write(HEAD + b"content-length: 100\r\n\r\n{")
                await asyncio.sleep(0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for _ in range(attacker.number(20)):
            group.create_task(one())


async def sessions(attacker: Attacker) -> None:
    """Send 20,000 requests, each with its own session id."""
    names, most = count(), attacker.number(20_000)

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", attacker.port)
        attacker.opened += 1
        try:
            while (name := next(names)) < most:
                body = b'{"model":"pool-0","messages":[{"role":"user","content":"hello %d"}],"user":"garbage-%d"}' % (name, name)
                writer.write(HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
                head = await reader.readuntil(b"\r\n\r\n")
                attacker.refused += head.startswith(_REFUSALS)
                attacker.sessions += 1
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(length)
        finally:
            writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one())
    await asyncio.Event().wait()


async def prompts(attacker: Attacker) -> None:
    """Send requests to the attacked pool. The attack is made by its hostile engines, which can attack only in answers
    to requests.
    """

    async def one() -> None:
        body = b'{"model":"pool-0","stream":true,"messages":[{"role":"user","content":"hello"}]}'
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(20.0):
                    await attacker.open(HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
            await asyncio.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        for _ in range(attacker.number(4)):
            group.create_task(one())


CLIENTS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "idle": idle,
    "half-heads": half_heads,
    "half-bodies": half_bodies,
    "resets-by-clients": resets,
    "sessions": sessions,
}
ENGINES = (
    "endless-head",
    "endless-103",
    "endless-extension",
    "endless-answer",
    "blank-lines",
    "tiny-events",
    "tiny-chunks",
    "many-values",
    "one-line-metrics",
    "huge-figures",
    "many-sources",
    "resets",
    "silence",
)
"""The attacks that the engines of the attacked pool make (see `world`)."""
SUSPENDED = "suspended"
"""The attack that suspends the router's process (SIGSTOP) in the middle of the round, and later resumes it."""
NAMES = (*ENGINES, *CLIENTS, SUSPENDED)
