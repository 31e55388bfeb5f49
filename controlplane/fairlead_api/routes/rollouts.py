"""A pool's rollout and the revisions it can go back to, read from the Kubernetes API."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from fairlead.tables import PoolKey
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.services.access.access import Caller
from fairlead_api.services.plans.objects import ClusterGateway, Target
from fairlead_api.services.pools.rollouts import rollout_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.rollouts import Rollout


def rollout_routes(guard: Guard, cluster: ClusterGateway) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/rollout."""
    routes = APIRouter(prefix="/v1", tags=["pools"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type

    @routes.get("/pools/{namespace}/{name}/rollout", response_model=Rollout)
    async def get_rollout(namespace: str, name: str, caller: Viewer) -> Any:
        """How far the present template has come, and what going back to each revision would change."""
        pool = PoolKey(namespace=namespace, name=name)
        found = await cluster.read(Target.of_pool(pool))
        return answer(rollout_of(pool, found.spec, found.status, await cluster.revisions(pool)))

    return routes
