"""Endpoints of the operator process (role system-operator) and of routers (role system-router)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.reports import Report, ReportReceipt, RouterGone
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api.routes.bodies import decode_body, described
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.streaming import BoundedStream
from fairlead_api.services.access import Caller
from fairlead_api.services.ingestion import Ingestion
from fairlead_api.services.pool_mirroring import PoolMirroring
from fairlead_api.services.table_stream import StreamStore, TableStream


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEvents:
    """Body of an events post."""

    events: list[PoolEvent]


def internal_routes(
    guard: Guard,
    mirroring: PoolMirroring,
    ingestion: Ingestion,
    stream: TableStream,
    store: StreamStore,
    on_ignored: Callable[[Counter[str]], None],
    clock: Callable[[], datetime],
) -> APIRouter:
    """Everything under /internal/v1."""
    routes = APIRouter(prefix="/internal/v1", tags=["internal"])
    Operator = Annotated[Caller, Depends(guard.needs("system-operator"))]  # noqa: N806 - it is a type
    Router = Annotated[Caller, Depends(guard.needs("system-router"))]  # noqa: N806 - it is a type

    @routes.put("/pools/{namespace}/{name}/state")
    async def put_state(namespace: str, name: str, state: PoolState, caller: Operator) -> PoolObservations:
        """The operator's whole view of a pool; sending it again changes nothing. 409 when it is older than the stored one."""
        return await mirroring.take_state(PoolKey(namespace=namespace, name=name), state, clock())

    @routes.post("/pools/{namespace}/{name}/events", status_code=204)
    async def post_events(namespace: str, name: str, body: PoolEvents, caller: Operator) -> None:
        """Things the operator did or refused; repeated ones are stored once."""
        await mirroring.take_events(PoolKey(namespace=namespace, name=name), body.events, caller.identity.subject, clock())

    @routes.delete("/pools/{namespace}/{name}", status_code=204)
    async def delete_pool(namespace: str, name: str, caller: Operator) -> None:
        """The object was deleted; repeating it changes nothing."""
        await mirroring.delete(PoolKey(namespace=namespace, name=name), caller.identity.subject, clock())

    @routes.get("/pools/{namespace}/{name}/table")
    async def get_table(namespace: str, name: str, caller: Router) -> RoutingTable:
        """The newest routing table."""
        return await store.table(PoolKey(namespace=namespace, name=name))

    @routes.get("/stream", response_class=Response, responses={200: {"content": {"application/x-ndjson": {}}}})
    async def get_stream(router: Annotated[str, Query(min_length=1, max_length=200)], request: Request, caller: Router) -> Any:
        """Tables and bindings as NDJSON: snapshot, `synced`, then changes; a heartbeat every 2 s. The token must speak for the router."""
        await guard.require_router(request, caller, router)
        return BoundedStream(await stream.open(router), media_type="application/x-ndjson")

    @routes.post("/reports", response_model=ReportReceipt, openapi_extra=described(Report))
    async def post_report(request: Request, caller: Router) -> Response:
        """One batch of a router, stored once however often it is sent."""
        report = decode_body(await request.body(), Report)
        await guard.require_router(request, caller, report.router)
        done = await ingestion.take(report, clock())
        if done.ignored:
            on_ignored(done.ignored)
        return Response(msgspec.json.encode(done.receipt), media_type="application/json")

    @routes.post("/routers/gone", status_code=204)
    async def post_gone(gone: RouterGone, request: Request, caller: Router) -> None:
        """A router's last act."""
        await guard.require_router(request, caller, gone.router)
        await ingestion.forget_router(gone)

    return routes
