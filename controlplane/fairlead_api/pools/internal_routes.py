"""Pools as the operator reports them (role system-operator), and the models that routers train (role system-router)."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from fairlead.errors import InvalidInput
from fairlead.pool_states import HeldPools, PoolEvents, PoolObservations, PoolState, UnheardPools
from fairlead.reports.predictors import LARGEST_MODEL_BYTES, SharedModel, TrainedModel
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard, understood
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import MalformedBody, described
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import check_time
from fairlead_api.pools.mirroring import PoolMirroring
from fairlead_api.pools.store.predictors import PostgresPredictors
from fairlead_client import internal_paths
from fairlead_client.resources.access import AccessRole
from fairlead_process.json_documents import decode_json

_trained_model = msgspec.json.Decoder(TrainedModel)


def internal_routes(guard: Guard, mirroring: PoolMirroring, predictors: PostgresPredictors, clock: Callable[[], datetime]) -> APIRouter:
    """The endpoints of pools at `fairlead_client.internal_paths`."""
    routes = APIRouter(tags=["internal"], dependencies=[Depends(understood)])
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_OPERATOR))]  # noqa: N806 - it is a type
    Router = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_ROUTER))]  # noqa: N806 - it is a type

    @routes.put(internal_paths.POOL_STATE)
    async def put_state(namespace: str, name: str, state: PoolState, caller: Operator) -> PoolObservations:
        """The operator's whole view of a pool; sending it again changes nothing.

        Answers 409 when it is older than the stored one.
        """
        return await mirroring.take_state(PoolKey(namespace=namespace, name=name), state, clock())

    @routes.post(internal_paths.POOL_EVENTS, status_code=204)
    async def post_events(namespace: str, name: str, body: PoolEvents, caller: Operator) -> None:
        """Actions and refusals of the operator; an event that is sent again is stored once."""
        for number, event in enumerate(body.events):
            check_time(f"events[{number}].at", event.at)
        await mirroring.take_events(PoolKey(namespace=namespace, name=name), body.events, caller.identity.subject, clock())

    @routes.delete(internal_paths.POOL, status_code=204)
    async def delete_pool(namespace: str, name: str, caller: Operator) -> None:
        """The object was deleted; repeating it changes nothing."""
        await mirroring.delete(PoolKey(namespace=namespace, name=name), caller.identity.subject, clock())

    @routes.get(internal_paths.HELD_POOLS)
    async def get_held_pools(caller: Operator) -> HeldPools:
        """The pools for which live routers hold requests: what the operator is to start instances for."""
        return await mirroring.held_pools()

    @routes.get(internal_paths.UNHEARD_POOLS)
    async def get_unheard_pools(seconds: Annotated[float, Query(ge=0, le=86_400)], caller: Operator) -> UnheardPools:
        """Lists pools without a state report for this many seconds; an operator reports which of them are gone."""
        return await mirroring.unheard_pools(seconds, clock())

    @routes.post(internal_paths.PREDICTOR_MODELS, status_code=204, openapi_extra=described(TrainedModel))
    async def post_model(request: Request, caller: Router) -> None:
        """A model that a router has trained; one that is sent again is stored once."""
        try:
            model = decode_json(await request.body(), _trained_model)
        except msgspec.ValidationError as error:
            raise InvalidInput("model", "the body", f"send a TrainedModel: {error}") from None
        except msgspec.DecodeError as error:
            raise MalformedBody(str(error)) from None
        await guard.require_router(request, caller, model.figures.router)
        check_time("at", model.at)
        if len(model.content) > LARGEST_MODEL_BYTES:
            raise InvalidInput("content", f"{len(model.content)} bytes", f"send at most {LARGEST_MODEL_BYTES}")
        await predictors.store(model, clock())

    @routes.get(internal_paths.PREDICTOR_MODELS, response_model=SharedModel)
    async def get_model(namespace: str, name: str, caller: Router) -> Response:
        """The newest model of a pool, for a router that has none."""
        return answer(await predictors.newest(PoolKey(namespace=namespace, name=name)))

    return routes
