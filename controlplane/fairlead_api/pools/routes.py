"""Routes of pools, their instances, revisions, events and rings, and of the models with which their routers predict
TTFTs.

The operator reports pools (role system-operator), and routers share the models they train (role system-router).
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query, Request, Response

from fairlead.errors import InvalidInput
from fairlead.pool_states import HeldPools, PoolEvents, PoolObservations, PoolState, UnheardPools
from fairlead.reports.predictors import LARGEST_MODEL_BYTES, SharedModel, TrainedModel
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.routing.knowledge.rings import key_shares
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard, understood
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import MalformedBody, described
from fairlead_api.http.documents import Ask, document
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.spans import Sight
from fairlead_api.infra.times import check_time
from fairlead_api.pools.rings import RingQuestion, ring_of
from fairlead_api.pools.store.mirror import PostgresPools
from fairlead_api.pools.store.predictors import PostgresPredictors
from fairlead_api.pools.store.reads import PostgresPoolHistory, PostgresPoolReads, PostgresRings
from fairlead_api.pools.store.summaries import LastMinutes
from fairlead_client import internal_paths
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.instances import InstanceDetail, InstanceSummary
from fairlead_client.resources.pools import PoolDetail, PoolEventItem, PoolRevision, PoolSummary
from fairlead_client.resources.predictors import Predictor, PredictorModel
from fairlead_client.resources.rings import Ring, RingInstance
from fairlead_process.json_documents import decode_json


def ring_routes(guard: Guard, reader: PostgresRings, policies: PolicyCatalogue) -> Routes:
    """Return the route GET /v1/pools/{namespace}/{name}/ring."""
    routes = Routes(prefix="/v1", tags=["pools"])

    async def get_ring(
        namespace: str,
        name: str,
        add: int = 0,
        remove: Annotated[list[str] | None, Query()] = None,
        anchors: int | None = None,
    ) -> Ask:
        """Anchors of the hash ring and shares of its keys, and the effect of a hypothetical change: `add` more
        instances, `remove` named instances (may be repeated), or set another number of `anchors` per instance.
        """
        question = RingQuestion(add=add, remove=tuple(remove or ()), anchors=anchors)

        async def ask(sight: Sight) -> Ring:
            table, per_instance, bound = await reader.ring(PoolKey(namespace=namespace, name=name))
            return await asyncio.to_thread(ring_of, table, per_instance, bound, policies, question)

        return ask

    path, needs = "/pools/{namespace}/{name}/ring", guard.needs(AccessRole.VIEWER)
    document(routes, path, Ring, needs, get_ring, RingInstance, lambda found: found.instances)
    return routes


def predictor_routes(guard: Guard, reader: PostgresPredictors) -> Routes:
    """Return the route GET /v1/pools/{namespace}/{name}/predictor."""
    routes = Routes(prefix="/v1", tags=["pools"])
    viewer = guard.needs(AccessRole.VIEWER)

    async def get_predictor(namespace: str, name: str) -> Ask:
        """The models of a learning policy, newest first, with each model's errors, and how often decisions were based
        on the models' predictions or on the heuristic.
        """
        return lambda sight: reader.predictor(PoolKey(namespace=namespace, name=name))

    document(routes, "/pools/{namespace}/{name}/predictor", Predictor, viewer, get_predictor, PredictorModel, lambda found: found.models)

    return routes


def pool_routes(
    guard: Guard,
    reader: PostgresPoolReads,
    history: PostgresPoolHistory,
    clock: Callable[[], datetime],
) -> Routes:
    """Return the routes under /v1/pools that only read."""
    routes = Routes(prefix="/v1", tags=["pools"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type

    async def all_pools() -> Fetch:
        return lambda span: reader.pools(span, clock())

    async def instances(namespace: str, name: str) -> Fetch:
        return lambda span: reader.instances(PoolKey(namespace=namespace, name=name), span, clock())

    async def revisions(namespace: str, name: str) -> Fetch:
        return lambda span: history.revisions(PoolKey(namespace=namespace, name=name), span)

    async def events(namespace: str, name: str) -> Fetch:
        return lambda span: history.events(PoolKey(namespace=namespace, name=name), span)

    listing(routes, "/pools", PoolSummary, guard.needs(AccessRole.VIEWER, somewhere=True), all_pools, by="name")
    listing(routes, "/pools/{namespace}/{name}/instances", InstanceSummary, viewer, instances, by="id")
    listing(routes, "/pools/{namespace}/{name}/revisions", PoolRevision, viewer, revisions, by="-number")
    listing(routes, "/pools/{namespace}/{name}/events", PoolEventItem, viewer, events, by="-at")

    @routes.get("/pools/{namespace}/{name}", response_model=PoolDetail)
    async def get_pool(namespace: str, name: str, caller: Viewer, instances: bool = True) -> Any:
        """A pool with its spec, conditions and existing instances. With `instances=false` the list of instances is
        empty, which makes the response for a large pool much smaller.
        """
        return answer(await reader.pool(PoolKey(namespace=namespace, name=name), clock(), instances=instances))

    @routes.get("/pools/{namespace}/{name}/instances/{instance}", response_model=InstanceDetail)
    async def get_instance(namespace: str, name: str, instance: str, caller: Viewer) -> Any:
        """An instance, even if it is gone, with its newest 500 transitions between states."""
        return answer(await reader.instance(PoolKey(namespace=namespace, name=name), instance, clock()))

    return routes


def pools_of(infra: Infra) -> PostgresPoolReads:
    """Return the store of the pools' current state."""
    return PostgresPoolReads(infra.reads, infra.present, LastMinutes(infra.reads, infra.recent))


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of pools, which people read and the operator reports; and of prediction models, which routers
    report and read.
    """
    return Feature(
        routes=(
            pool_routes(guard, pools_of(infra), PostgresPoolHistory(infra.reads), infra.clock),
            ring_routes(guard, PostgresRings(infra.reads), infra.policies),
            predictor_routes(guard, PostgresPredictors(infra.reads, infra.policies)),
            internal_routes(
                guard,
                PostgresPools(infra.control, key_shares, infra.lost_commits),
                PostgresPredictors(infra.reports, infra.policies),
                infra.clock,
            ),
        )
    )


_trained_model = msgspec.json.Decoder(TrainedModel)


def internal_routes(guard: Guard, pools: PostgresPools, predictors: PostgresPredictors, clock: Callable[[], datetime]) -> Routes:
    """Return the internal endpoints of pools, at the paths of `fairlead_client.internal_paths`."""
    routes = Routes(tags=["internal"], dependencies=[Depends(understood)])
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_OPERATOR))]  # noqa: N806 - it is a type
    Router = Annotated[Caller, Depends(guard.needs(AccessRole.SYSTEM_ROUTER))]  # noqa: N806 - it is a type

    @routes.put(internal_paths.POOL_STATE)
    async def put_state(namespace: str, name: str, state: PoolState, caller: Operator) -> PoolObservations:
        """Stores the whole state of a pool as the operator reports it. The same state, sent again, changes nothing.

        Responds with 409 if the state is older than the stored one.
        """
        return await pools.mirror(PoolKey(namespace=namespace, name=name), state, clock())

    @routes.post(internal_paths.POOL_EVENTS, status_code=204)
    async def post_events(namespace: str, name: str, body: PoolEvents, caller: Operator) -> None:
        """Stores events about the operator's actions and refusals. An event that is sent again is stored once."""
        for number, event in enumerate(body.events):
            check_time(f"events[{number}].at", event.at)
        await pools.add_events(PoolKey(namespace=namespace, name=name), body.events, caller.identity.subject, clock())

    @routes.delete(internal_paths.POOL, status_code=204)
    async def delete_pool(namespace: str, name: str, caller: Operator) -> None:
        """Records that the pool's object was deleted. Repeating the call changes nothing."""
        await pools.delete(PoolKey(namespace=namespace, name=name), caller.identity.subject, clock())

    @routes.get(internal_paths.HELD_POOLS)
    async def get_held_pools(caller: Operator) -> HeldPools:
        """The pools for which live routers hold requests; the operator starts instances for them."""
        return HeldPools(pools=await pools.held_pools())

    @routes.get(internal_paths.UNHEARD_POOLS)
    async def get_unheard_pools(seconds: Annotated[float, Query(ge=0, le=86_400)], caller: Operator) -> UnheardPools:
        """Lists the pools about which no state was reported for the given number of seconds. An operator then reports
        which of these pools no longer exist.
        """
        return UnheardPools(pools=await pools.unheard_pools(clock() - timedelta(seconds=seconds)))

    @routes.post(internal_paths.PREDICTOR_MODELS, status_code=204, openapi_extra=described(TrainedModel))
    async def post_model(request: Request, caller: Router) -> None:
        """Stores a prediction model that a router has trained. A model that is sent again is stored once."""
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
        """The newest prediction model of a pool, for a router that has no model yet."""
        return answer(await predictors.newest(PoolKey(namespace=namespace, name=name)))

    return routes
