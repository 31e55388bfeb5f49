"""Changes of a pool: plans, schedules, and the expected effect of a change."""

from fairlead.tables import PoolKey
from fairlead_client.public.calling import ApiCalls, Query, path_of, segment
from fairlead_client.resources.expectations import PlanExpectation
from fairlead_client.resources.forecasts import PoolForecast
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import ApplyRequest, HandOverResult, Plan
from fairlead_client.resources.schedules import InForceAt, ScheduleDetail, ScheduleItem, ScheduleRun
from fairlead_client.resources.simulations import Simulation, SimulationItem, SimulationPlanRequest, SimulationRequest


class PlanCalls(ApiCalls):
    """Calls that make, read, apply and undo plans."""

    async def create_plan(self, pool: PoolKey, request: PlanRequest) -> Plan:
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/plans", Plan, body=request)

    async def create_scale_plan(self, pool: PoolKey, replicas: int) -> Plan:
        return await self.create_plan(pool, PlanRequest(kind=PlanKind.SCALE, replicas=replicas))

    async def plans(self, filters: Query | None = None) -> Page[Plan]:
        return await self._call("GET", "/v1/plans", Page[Plan], query=filters)

    async def plan(self, plan_id: str) -> Plan:
        return await self._call("GET", f"/v1/plans/{segment(plan_id)}", Plan)

    async def plan_expectation(self, plan_id: str) -> PlanExpectation:
        return await self._call("GET", f"/v1/plans/{segment(plan_id)}/expectation", PlanExpectation)

    async def plan_hand_over(self, plan_id: str) -> HandOverResult:
        return await self._call("GET", f"/v1/plans/{segment(plan_id)}/hand-over", HandOverResult)

    async def apply_plan(self, plan_id: str, request: ApplyRequest) -> Plan:
        return await self._call("POST", f"/v1/plans/{segment(plan_id)}/apply", Plan, body=request)

    async def undo_plan(self, plan_id: str) -> Plan:
        return await self._call("POST", f"/v1/plans/{segment(plan_id)}/undo", Plan)

    async def plan_again(self, plan_id: str) -> Plan:
        """Make a new plan of the same change, for the object in its current state."""
        return await self._call("POST", f"/v1/plans/{segment(plan_id)}/again", Plan)

    async def schedules(self, filters: Query | None = None) -> Page[ScheduleItem]:
        return await self._call("GET", "/v1/schedules", Page[ScheduleItem], query=filters)

    async def schedule(self, pool: PoolKey, name: str, *, start: str | None = None) -> ScheduleDetail:
        """Return a schedule with a week of windows; `start` is the beginning of the week, as RFC 3339."""
        return await self._call("GET", f"/v1/schedules/{path_of(pool)}/{segment(name)}", ScheduleDetail, query={"from": start})

    async def bounds(self, pool: PoolKey, *, at: str = "now") -> InForceAt:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/bounds", InForceAt, query={"at": at})

    async def forecast(self, pool: PoolKey) -> PoolForecast:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/forecast", PoolForecast)

    async def schedule_runs(self, filters: Query | None = None) -> Page[ScheduleRun]:
        return await self._call("GET", "/v1/schedule-runs", Page[ScheduleRun], query=filters)

    async def create_simulation(self, pool: PoolKey, request: SimulationRequest) -> Simulation:
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/simulations", Simulation, body=request)

    async def simulations(self, pool: PoolKey, *, cursor: str | None = None, limit: int | None = None) -> Page[SimulationItem]:
        query = {"cursor": cursor, "limit": limit}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/simulations", Page[SimulationItem], query=query)

    async def simulation(self, pool: PoolKey, simulation_id: str) -> Simulation:
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/simulations/{segment(simulation_id)}", Simulation)

    async def cancel_simulation(self, pool: PoolKey, simulation_id: str) -> Simulation:
        return await self._call("DELETE", f"/v1/pools/{path_of(pool)}/simulations/{segment(simulation_id)}", Simulation)

    async def create_simulation_plan(self, pool: PoolKey, simulation_id: str, request: SimulationPlanRequest) -> Plan:
        return await self._call("POST", f"/v1/pools/{path_of(pool)}/simulations/{segment(simulation_id)}/plan", Plan, body=request)
