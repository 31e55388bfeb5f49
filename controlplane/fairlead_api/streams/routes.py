"""Server-sent events."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response

from fairlead_api.access.guards import Guard
from fairlead_api.http.streaming import BoundedStream, while_known
from fairlead_api.infra.callers import Caller
from fairlead_api.streams.live import Live
from fairlead_client.resources.access import AccessRole


def live_routes(guard: Guard, live: Live) -> APIRouter:
    """GET /v1/live."""
    routes = APIRouter(prefix="/v1", tags=["live"])

    @routes.get("/live", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
    async def get_live(
        request: Request,
        caller: Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER, somewhere=True))],
        topics: str = "pools",
        pool: str | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Any:
        """Events named by topic; their data are lists of the resources.

        At most 3 streams per credential: a further one gets one event `poll` and ends.
        """
        wanted = [topic.strip() for topic in topics.split(",") if topic.strip()]
        live.check(wanted, pool)
        events = live.stream(wanted, pool, caller.key, last_event_id, caller.sight)
        return BoundedStream(while_known(events, lambda: guard.still_knows(request, caller)), media_type="text/event-stream")

    return routes
