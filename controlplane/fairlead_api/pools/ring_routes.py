"""The hash ring of a pool."""

import asyncio
from typing import Annotated, Protocol

from fastapi import APIRouter, Query

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api.access.guards import Guard
from fairlead_api.http.documents import Ask, document
from fairlead_api.infra.spans import Sight
from fairlead_api.pools.rings import RingQuestion, ring_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.rings import Ring, RingInstance


class RingReader(Protocol):
    """Reads what the ring is made of."""

    async def ring(self, pool: PoolKey) -> tuple[RoutingTable, int, dict[str, int]]:
        """The present table, anchors per instance, and bound sessions by instance.

        Raises NotFound, also for a pool without a table yet.
        """


def ring_routes(guard: Guard, reader: RingReader, policies: PolicyCatalogue) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/ring."""
    routes = APIRouter(prefix="/v1", tags=["pools"])

    async def get_ring(
        namespace: str,
        name: str,
        add: int = 0,
        remove: Annotated[list[str] | None, Query()] = None,
        anchors: int | None = None,
    ) -> Ask:
        """Anchors and key shares, and what a change would move: `add` instances more, those named by `remove` gone
        (several times), another number of `anchors` per instance.
        """
        question = RingQuestion(add=add, remove=tuple(remove or ()), anchors=anchors)

        async def ask(sight: Sight) -> Ring:
            table, per_instance, bound = await reader.ring(PoolKey(namespace=namespace, name=name))
            return await asyncio.to_thread(ring_of, table, per_instance, bound, policies, question)

        return ask

    path, needs = "/pools/{namespace}/{name}/ring", guard.needs(AccessRole.VIEWER)
    document(routes, path, Ring, needs, get_ring, RingInstance, lambda found: found.instances)
    return routes
