"""Open endpoints: health, readiness, metrics; and the OpenAPI document for those who may read."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from fairlead_api.routes.guards import Guard
from fairlead_api.services.access import Caller


def health_routes(
    guard: Guard, document: Callable[[], dict[str, Any]], ready: Callable[[], Awaitable[None]], metrics: Callable[[], tuple[bytes, str]]
) -> APIRouter:
    """`document` is the OpenAPI document; `ready` raises StoreUnavailable while Postgres is away; `metrics` gives the exposition and its content type."""
    routes = APIRouter()

    @routes.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok"}

    @routes.get("/readyz", tags=["health"])
    async def readyz() -> dict[str, str]:
        """The database answers."""
        await ready()
        return {"status": "ready"}

    @routes.get("/metrics", tags=["health"], response_class=Response)
    async def get_metrics() -> Response:
        """Prometheus metrics of this process."""
        content, kind = metrics()
        return Response(content, media_type=kind)

    @routes.get("/openapi.json", include_in_schema=False)
    async def openapi(caller: Annotated[Caller, Depends(guard.needs("viewer"))]) -> dict[str, Any]:
        return document()

    return routes
