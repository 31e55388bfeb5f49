"""Simulations over HTTP. Each read of a simulation advances it, and equal requests give equal numbers."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairlead_api.simulations.running import winner_of
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.simulations import (
    Simulation,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationResult,
    SimulationState,
)
from fairlead_testing.fakes.public_api.access import Access
from fairlead_testing.fakes.public_api.answers import Endpoint, Refusal, as_json, list_routes
from fairlead_testing.fakes.public_api.plan_book import PlanBook
from fairlead_testing.fakes.public_api.pools import POOL, pool_named
from fairlead_testing.fakes.public_data.loads import INSTANCES

REQUESTS = 36_000
AT_WORK = (SimulationState.QUEUED, SimulationState.RUNNING)


class SimulationsOfPools:
    """The simulations of all pools. A simulation is done after `looks` reads."""

    def __init__(self, book: PlanBook, access: Access, clock: Callable[[], datetime]) -> None:
        self._book = book
        self._access = access
        self._clock = clock
        self.looks = 3
        self.known: dict[str, Simulation] = {}
        self.asked: list[SimulationRequest] = []

    def routes(self, guard: Callable[..., Endpoint]) -> list[Route]:
        at = f"{POOL}/simulations"
        return [
            Route(at, guard(self._create, AccessRole.OPERATOR), methods=["POST"]),
            *list_routes(at, self._listed, guard),
            Route(f"{at}/{{simulation}}", guard(self._show), methods=["GET"]),
            Route(f"{at}/{{simulation}}", guard(self._cancel, AccessRole.OPERATOR), methods=["DELETE"]),
            Route(f"{at}/{{simulation}}/plan", guard(self._plan, AccessRole.ADMIN), methods=["POST"]),
        ]

    async def _create(self, request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=SimulationRequest)
        pool = pool_named(request)
        if any(one.pool == pool and one.state in AT_WORK for one in self.known.values()):
            raise Refusal(409, "Conflict", "another simulation of this pool runs; wait for it or cancel it", "simulation-running")
        if not asked.rates or max(asked.rates) > 100:
            raise Refusal(422, "Not acceptable", f"rates[0]: {asked.rates[0]:g}", "invalid-input", "write 0.01 to 100", "rates[0]")
        return as_json(self._made(pool, asked, self._access.identity(request).subject), 202)

    def simulated(self, pool: str, asked: SimulationRequest) -> Simulation:
        """Make a simulation that is done already."""
        made = self._made(pool, asked, "ada")
        done = self.known[made.id] = _done(replace(made, done=made.total or 0), self._clock())
        return done

    def _made(self, pool: str, asked: SimulationRequest, who: str) -> Simulation:
        self.asked.append(asked)
        now = self._clock()
        requests = REQUESTS if asked.trace is None else len(asked.trace)
        made = Simulation(
            id=f"sim-{len(self.asked):04}",
            pool=pool,
            state=SimulationState.QUEUED,
            created_at=now,
            created_by=who,
            policies=asked.policies,
            rates=asked.rates,
            seed=asked.seed,
            done=0,
            total=requests * len(asked.rates) * len(asked.policies),
            start=None if asked.trace is not None else now - timedelta(hours=1),
            end=None if asked.trace is not None else now,
            replicas=asked.replicas or len(INSTANCES[pool]),
            engine=asked.engine,
            requests=requests,
        )
        self.known[made.id] = made
        return made

    def _listed(self, request: Request) -> list[Simulation]:
        pool = pool_named(request)
        return [one for one in reversed(self.known.values()) if one.pool == pool]

    async def _show(self, request: Request) -> Response:
        found = self._found(request)
        if found.state in AT_WORK and found.total is not None:
            done = min(found.total, found.done + found.total // self.looks)
            found = replace(found, state=SimulationState.RUNNING, done=done, started_at=found.created_at)
            if found.done >= (found.total or 0):
                found = _done(found, self._clock())
            self.known[found.id] = found
        return as_json(found)

    async def _cancel(self, request: Request) -> Response:
        found = self._found(request)
        if found.state in AT_WORK:
            found = self.known[found.id] = replace(found, state=SimulationState.CANCELLED, finished_at=self._clock())
        return as_json(found)

    async def _plan(self, request: Request) -> Response:
        asked, found = msgspec.json.decode(await request.body(), type=SimulationPlanRequest), self._found(request)
        if found.state is not SimulationState.DONE or found.winner is None:
            raise Refusal(409, "Conflict", f"simulation {found.id} is {found.state}", "simulation-not-done")
        chosen = found.policies[found.winner if asked.policy is None else asked.policy]
        change = {"routing": {"policy": chosen.policy, "parameters": chosen.parameters}}
        return as_json(self._book.plan(found.pool, PlanKind.POLICY, change, self._access.identity(request).subject), 201)

    def _found(self, request: Request) -> Simulation:
        found = self.known.get(request.path_params["simulation"])
        if found is None or found.pool != pool_named(request):
            raise Refusal(404, "Not found", f"There is no simulation {request.path_params['simulation']} of this pool.")
        return found


def _done(found: Simulation, now: datetime) -> Simulation:
    results: list[SimulationResult] = []
    for rate in found.rates:
        first = None
        for one in found.policies:
            dice = Random(hashlib.sha256(f"{one.policy}{one.parameters}{rate}{found.seed}".encode()).digest())
            attainment = 0.6 + 0.35 * dice.random()
            first = attainment if first is None else first
            ttft = 0.3 + dice.random()
            results.append(
                SimulationResult(
                    policy=one.policy,
                    parameters=one.parameters,
                    rate=rate,
                    requests_per_second=10.0 * rate,
                    requests=found.requests or 0,
                    served=found.requests or 0,
                    failed=0,
                    attainment=attainment,
                    attainment_change=attainment - first,
                    refused_share=0.02 * dice.random(),
                    ttft_p50=ttft / 2,
                    ttft_p90=2 * ttft,
                    ttft_p99=4 * ttft,
                    tpot_p90=0.04,
                    hit_rate=0.5 * dice.random(),
                    ideal_hit_rate=0.6,
                    migrations=dice.randrange(900),
                    reroutes=0,
                )
            )
    notes = ["Engines: model vllm-h100-8b at 0.9 times its speed, as the pool declares 20000 prompt tokens/s."]
    winner = winner_of(found.policies, results)
    return replace(found, state=SimulationState.DONE, finished_at=now, results=results, winner=winner, notes=notes)
