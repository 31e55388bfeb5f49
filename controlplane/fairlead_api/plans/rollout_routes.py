"""A pool's rollout and the revisions it can go back to, read from the Kubernetes API."""

from fastapi import APIRouter

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.http.documents import Ask, document
from fairlead_api.infra.spans import Sight
from fairlead_api.plans.objects import ClusterGateway, Target
from fairlead_api.plans.rollouts import rollout_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.rollouts import Rollout, TemplateRevision


def rollout_routes(guard: Guard, cluster: ClusterGateway) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/rollout."""
    routes = APIRouter(prefix="/v1", tags=["pools"])

    async def get_rollout(namespace: str, name: str) -> Ask:
        """How far the present template has come, and what going back to each revision would change."""
        pool = PoolKey(namespace=namespace, name=name)

        async def ask(sight: Sight) -> Rollout:
            found = await cluster.read(Target.of_pool(pool))
            return rollout_of(pool, found.spec, found.status, await cluster.revisions(pool))

        return ask

    path, needs = "/pools/{namespace}/{name}/rollout", guard.needs(AccessRole.VIEWER)
    document(routes, path, Rollout, needs, get_rollout, TemplateRevision, lambda found: found.revisions)
    return routes
