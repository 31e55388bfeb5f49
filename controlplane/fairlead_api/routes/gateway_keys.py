"""Keys of the gateway's clients."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from fairlead_api.routes.bodies import known_fields
from fairlead_api.routes.guards import Guard
from fairlead_api.routes.listing import From, To
from fairlead_api.services.access.access import Caller
from fairlead_api.services.access.gateway_keys import GatewayKeys
from fairlead_api.services.history.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyRequest, GatewayKeyUsage
from fairlead_client.resources.pages import Page

Limit = Annotated[int, Query(ge=1, le=100)]


def gateway_key_routes(guard: Guard, keys: GatewayKeys, clock: Callable[[], datetime]) -> APIRouter:
    """/v1/gateway-keys."""
    routes = APIRouter(prefix="/v1", tags=["gateway keys"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    @routes.get("/gateway-keys")
    async def list_gateway_keys(caller: Viewer, cursor: str | None = None, limit: Limit = 50) -> Page[GatewayKey]:
        """Keys of the gateway's clients, newest first, without secrets, with what each was used for in 24 hours."""
        return await keys.keys(cursor, limit, clock())

    @routes.get("/gateway-keys/{key_id}/usage")
    async def get_gateway_key_usage(key_id: str, caller: Viewer, start: From = None, end: To = None) -> GatewayKeyUsage:
        """Requests, tokens and refusals of a key; the last 24 hours unless asked otherwise.

        By the minute for a range of at most 6 hours, by the hour up to 14 days, else by the UTC day.
        """
        now = clock()
        begun, ended = parse_range(start or "now-24h", end or "now", now)
        return await keys.usage(key_id, begun or now - timedelta(days=1), ended or now)

    @routes.post("/gateway-keys", status_code=201, dependencies=[Depends(known_fields(GatewayKeyRequest))])
    async def create_gateway_key(body: GatewayKeyRequest, caller: Operator) -> GatewayKey:
        """A new key; its secret is shown here and never again. Routers know it at once."""
        return await keys.create(body, caller, clock())

    @routes.delete("/gateway-keys/{key_id}", status_code=204)
    async def revoke_gateway_key(key_id: str, caller: Operator) -> None:
        """Revokes a key for ever. Routers refuse it at once; one that is cut off, when it is in step again."""
        await keys.revoke(key_id, caller, clock())

    return routes
