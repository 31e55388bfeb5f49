"""The operator's health endpoints.

`/healthz` answers while the process lives, `/readyz` once it can work; both describe its state.
"""

from collections.abc import Sized
from types import SimpleNamespace

import aiohttp
from aiohttp import web

from fairlead_operator.leader_election import Lease


class RefusedReads:
    """Paths that the Kubernetes API does not let kopf list or watch (403), until they succeed. Kopf retries, and events
    of that namespace are not seen until then.
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
    """The operator's health. `waiting_for` names what keeps the operator from working; empty if nothing does."""

    def __init__(self) -> None:
        self.waiting_for = "the Kubernetes API"
        self.reads = RefusedReads()
        self._watched: tuple[Lease, Sized] | None = None
        self._runner: web.AppRunner | None = None

    def watch(self, lease: Lease, pools: Sized) -> None:
        """Describe this Lease and these pools from now on."""
        self._watched = (lease, pools)

    def document(self) -> dict[str, object]:
        """The document that both paths return.

        It says whether the operator waits, leads or stands by, who holds the Lease, how many pools it reconciles, what
        it may not read, and why it could not lead.
        """
        if self.waiting_for or self._watched is None:
            return {"state": "waiting", "for": self.waiting_for}
        lease, pools = self._watched
        document: dict[str, object] = {"holder": lease.holder, "pools": len(pools)}
        if lease.is_held():
            return {"state": "leading", **document} | ({"refused": sorted(self.reads.paths)} if self.reads.paths else {})
        return {"state": "standby", **document} | ({"problem": lease.problem} if lease.problem else {})

    def is_ready(self) -> bool:
        """Whether the operator leads, or would take over if the leader ended."""
        document = self.document()
        return document["state"] != "waiting" and "problem" not in document

    async def serve(self, host: str, port: int) -> None:
        """Answer on this address until `close`. Raises OSError if the address is taken."""
        app = web.Application()
        app.add_routes([web.get("/healthz", self._alive), web.get("/readyz", self._ready)])
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        """Stop answering."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _alive(self, request: web.Request) -> web.Response:
        return web.json_response(self.document())

    async def _ready(self, request: web.Request) -> web.Response:
        """Whether it is ready. A standby is ready too: it would take over, and a rolling update waits for it before it
        stops the holder.
        """
        return web.json_response(self.document(), status=200 if self.is_ready() else 503)
