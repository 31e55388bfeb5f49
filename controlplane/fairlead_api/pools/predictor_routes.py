"""The models by which a pool's routers predict TTFTs."""

from typing import Protocol

from fastapi import APIRouter

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.http.documents import Ask, document
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.predictors import Predictor, PredictorModel


class PredictorReader(Protocol):
    """Reads the figures of models."""

    async def predictor(self, pool: PoolKey) -> Predictor:
        """The newest models, newest first. Raises NotFound."""


def predictor_routes(guard: Guard, reader: PredictorReader) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/predictor."""
    routes = APIRouter(prefix="/v1", tags=["pools"])
    viewer = guard.needs(AccessRole.VIEWER)

    async def get_predictor(namespace: str, name: str) -> Ask:
        """Models of a learning policy, newest first: how wrong each was, and who chose while it was in use."""
        return lambda sight: reader.predictor(PoolKey(namespace=namespace, name=name))

    document(routes, "/pools/{namespace}/{name}/predictor", Predictor, viewer, get_predictor, PredictorModel, lambda found: found.models)

    return routes
