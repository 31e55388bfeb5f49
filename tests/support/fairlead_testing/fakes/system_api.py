"""The internal protocol over real HTTP with its state in memory, for tests of routers and of the operator.

It can be stopped and started again on the same port. It can also be unavailable or slow, answer an error, or store a
report but lose its acknowledgement.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from fairlead.errors import InvalidInput
from fairlead.pool_states import PoolEvents, PoolState
from fairlead.reports.batches import Report, RouterGone
from fairlead.reports.predictors import TrainedModel
from fairlead.tables import PoolKey
from fairlead_client import internal_paths, protocol
from fairlead_client.lines import HeartbeatLine, StreamLine, encode_line
from fairlead_testing.fakes.system_state import SaidNo, SystemState
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

ROUTER_TOKEN = "router-test-token"
"""The token of the routers `router`, `router-0`, `router-1`, …"""
OPERATOR_TOKEN = "operator-test-token"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeSystemApi:
    """The internal protocol's server. `state` holds what it received and sends; the other attributes set its faults."""

    def __init__(self, *, heartbeat_seconds: float = 2.0) -> None:
        self.state = SystemState(self._tell)
        self.up = True
        self.answers_with: int | None = None
        """The status of every answer; None for the usual answers."""
        self.answers_after = 0.0
        """The delay of every answer, in seconds."""
        self.fails_reports_with: int | None = None
        self.loses_acknowledgements = False
        self._heartbeat_seconds = heartbeat_seconds
        self._streams: dict[asyncio.Queue[StreamLine], str] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connected(self) -> list[str]:
        """Return the routers that have an open stream."""
        return sorted(self._streams.values())

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._answer])
        app.router.add_put(internal_paths.POOL_STATE, self._put_state)
        app.router.add_post(internal_paths.POOL_EVENTS, self._post_events)
        app.router.add_delete(internal_paths.POOL, self._delete_pool)
        app.router.add_get(internal_paths.HELD_POOLS, self._get_held_pools)
        app.router.add_get(internal_paths.UNHEARD_POOLS, self._get_unheard_pools)
        app.router.add_get(internal_paths.STREAM, self._stream)
        app.router.add_post(internal_paths.REPORTS, self._post_reports)
        app.router.add_post(internal_paths.PREDICTOR_MODELS, self._post_model)
        app.router.add_get(internal_paths.PREDICTOR_MODELS, self._get_model)
        app.router.add_post(internal_paths.ROUTER_GONE, self._post_gone)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self.port = self.port or free_port()  # one that is still free when it starts again
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        """Close the port and all connections; the state is kept for the next `start`."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._streams.clear()

    def _tell(self, line: StreamLine) -> None:
        for stream in self._streams:
            stream.put_nowait(line)

    # ── answers ──

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self.up:
            _cut(request)
            return web.Response(status=503)
        await asyncio.sleep(self.answers_after)
        try:
            if self.answers_with is not None:
                raise SaidNo(self.answers_with, "database-unavailable", "told to")
            self._authorize(request)
            if (far := protocol.too_far(request.headers.get(protocol.HEADER))) is not None:
                raise SaidNo(409, "protocol-too-far", far)
            return await handler(request)
        except SaidNo as no:
            return _problem(no.status, no.kind, str(no))
        except InvalidInput as problem:
            return _problem(422, "invalid-input", str(problem))
        except msgspec.ValidationError as error:
            return _problem(422, "invalid-input", str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _problem(400, "malformed", str(error))

    def _authorize(self, request: web.Request) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in {ROUTER_TOKEN, OPERATOR_TOKEN}:
            raise SaidNo(401, "unauthenticated", "no such token")
        of_operator = "namespace" in request.match_info or request.path in {internal_paths.HELD_POOLS, internal_paths.UNHEARD_POOLS}
        wanted = OPERATOR_TOKEN if of_operator else ROUTER_TOKEN
        if token != wanted:
            raise SaidNo(403, "denied", "not with this role")

    async def _put_state(self, request: web.Request) -> web.Response:
        state = msgspec.json.decode(await request.read(), type=PoolState)
        return _json(self.state.take_state(_pool(request), state))

    async def _post_events(self, request: web.Request) -> web.Response:
        events = msgspec.json.decode(await request.read(), type=PoolEvents).events
        self.state.take_events(_pool(request), events)
        return web.Response(status=204)

    async def _delete_pool(self, request: web.Request) -> web.Response:
        self.state.delete_pool(_pool(request))
        return web.Response(status=204)

    async def _get_held_pools(self, request: web.Request) -> web.Response:
        return _json(self.state.held_pools())

    async def _get_unheard_pools(self, request: web.Request) -> web.Response:
        return _json(self.state.unheard_pools(float(request.query["seconds"])))

    async def _post_reports(self, request: web.Request) -> web.Response:
        if self.fails_reports_with is not None:
            raise SaidNo(self.fails_reports_with, "told-to-fail", "told to fail")
        reports = msgspec.json.decode(await request.read(), type=list[Report])
        for report in reports:
            _require_router(report.router)
        receipts = self.state.take_reports(reports)
        for stream, router in self._streams.items():
            for line in self.state.others_of(router):
                stream.put_nowait(line)
        if self.loses_acknowledgements:
            _cut(request)
        return _json(receipts)

    async def _post_model(self, request: web.Request) -> web.Response:
        model = msgspec.json.decode(await request.read(), type=TrainedModel)
        _require_router(model.figures.router)
        self.state.take_model(model)
        return web.Response(status=204)

    async def _get_model(self, request: web.Request) -> web.Response:
        return _json(self.state.newest_model(PoolKey(namespace=request.query["namespace"], name=request.query["name"])))

    async def _post_gone(self, request: web.Request) -> web.Response:
        gone = msgspec.json.decode(await request.read(), type=RouterGone)
        _require_router(gone.router)
        self.state.forget_router(gone)
        return web.Response(status=204)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        _require_router(request.query["router"])
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await response.prepare(request)
        queue: asyncio.Queue[StreamLine] = asyncio.Queue()
        snapshot = tuple(self.state.snapshot())
        self._streams[queue] = request.query["router"]
        with suppress(ConnectionError):
            try:
                for line in snapshot:
                    await response.write(encode_line(line))
                while True:
                    try:
                        async with asyncio.timeout(self._heartbeat_seconds):
                            line = await queue.get()
                    except TimeoutError:
                        line = HeartbeatLine()
                    await response.write(encode_line(line))
            finally:
                self._streams.pop(queue, None)
        return response


def _pool(request: web.Request) -> PoolKey:
    return PoolKey(namespace=request.match_info["namespace"], name=request.match_info["name"])


def _require_router(name: str) -> None:
    if name != "router" and not name.startswith("router-"):
        raise SaidNo(403, "denied", f"the token may not report as {name}")


def _json(answer: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _problem(status: int, kind: str, detail: str) -> web.Response:
    document = {"type": kind, "title": "No", "status": status, "detail": detail}
    headers = {"retry-after": "2"} if status in {429, 503} else {}
    return web.json_response(document, status=status, headers=headers)


def _cut(request: web.Request) -> None:
    """Break the connection before an answer is sent."""
    assert request.transport is not None
    request.transport.abort()


@contextmanager
def running_fake_system_api() -> Iterator[FakeSystemApi]:
    """Run a fake API in a thread of its own, for tests that wait without an event loop.

    It reports to operators two live routers that acknowledge every table at once.
    """
    api = FakeSystemApi()
    api.state.pretence.acknowledges, api.state.pretence.live_routers = True, 2
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(api.start(), loop).result(PATIENCE_SECONDS)
        yield api
    finally:
        asyncio.run_coroutine_threadsafe(api.stop(), loop).result(PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
