"""A receiver of notices: an HTTP server that keeps the requests that it gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from processkube.testing.ports import free_port

PATH = "/T0/very-secret-path"


@dataclass(kw_only=True)
class Receiver:
    """The received requests, and the status of the next answers."""

    url: str
    status: int = 204
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """An event for which every answer waits."""
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [json.loads(content)["type"] for _, content in self.came]

    async def handle(self, request: web.Request) -> web.Response:
        self.came.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        await self.free.wait()
        return web.Response(status=self.status, headers={"location": f"{self.url}/elsewhere"}, text="an answer nobody keeps")


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver on a free port of this machine while the context is open."""
    port = free_port()
    receiver = Receiver(url=f"http://127.0.0.1:{port}{PATH}")
    receiver.free.set()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)  # 0 would wait for ever
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield receiver
    finally:
        await runner.cleanup()
