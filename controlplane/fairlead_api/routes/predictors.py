"""The models by which a pool's routers predict TTFTs."""

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends

from fairlead.tables import PoolKey
from fairlead_api.routes.answers import answer
from fairlead_api.routes.guards import Guard
from fairlead_api.services.access.access import Caller
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.predictors import Predictor


class PredictorReader(Protocol):
    """Reads the figures of models."""

    async def predictor(self, pool: PoolKey) -> Predictor:
        """The newest models, newest first. Raises NotFound."""


def predictor_routes(guard: Guard, reader: PredictorReader) -> APIRouter:
    """GET /v1/pools/{namespace}/{name}/predictor."""
    routes = APIRouter(prefix="/v1", tags=["pools"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type

    @routes.get("/pools/{namespace}/{name}/predictor", response_model=Predictor)
    async def get_predictor(namespace: str, name: str, caller: Viewer) -> Any:
        """Models of a learning policy, newest first: how wrong each was, and who chose while it was in use."""
        return answer(await reader.predictor(PoolKey(namespace=namespace, name=name)))

    return routes
