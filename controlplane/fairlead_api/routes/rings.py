"""The hash ring of a pool."""

import asyncio
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.services.access.access import Caller
from fairlead_api.services.pools.rings import RingQuestion, ring_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.rings import Ring


class RingReader(Protocol):
    """Reads what the ring is made of."""

    async def ring(self, pool: PoolKey) -> tuple[RoutingTable, int, dict[str, int]]:
        """The present table, anchors per instance, and bound sessions by instance.

        Raises NotFound, also for a pool without a table yet.
        """


def ring_routes(guard: Guard, reader: RingReader, policies: PolicyCatalogue) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/ring."""
    routes = APIRouter(prefix="/v1", tags=["pools"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type

    @routes.get("/pools/{namespace}/{name}/ring", response_model=Ring)
    async def get_ring(
        namespace: str,
        name: str,
        caller: Viewer,
        add: int = 0,
        remove: Annotated[list[str] | None, Query()] = None,
        anchors: int | None = None,
    ) -> Any:
        """Anchors and key shares, and what a change would move: `add` instances more, those named by `remove` gone
        (several times), another number of `anchors` per instance.
        """
        question = RingQuestion(add=add, remove=tuple(remove or ()), anchors=anchors)
        table, per_instance, bound = await reader.ring(PoolKey(namespace=namespace, name=name))
        return answer(await asyncio.to_thread(ring_of, table, per_instance, bound, policies, question))

    return routes
