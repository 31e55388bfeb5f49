"""Keys of the gateway's clients."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from fairlead_api.access.gateway_keys import GatewayKeys
from fairlead_api.access.guards import Guard
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, From, To, listing
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_range
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.gateway_keys import GatewayKey, GatewayKeyChange, GatewayKeyRequest, GatewayKeyUsage, GatewayKeyUsePoint


def gateway_key_routes(guard: Guard, keys: GatewayKeys, clock: Callable[[], datetime]) -> APIRouter:
    """/v1/gateway-keys."""
    routes = APIRouter(prefix="/v1", tags=["gateway keys"])
    viewer = guard.needs(AccessRole.VIEWER)
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    async def all_keys() -> Fetch:
        return lambda span: keys.keys(span.cursor, span.limit, clock())

    listing(routes, "/gateway-keys", GatewayKey, viewer, all_keys)

    async def get_gateway_key_usage(key_id: str, start: From = None, end: To = None) -> Ask:
        """Requests, tokens and refusals of a key; the last 24 hours unless asked otherwise.

        By the minute for a range of at most 6 hours, by the hour up to 14 days, else by the UTC day.
        """
        now = clock()
        begun, ended = parse_range(start or "now-24h", end or "now", now)
        return lambda sight: keys.usage(key_id, begun or now - timedelta(days=1), ended or now)

    path = "/gateway-keys/{key_id}/usage"
    document(routes, path, GatewayKeyUsage, viewer, get_gateway_key_usage, GatewayKeyUsePoint, lambda found: found.points)

    @routes.post("/gateway-keys", status_code=201, dependencies=[Depends(known_fields(GatewayKeyRequest))])
    async def create_gateway_key(body: GatewayKeyRequest, caller: Operator) -> GatewayKey:
        """A new key; its secret is shown here and never again. Routers know it at once."""
        return await keys.create(body, caller, clock())

    @routes.patch("/gateway-keys/{key_id}", response_model=GatewayKey, dependencies=[Depends(known_fields(GatewayKeyChange))])
    async def change_gateway_key(key_id: str, body: GatewayKeyChange, caller: Operator) -> Any:
        """Changes whether a key's requests may ask for their decisions to be kept. Routers know it at once."""
        return answer(await keys.change(key_id, body, caller, clock()))

    @routes.delete("/gateway-keys/{key_id}", status_code=204)
    async def revoke_gateway_key(key_id: str, caller: Operator) -> None:
        """Revokes a key for ever. Routers refuse it at once; one that is cut off, when it is in step again."""
        await keys.revoke(key_id, caller, clock())

    return routes
