"""A pool's canary: its steps, and the judge's estimates."""

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.canaries.judging import Judging
from fairlead_api.canaries.store import CanaryReads, PostgresCanaries
from fairlead_api.features import Feature, Infra
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.routes import Routes
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.canaries import Canary, CanaryStep


def canary_routes(guard: Guard, reads: CanaryReads) -> Routes:
    """Return the route of a pool's canary under /v1/pools/{namespace}/{name}."""
    routes = Routes(prefix="/v1/pools/{namespace}/{name}", tags=["pools"])
    viewer = guard.needs(AccessRole.VIEWER)

    async def get_canary(namespace: str, name: str) -> Ask:
        """The newest 20 steps of the pool's canaries. Each has the judge's estimates and the bounds of these estimates
        over time.
        """
        return lambda sight: reads.canary(PoolKey(namespace=namespace, name=name))

    document(routes, "/canary", Canary, viewer, get_canary, CanaryStep, lambda found: found.steps)
    return routes


def judging_of(infra: Infra) -> Judging:
    """Return the job that judges the steps in force."""
    return Judging(PostgresCanaries(infra.background))


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature that serves canaries."""
    return Feature(routes=(canary_routes(guard, CanaryReads(infra.reads)),))
