"""The engine that a pool is simulated by, and the requests that one is fitted to."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_time
from fairlead_api.simulations.engine_fits import EngineFits
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.engine_fits import EngineFit, PoolEngine, ServedRequests

MOST_SERVED = 5_000
_POOL = "/pools/{namespace}/{name}"


def engine_fit_routes(guard: Guard, engine_fits: EngineFits, clock: Callable[[], datetime]) -> APIRouter:
    """/v1/pools/{namespace}/{name}/engine and served-requests."""
    routes = APIRouter(prefix="/v1", tags=["simulations"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    @routes.get(f"{_POOL}/engine", response_model=PoolEngine)
    async def get_engine(namespace: str, name: str, caller: Viewer) -> Any:
        """By which engine what-if and plans simulate the pool: one fitted to its requests, or an estimated preset."""
        return answer(await engine_fits.engine(PoolKey(namespace=namespace, name=name)))

    @routes.put(f"{_POOL}/engine", response_model=PoolEngine, dependencies=[Depends(known_fields(EngineFit))])
    async def put_engine(namespace: str, name: str, body: EngineFit, caller: Operator) -> Any:
        """Simulate the pool by this engine from now on, as `fairlead engines fit --pool` finds it."""
        return answer(await engine_fits.store(PoolKey(namespace=namespace, name=name), body, caller, clock()))

    @routes.delete(f"{_POOL}/engine", response_model=PoolEngine)
    async def delete_engine(namespace: str, name: str, caller: Operator) -> Any:
        """Forget the fit: the pool is simulated by a preset again."""
        return answer(await engine_fits.forget(PoolKey(namespace=namespace, name=name), caller, clock()))

    @routes.get(f"{_POOL}/served-requests", response_model=ServedRequests)
    async def get_served_requests(
        namespace: str,
        name: str,
        caller: Viewer,
        start: Annotated[str, Query(alias="from")] = "now-1h",
        end: Annotated[str, Query(alias="to")] = "now",
        limit: Annotated[int, Query(ge=1, le=MOST_SERVED)] = 2_000,
    ) -> Any:
        """The newest recorded requests of a time, with how an engine served them: lengths and times, no text."""
        now = clock()
        span = parse_time("from", start, now), parse_time("to", end, now)
        return answer(await engine_fits.served(PoolKey(namespace=namespace, name=name), *span, limit))

    return routes
