"""The steady load on the pools that are not attacked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from benchmarks.attacks.world import POOLS

PAUSE_SECONDS = 0.05
LONGEST_SECONDS = 30.0


@dataclass
class Load:
    """The steady load: one client for each pool except the attacked first pool. Each client uses its own connection."""

    port: int
    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    async def run(self, seconds: float) -> None:
        """Let all clients send requests for this number of seconds, and wait for their last answers."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._client(f"pool-{number}", end) for number in range(1, POOLS)))

    async def _client(self, model: str, end: float) -> None:
        client = Client(self.port, model)
        while (began := time.monotonic()) < end:
            served = await client.ask()
            self.seconds.append(time.monotonic() - began)
            self.failed += not served
            await asyncio.sleep(PAUSE_SECONDS)
        client.close()

    def share(self, part: float) -> float:
        """Return a quantile of the response times in milliseconds. `part` selects the quantile, for example 0.99."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000 if ordered else 0.0


class Client:
    """A client that sends requests to a pool on one connection, and opens a new connection after it was closed."""

    def __init__(self, port: int, model: str) -> None:
        self._port = port
        body = b'{"model":"%s","messages":[{"role":"user","content":"hello"}],"user":"steady-%s"}' % (model.encode(), model.encode())
        self._request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> bool:
        """Send one request; return whether the answer was 200."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                reader, writer = self._streams
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(length)
        except (OSError, TimeoutError, EOFError, StopIteration):
            self.close()
            return False
        return head.startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
