"""A small control API over real HTTP for tests of routers: table stream, bindings with first writer wins, reports stored once by id.

It can be stopped and started again on the same port, told to answer an error, and told to store a report but lose its acknowledgement.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

import msgspec
from aiohttp import web

from fairlead.binding_races import Held, Verdict, judge, next_version
from fairlead.instances import InstanceState
from fairlead.reports import Binding, BindingChange, Report, ReportReceipt, RouterGone
from fairlead.tables import (
    EarlyRejectionFacts,
    EngineFacts,
    InstanceEntry,
    PoolKey,
    RoutingFacts,
    RoutingTable,
    SessionFacts,
    SloFacts,
)

CHAT = PoolKey(namespace="default", name="chat")


def routing_table(
    addresses: Iterable[str],
    *,
    pool: PoolKey = CHAT,
    version: int = 1,
    uid: str = "uid-1",
    model: str = "mock",
    policy: str = "round-robin",
    states: dict[str, InstanceState] | None = None,
    prefills_in_flight: int = 0,
    prefill_tokens_per_second: float = 6250.0,
    block_tokens: int = 512,
    ids: Iterable[str] | None = None,
    parameters: dict[str, Any] | None = None,
    early_rejection: EarlyRejectionFacts | None = None,
    pass_client_credentials: bool = False,
) -> RoutingTable:
    """A table of one instance per address, named `i0`, `i1`, … unless `ids` are given."""
    addresses = tuple(addresses)
    names = tuple(ids) if ids is not None else tuple(f"i{index}" for index in range(len(addresses)))
    states = states or {}
    return RoutingTable(
        pool=pool,
        uid=uid,
        version=version,
        generation=1,
        model=model,
        engine=EngineFacts(
            type="simulated",
            port=8000,
            block_tokens=block_tokens,
            prefill_tokens_per_second=prefill_tokens_per_second,
            pass_client_credentials=pass_client_credentials,
        ),
        routing=RoutingFacts(policy=policy, parameters=parameters or {}, prefills_in_flight=prefills_in_flight),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=early_rejection or EarlyRejectionFacts(),
        instances=tuple(
            InstanceEntry(id=name, address=address, state=states.get(name, InstanceState.SERVING))
            for name, address in zip(names, addresses, strict=True)
        ),
    )


class FakeControlApi:
    """The internal API with its state in memory. `reports` holds each stored report once; `received` counts every POST of a report."""

    def __init__(self, token: str = "system-token") -> None:
        self.token = token
        self.tables: dict[PoolKey, RoutingTable] = {}
        self.bindings: dict[tuple[PoolKey, str], Binding] = {}
        self.reports: dict[str, Report] = {}
        self.received = 0
        self.gone: list[RouterGone] = []
        self.fail_reports_with: int | None = None
        self.lose_acknowledgements = False
        self._streams: dict[asyncio.Queue[bytes], str] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connected(self) -> list[str]:
        """Routers with an open stream."""
        return sorted(self._streams.values())

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/internal/v1/stream", self._stream)
        app.router.add_post("/internal/v1/reports", self._report)
        app.router.add_post("/internal/v1/routers/gone", self._router_gone)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close everything; state is kept for the next `start`."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._streams.clear()

    # ── what a test does to it ──

    def set_table(self, table: RoutingTable) -> None:
        self.tables[table.pool] = table
        self._tell({"type": "table", "table": table})

    def delete_pool(self, pool: PoolKey) -> None:
        self.tables.pop(pool, None)
        self._tell({"type": "pool_deleted", "pool": pool})

    def set_binding(self, binding: Binding) -> None:
        self.bindings[binding.pool, binding.session] = binding
        self._tell({"type": "bindings", "bindings": [binding]})

    def stored(self, field: str) -> list[Any]:
        """All records of one kind, in the order their reports came."""
        return [record for report in self.reports.values() for record in getattr(report, field)]

    # ── handlers ──

    def _tell(self, document: dict[str, Any]) -> None:
        line = msgspec.json.encode(document) + b"\n"
        for stream in self._streams:
            stream.put_nowait(line)

    def _refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return web.json_response({"title": "unauthorized"}, status=401)
        return None

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for table in self.tables.values():
            await response.write(msgspec.json.encode({"type": "table", "table": table}) + b"\n")
        known = list(self.bindings.values())
        for start in range(0, len(known), 500):
            await response.write(msgspec.json.encode({"type": "bindings", "bindings": known[start : start + 500]}) + b"\n")
        await response.write(b'{"type":"synced"}\n')
        self._streams[queue] = request.query["router"]
        try:
            while True:
                try:
                    async with asyncio.timeout(2.0):
                        line = await queue.get()
                except TimeoutError:
                    line = b'{"type":"heartbeat"}\n'
                await response.write(line)
        except ConnectionError:
            return response
        finally:
            self._streams.pop(queue, None)

    async def _report(self, request: web.Request) -> web.Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        if self.fail_reports_with is not None:
            return web.json_response({"title": "told to fail"}, status=self.fail_reports_with)
        reports = msgspec.json.decode(await request.read(), type=list[Report])
        self.received += len(reports)
        receipts = [self._take(report) for report in reports]
        if self.lose_acknowledgements:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=msgspec.json.encode(receipts), content_type="application/json")

    def _take(self, report: Report) -> ReportReceipt:
        if report.id in self.reports:
            return ReportReceipt(id=report.id, duplicate=True)
        self.reports[report.id] = report
        lost = {change.id: current for change in report.bindings if (current := self._write(change, report.router)) is not None}
        return ReportReceipt(id=report.id, duplicate=False, conflicts=tuple(lost.values()), lost=tuple(lost))

    def _write(self, change: BindingChange, router: str) -> Binding | None:
        """First writer wins, by the API's own rule; the present binding for a change that lost."""
        current = self.bindings.get((change.pool, change.session))
        held = Held(instance=None, version=0, router="")
        if current is not None:
            held = Held(instance=current.instance, version=current.version, router=router, change=current.change)
        verdict = judge(change, held)
        if verdict is Verdict.BIND:
            self.set_binding(
                Binding(
                    pool=change.pool,
                    session=change.session,
                    instance=change.instance,
                    version=next_version(change, held),
                    reason=change.reason,
                    bound_at=change.at,
                    migrated_at=None if current is None else change.at,
                    context_tokens=change.context_tokens,
                    change=change.id,
                )
            )
        return current if verdict is Verdict.CONFLICT else None

    async def _router_gone(self, request: web.Request) -> web.Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        self.gone.append(msgspec.json.decode(await request.read(), type=RouterGone))
        return web.Response(status=204)


@contextlib.asynccontextmanager
async def running_control_api() -> Any:
    """A started FakeControlApi, stopped at the end."""
    api = FakeControlApi()
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
