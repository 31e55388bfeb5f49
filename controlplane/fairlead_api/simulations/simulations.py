"""Use cases: ask for a simulation, cancel it, and plan its best policy."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_api.infra.spans import Span
from fairlead_api.plans.plans import Plans
from fairlead_api.plans.stored_plans import Expected
from fairlead_api.simulations.asking import Inputs, PoolAtPresent, inputs_of
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plans import Plan, PlanKind, PlanRequest
from fairlead_client.resources.simulations import (
    MOST_REQUESTS,
    MOST_SIMULATED,
    Simulation,
    SimulationItem,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationState,
)


class SimulationStore(Protocol):
    """Simulations in the database. All raise NotFound for a pool that does not live."""

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent:
        """Raises NotFound also for a pool whose spec was never usable."""

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int:
        """How many requests were recorded in the window, counted up to `most`."""

    async def add(self, pool: PoolKey, simulation_id: str, inputs: Inputs, total: int, draft: AuditDraft, now: datetime) -> Simulation:
        """Raises Conflict (simulation-running) while another one of the pool is not at its end."""

    async def simulations(self, pool: PoolKey, span: Span) -> Page[SimulationItem]: ...

    async def get(self, pool: PoolKey, simulation_id: str) -> Simulation:
        """Raises NotFound."""

    async def cancel(self, pool: PoolKey, simulation_id: str, draft: AuditDraft, now: datetime) -> Simulation:
        """Ends it unless it has ended. Raises NotFound."""


class Simulations:
    """Simulations of pools; callers' roles are checked before these methods are called. `enabled`: some process
    simulates.
    """

    def __init__(
        self, store: SimulationStore, plans: Plans, policies: PolicyCatalogue, new_id: Callable[[], str], *, enabled: bool
    ) -> None:
        self._store = store
        self._plans = plans
        self._policies = policies
        self._new_id = new_id
        self._enabled = enabled

    async def ask(self, pool: PoolKey, request: SimulationRequest, caller: Caller, now: datetime) -> Simulation:
        """Queues a simulation. Raises InvalidInput, Conflict (simulation-running, simulations-disabled)."""
        if not self._enabled:
            raise Conflict(
                "simulations-disabled",
                "this control API simulates nothing; run it by `fairlead api`, with FAIRLEAD_SIMULATION_PROCESSES of 1 or more",
            )
        inputs = inputs_of(request, await self._store.present(pool, now), self._policies, now)
        runs = len(inputs.policies) * len(inputs.rates)
        requests = len(inputs.trace or ())
        if inputs.window is not None:
            requests = await self._store.recorded(pool, *inputs.window, most_requests(runs))
            if requests < 2:
                remedy = "choose a window with traffic, or upload a trace; routers record with FAIRLEAD_RECORD_TRAFFIC above 0"
                raise InvalidInput("start", request.start, f"{requests} requests were recorded from then to `end`; {remedy}")
        elif requests > most_requests(runs):
            raise InvalidInput("trace", requests, f"write at most {most_requests(runs):,} requests for {runs} runs")
        simulation_id = self._new_id()
        asked = {"simulation": simulation_id, "policies": [one.policy for one in inputs.policies], "rates": inputs.rates}
        draft = replace(caller.draft(AuditAction.SIMULATION_CREATED, str(pool)), after=asked)
        return await self._store.add(pool, simulation_id, inputs, requests * runs, draft, now)

    async def simulations(self, pool: PoolKey, span: Span) -> Page[SimulationItem]:
        return await self._store.simulations(pool, span)

    async def get(self, pool: PoolKey, simulation_id: str) -> Simulation:
        return await self._store.get(pool, simulation_id)

    async def cancel(self, pool: PoolKey, simulation_id: str, caller: Caller, now: datetime) -> Simulation:
        """Cancels it; one that has ended stays as it is."""
        draft = replace(caller.draft(AuditAction.SIMULATION_CANCELLED, str(pool)), after={"simulation": simulation_id})
        return await self._store.cancel(pool, simulation_id, draft, now)

    async def plan(self, pool: PoolKey, simulation_id: str, request: SimulationPlanRequest, caller: Caller, now: datetime) -> Plan:
        """A plan of kind `policy` for one of its policies. Raises Conflict (simulation-not-done), InvalidInput."""
        found = await self._store.get(pool, simulation_id)
        if found.state is not SimulationState.DONE or found.winner is None:
            raise Conflict("simulation-not-done", f"simulation {simulation_id} is {found.state}; only a done one can be planned from")
        place = found.winner if request.policy is None else request.policy
        if not 0 <= place < len(found.policies):
            raise InvalidInput("policy", place, f"write the place of a policy, 0 to {len(found.policies) - 1}")
        chosen = found.policies[place]
        fields = {"policy": chosen.policy, "parameters": chosen.parameters}
        asked = PlanRequest(kind=PlanKind.POLICY, fields=fields)
        return await self._plans.plan(pool, asked, caller, now, expected=expected_of(found, place))


def most_requests(runs: int) -> int:
    """Maximum number of requests per run of a simulation with `runs` runs."""
    return min(MOST_REQUESTS, MOST_SIMULATED // runs)


def expected_of(found: Simulation, place: int) -> Expected:
    """What the simulation found of a policy at the rate nearest to the recorded one."""
    chosen = found.policies[place]
    mine = [one for one in found.results if (one.policy, one.parameters) == (chosen.policy, chosen.parameters)]
    one = min(mine, key=lambda result: abs(result.rate - 1.0))
    span = f"recorded from {_minute(found.start)} to {_minute(found.end)}" if found.start and found.end else "of an uploaded trace"
    basis = f"in simulation {found.id} of {one.requests:,} requests {span}, at {one.rate:g} times their rate"
    return Expected(attainment=one.attainment, refusals=one.refused_share, basis=basis)


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
