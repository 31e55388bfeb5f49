"""The operator's health endpoints.

`/healthz` responds with 200 while the process lives, `/readyz` once it can work; both describe the operator's state.
`/metrics` has its metrics.
"""

import asyncio
from collections.abc import Sized
from types import SimpleNamespace
from typing import cast

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from fairlead_operator.leader_election import Lease
from fairlead_operator.metrics import OperatorMetrics
from fairlead_process.accepting import BoundedServer
from fairlead_process.doors import STRANGER_SECONDS, Door
from fairlead_process.starting import bind

FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


CONNECTIONS = 64
VISIT_SECONDS = 30.0
"""Maximum duration of a connection in seconds. A health check needs only one short request, and a client may connect
again.
"""


class _Visit(asyncio.Protocol):
    """A connection that lasts for a bounded time, however long its protocol would wait."""

    def __init__(self, inner: asyncio.Protocol, door: Door) -> None:
        self._inner = inner
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._begun = asyncio.get_running_loop().time()

    def may_go(self) -> bool:
        """Return whether the connection has lasted so long that it may be closed in favour of a new one."""
        return self._transport is not None and asyncio.get_running_loop().time() - self._begun >= STRANGER_SECONDS

    def turn_away(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        asyncio.get_running_loop().call_later(VISIT_SECONDS, self._transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        self._inner.connection_lost(exc)


class RefusedReads:
    """The paths that the Kubernetes API at present does not let kopf list or watch (403). Kopf retries them, and
    receives no events of these namespaces until it is allowed.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.trace = aiohttp.TraceConfig()
        self.trace.on_request_end.append(self._note)

    async def _note(self, session: aiohttp.ClientSession, context: SimpleNamespace, ended: aiohttp.TraceRequestEndParams) -> None:
        if ended.method == "GET" and ended.response.status == 403:
            self.paths.add(ended.url.path)
        elif ended.method == "GET" and ended.response.status < 300:
            self.paths.discard(ended.url.path)


class Health:
    """The operator's health and metrics. `waiting_for` names the missing thing without which the operator cannot work;
    it is empty if nothing is missing.
    """

    def __init__(self, metrics: OperatorMetrics | None = None) -> None:
        self.metrics = metrics or OperatorMetrics()
        self.waiting_for = "the Kubernetes API"
        self.reads = RefusedReads()
        self._watched: tuple[Lease, Sized] | None = None
        self._runner: web.AppRunner | None = None
        self._server: BoundedServer | None = None

    def watch(self, lease: Lease, pools: Sized) -> None:
        """Describe this Lease and these pools in all later responses."""
        self._watched = (lease, pools)

    def document(self) -> dict[str, object]:
        """Return the JSON document with which `/healthz` and `/readyz` respond.

        Its fields: the operator's state (waiting, leading or standby), the holder of the Lease, the number of
        reconciled pools, the paths that the operator may not read, and the reason why it could not lead.
        """
        if self.waiting_for or self._watched is None:
            return {"state": "waiting", "for": self.waiting_for}
        lease, pools = self._watched
        document: dict[str, object] = {"holder": lease.holder, "pools": len(pools)}
        if lease.is_held():
            return {"state": "leading", **document} | ({"refused": sorted(self.reads.paths)} if self.reads.paths else {})
        return {"state": "standby", **document} | ({"problem": lease.problem} if lease.problem else {})

    def is_ready(self) -> bool:
        """Return whether the operator leads, or would take over if the leader ended."""
        document = self.document()
        return document["state"] != "waiting" and "problem" not in document

    async def serve(self, host: str, port: int) -> None:
        """Serve the health endpoints on this address until `close`. Raises InvalidInput if the address is taken."""
        app = web.Application()
        app.add_routes([web.get("/healthz", self._alive), web.get("/readyz", self._ready), web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        serve, door = self._runner.server, Door(CONNECTIONS)
        assert serve is not None
        listener = bind("FAIRLEAD_OPERATOR_HEALTH_HOST/FAIRLEAD_OPERATOR_HEALTH_PORT", host, port)
        self._server = BoundedServer(listener, door, lambda: _Visit(serve(), door), door.leave, lambda: FULL)

    async def close(self) -> None:
        """Stop serving the health endpoints."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _alive(self, request: web.Request) -> web.Response:
        return web.json_response(self.document())

    async def _ready(self, request: web.Request) -> web.Response:
        """Respond to `/readyz`: whether the operator is ready. A standby is ready too, because it would take over, and
        because a rolling update waits for it before it stops the holder of the Lease.
        """
        return web.json_response(self.document(), status=200 if self.is_ready() else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        leading = self.document()["state"] == "leading"
        self.metrics.leading.set(leading)
        self.metrics.ready.set(self.is_ready())
        self.metrics.pools.set(len(self._watched[1]) if leading and self._watched is not None else 0)
        self.metrics.refused_reads.set(len(self.reads.paths))
        return web.Response(body=generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
