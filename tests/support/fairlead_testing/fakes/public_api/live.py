"""The live stream: events for every open stream, a maximum of open streams, and an end for all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairlead_testing.fakes.public_api.answers import Endpoint


class LiveStreams:
    """The open live streams. If `limit` streams are open, a new stream gets the event `poll` and nothing else."""

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit
        self._open: list[asyncio.Queue[bytes]] = []

    def routes(self, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
        return [Route("/v1/live", guard(self._live))]

    def push(self, topic: str, event: int, items: Sequence[object]) -> None:
        """Send one event, numbered `event`, to every open stream."""
        data = f"event: {topic}\nid: {event}\ndata: {msgspec.json.encode(items).decode()}\n\n".encode()
        for queue in self._open:
            queue.put_nowait(data)

    def end(self) -> None:
        for queue in self._open:
            queue.put_nowait(b"")

    async def _live(self, request: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            if len(self._open) >= self.limit:
                yield b"event: poll\ndata: {}\n\n"
                return
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            self._open.append(queue)
            try:
                yield b": welcome\n\n"
                while chunk := await queue.get():
                    yield chunk
            finally:
                self._open.remove(queue)

        return StreamingResponse(stream(), media_type="text/event-stream")
