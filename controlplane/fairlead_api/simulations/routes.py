"""Routes of what-if: simulations of a pool with recorded traffic, and plans made from them. Also routes of the engine
model with which a pool is simulated, and of the requests to which that model is fitted.
"""

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Depends, HTTPException, Query, Request

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import MalformedBody, described, known_fields
from fairlead_api.http.listing import Fetch, listing
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.times import parse_time
from fairlead_api.plans.plans import Plans
from fairlead_api.plans.store.evidence import PostgresEvidence
from fairlead_api.simulations.asking import Simulations, check_fit
from fairlead_api.simulations.expectations import Expectations
from fairlead_api.simulations.processes import Simulating
from fairlead_api.simulations.store.engine_fits import PostgresEngineFits
from fairlead_api.simulations.store.simulations import PostgresSimulations
from fairlead_api.simulations.store.sizings import PostgresSizings
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.engine_fits import EngineFit, PoolEngine, ServedRequests
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.simulations import (
    SimulatedPolicy,
    Simulation,
    SimulationItem,
    SimulationPlanRequest,
    SimulationRequest,
    TraceRequest,
)
from fairlead_process.json_documents import decode_json


class EngineFits:
    """The engine models fitted to pools. The code that uses this class must first check people's roles."""

    def __init__(self, store: PostgresEngineFits) -> None:
        self._store = store

    async def engine(self, pool: PoolKey) -> PoolEngine:
        return await self._store.engine(pool)

    async def store(self, pool: PoolKey, fit: EngineFit, caller: Caller, now: datetime) -> PoolEngine:
        """Use this engine model for simulations of the pool from now on. Raises InvalidInput."""
        check_fit(fit)
        errors = {"source": fit.source, "ttft_error": fit.ttft.mean_error, "tpot_error": fit.tpot.mean_error}
        draft = replace(caller.draft(AuditAction.ENGINE_FITTED, str(pool)), after=errors)
        return await self._store.store(pool, fit, draft, now)

    async def forget(self, pool: PoolKey, caller: Caller, now: datetime) -> PoolEngine:
        """Remove the fitted engine model, so that the pool is simulated with a preset again."""
        return await self._store.store(pool, None, caller.draft(AuditAction.ENGINE_FITTED, str(pool)), now)

    async def served(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> ServedRequests:
        return await self._store.served(pool, start, end, most)


MOST_BYTES = 32 * 1024 * 1024
"""Maximum number of bytes of a request for a simulation, including its trace."""
_PATH = "/pools/{namespace}/{name}/simulations"
_document = msgspec.json.Decoder()
_NAMES = {kind: [field.name for field in fields(kind)] for kind in (SimulationRequest, SimulatedPolicy, TraceRequest)}


def simulation_routes(guard: Guard, simulations: Simulations, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/pools/{namespace}/{name}/simulations."""
    routes = Routes(prefix="/v1", tags=["simulations"])
    viewer = guard.needs(AccessRole.VIEWER)
    Viewer = Annotated[Caller, Depends(viewer)]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    async def of_pool(namespace: str, name: str) -> Fetch:
        return lambda span: simulations.simulations(PoolKey(namespace=namespace, name=name), span)

    listing(routes, _PATH, SimulationItem, viewer, of_pool, by="-created_at")

    @routes.post(_PATH, status_code=202, response_model=Simulation, openapi_extra=described(SimulationRequest))
    async def create_simulation(namespace: str, name: str, request: Request, caller: Operator) -> Any:
        """Queues a simulation of the pool under other policies. Each pool has at most one unfinished simulation."""
        asked = decode_request(await _body(request))
        return answer(await simulations.ask(PoolKey(namespace=namespace, name=name), asked, caller, clock()), 202)

    @routes.get(f"{_PATH}/{{simulation_id}}", response_model=Simulation)
    async def get_simulation(namespace: str, name: str, simulation_id: str, caller: Viewer) -> Any:
        """A simulation with its progress, and its results once it is done."""
        return answer(await simulations.get(PoolKey(namespace=namespace, name=name), simulation_id))

    @routes.delete(f"{_PATH}/{{simulation_id}}", response_model=Simulation)
    async def cancel_simulation(namespace: str, name: str, simulation_id: str, caller: Operator) -> Any:
        """Cancels a simulation. A simulation that has ended is left unchanged."""
        return answer(await simulations.cancel(PoolKey(namespace=namespace, name=name), simulation_id, caller, clock()))

    @routes.post(
        f"{_PATH}/{{simulation_id}}/plan",
        status_code=201,
        response_model=Plan,
        dependencies=[Depends(known_fields(SimulationPlanRequest))],
    )
    async def create_plan_of_simulation(
        namespace: str, name: str, simulation_id: str, body: SimulationPlanRequest, request: Request, caller: Operator
    ) -> Any:
        """Makes a plan that gives the pool a policy of a finished simulation, by default the best policy. The pool
        itself is not changed.
        """
        pool = PoolKey(namespace=namespace, name=name)
        await guard.require(request, caller, PlanKind.POLICY.facts.role, str(pool))
        return answer(await simulations.plan(pool, simulation_id, body, caller, clock()), 201)

    return routes


def decode_request(content: bytes) -> SimulationRequest:
    """Decode a request for a simulation. Raises MalformedBody if the body is not JSON, InvalidInput if it is not a
    valid request.
    """
    try:
        document = decode_json(content, _document)
        _check_names("", document, SimulationRequest)
        for field, kind in (("policies", SimulatedPolicy), ("trace", TraceRequest)):
            rows = document.get(field)
            for number, row in enumerate(rows if isinstance(rows, list) else ()):
                _check_names(f"{field}[{number}].", row, kind)
        return msgspec.convert(document, SimulationRequest)
    except msgspec.ValidationError as error:
        message, _, path = str(error).rpartition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise InvalidInput(field if field[:1].isalpha() else "body", None, message or str(error)) from error
    except msgspec.DecodeError as error:
        raise MalformedBody(str(error)) from error


def _check_names(place: str, document: Any, kind: type[Any]) -> None:
    if not isinstance(document, dict):
        raise InvalidInput(place.rstrip(".") or "body", None, "write an object")
    for name in document:
        if name not in _NAMES[kind]:
            raise InvalidInput(f"{place}{name}", None, f"remove it; known fields: {', '.join(_NAMES[kind])}")


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises HTTPException 413 if the body is larger than MOST_BYTES."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise HTTPException(413, f"the body is larger than {MOST_BYTES // 1024 // 1024} MiB; upload a shorter trace")
    return bytes(content)


MOST_SERVED = 5_000
_POOL = "/pools/{namespace}/{name}"


def engine_fit_routes(guard: Guard, engine_fits: EngineFits, clock: Callable[[], datetime]) -> Routes:
    """Return the routes of /v1/pools/{namespace}/{name}/engine and of served-requests."""
    routes = Routes(prefix="/v1", tags=["simulations"])
    Viewer = Annotated[Caller, Depends(guard.needs(AccessRole.VIEWER))]  # noqa: N806 - it is a type
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    @routes.get(f"{_POOL}/engine", response_model=PoolEngine)
    async def get_engine(namespace: str, name: str, caller: Viewer) -> Any:
        """The engine model with which the pool is simulated, for what-if and for plans: a model fitted to the pool's
        requests, or a preset, which is an estimate.
        """
        return answer(await engine_fits.engine(PoolKey(namespace=namespace, name=name)))

    @routes.put(f"{_POOL}/engine", response_model=PoolEngine, dependencies=[Depends(known_fields(EngineFit))])
    async def put_engine(namespace: str, name: str, body: EngineFit, caller: Operator) -> Any:
        """Sets the engine model with which the pool is simulated from now on; `fairlead engines fit --pool` computes
        it.
        """
        return answer(await engine_fits.store(PoolKey(namespace=namespace, name=name), body, caller, clock()))

    @routes.delete(f"{_POOL}/engine", response_model=PoolEngine)
    async def delete_engine(namespace: str, name: str, caller: Operator) -> Any:
        """Removes the fitted engine model, so that the pool is simulated with a preset again."""
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
        """The newest recorded requests of a time range, with their lengths and how fast an engine served them, but
        without any text.
        """
        now = clock()
        span = parse_time("from", start, now), parse_time("to", end, now)
        return answer(await engine_fits.served(PoolKey(namespace=namespace, name=name), *span, limit))

    return routes


def expectations_of(infra: Infra) -> Expectations:
    """Return the service that simulates the effects of plans."""
    new_id = partial(secrets.token_hex, 8)
    return Expectations(PostgresSizings(infra.control), PostgresEvidence(infra.reads), new_id, enabled=infra.simulates)


def feature(infra: Infra, guard: Guard, plans: Plans) -> Feature:
    """Return the feature of simulations and fitted engine models. Its background job runs queued simulations."""
    new_id, enabled = partial(secrets.token_hex, 8), infra.simulates
    simulations = Simulations(PostgresSimulations(infra.control), plans, infra.policies, new_id, enabled=enabled)
    simulating = Simulating(
        PostgresSimulations(infra.background), secrets.token_hex(8), infra.settings.simulation_processes, infra.simulator
    )
    return Feature(
        routes=(
            simulation_routes(guard, simulations, infra.clock),
            engine_fit_routes(guard, EngineFits(PostgresEngineFits(infra.control)), infra.clock),
        ),
        tasks={"simulations": simulating.run} if enabled else {},
    )
