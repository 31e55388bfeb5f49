"""Routes of streams: server-sent events for pages, and the routers' stream."""

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response

from fairlead_api.access.guards import Guard, understood
from fairlead_api.decisions.routes import decisions_of
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import BoundedStream, while_known
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.notices import CredentialsRevoked, Notice, PoolDeleted, TableChanged
from fairlead_api.moves.routes import stores_of
from fairlead_api.pools.routes import pools_of
from fairlead_api.rejections.routes import rejections_of
from fairlead_api.streams.live import Live
from fairlead_api.streams.store import PostgresStream
from fairlead_api.streams.table_stream import TableStream
from fairlead_api.streams.topics import topics
from fairlead_client import internal_paths
from fairlead_client.resources.access import AccessRole


def live_routes(guard: Guard, live: Live) -> Routes:
    """Return the route GET /v1/live."""
    routes = Routes(prefix="/v1", tags=["live"])

    @routes.get("/live", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
    async def get_live(
        request: Request,
        caller: Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER, somewhere=True))],
        topics: str = "pools",
        pool: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Any:
        """Server-sent events. An event is named like its topic, and its data are a list of resources.

        A credential can have at most 3 streams: a further stream gets one event `poll` and ends.
        """
        wanted = [topic.strip() for topic in topics.split(",") if topic.strip()]
        live.check(wanted, pool)
        events = live.stream(wanted, pool, caller.key, last_event_id, caller.sight)
        return BoundedStream(while_known(events, lambda: guard.still_knows(request, caller)), media_type="text/event-stream")

    return routes


def stream_routes(guard: Guard, stream: TableStream) -> Routes:
    """Return the routes of the routers' stream at `fairlead_client.internal_paths`."""
    routes = Routes(tags=["internal"], dependencies=[Depends(understood)])
    Router = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_ROUTER))]  # noqa: N806 - it is a type

    @routes.get(internal_paths.STREAM, response_class=Response, responses={200: {"content": {"application/x-ndjson": {}}}})
    async def get_stream(router: Annotated[str, Query(min_length=1, max_length=200)], request: Request, caller: Router) -> Any:
        """Routing tables and bindings as NDJSON: a snapshot, `synced`, then changes; a heartbeat every 2 s.

        The token must allow its bearer to report as the router.
        """
        await guard.require_router(request, caller, router)
        lines = while_known(await stream.open(router), lambda: guard.still_knows(request, caller))
        return BoundedStream(lines, media_type="application/x-ndjson")

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of streams for routers and for pages."""
    stream = TableStream(PostgresStream(infra.control), heartbeat_seconds=infra.settings.heartbeat_seconds)
    infra.telemetry.subscribers.set_function(lambda: stream.subscribers)
    live = Live(topics(pools_of(infra), *stores_of(infra), decisions_of(infra), rejections_of(infra)), infra.clock)
    infra.telemetry.live.set_function(lambda: live.streams)

    async def on_notice(notice: Notice) -> None:
        if isinstance(notice, CredentialsRevoked):
            return
        if isinstance(notice, TableChanged | PoolDeleted):
            infra.present.forget()
            live.look_again(notice.pool)
        await stream.on_notice(notice)

    return Feature(
        routes=(live_routes(guard, live), stream_routes(guard, stream)),
        tasks={"shares of routers": stream.tell_others_forever},
        on_notice=on_notice,
        on_gap=stream.on_gap,
    )
