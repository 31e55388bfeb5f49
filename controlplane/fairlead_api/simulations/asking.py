"""Turns a person's request into a simulation with its engine model, and checks all bounds. Queues and cancels
simulations, and makes plans from their best policy. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from math import isfinite
from typing import Protocol

from fairlead.capabilities import NOTHING_KNOWN, UNKNOWN, EngineCapability, joined, source_words, value_of
from fairlead.engine_specs import SimulatedSpec
from fairlead.errors import InvalidInput, UnknownName
from fairlead.instances import Role
from fairlead.percentages import percentage
from fairlead.pools import TableFacts
from fairlead.reports.traffic import TRAFFIC_BLOCK_TOKENS
from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead.tables import PoolKey
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_api.infra.spans import Span
from fairlead_api.infra.times import parse_time
from fairlead_api.plans.plans import Plans
from fairlead_api.plans.stored_plans import Expected
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.engine_fits import MOST_POINTS, EngineFit, FitAccuracy
from fairlead_client.resources.pages import Page
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import Plan
from fairlead_client.resources.simulations import (
    MOST_INSTANCES,
    MOST_POLICIES,
    MOST_RATES,
    MOST_REQUESTS,
    MOST_RUNS,
    MOST_SIMULATED,
    MOST_UPLOADED,
    EngineModel,
    SimulatedPolicy,
    Simulation,
    SimulationItem,
    SimulationPlanRequest,
    SimulationRequest,
    SimulationState,
    TraceRequest,
)
from fairlead_client.simulation_jobs import SimulatedTarget

LONGEST_SOURCE = 400


def check_fit(fit: EngineFit) -> None:
    """Raises InvalidInput for a fitted engine model that cannot be simulated, or that has unknown fields."""
    fault = fit.costs.fault()
    if fault is not None:
        raise InvalidInput(f"costs.{fault[0]}", fault[1], fault[2])
    if not 1 <= len(fit.source) <= LONGEST_SOURCE or not fit.source.isprintable():
        raise InvalidInput("source", fit.source[:80], f"write what it was fitted to, in 1 to {LONGEST_SOURCE} characters")
    for name, one in (("ttft", fit.ttft), ("tpot", fit.tpot)):
        _check_accuracy(name, one)
    for name, points in (("ttft_points", fit.ttft_points), ("tpot_points", fit.tpot_points)):
        if len(points) > MOST_POINTS or not all(
            isfinite(value) and 0 <= value < 1e6 for one in points for value in (one.real, one.modelled)
        ):
            raise InvalidInput(name, len(points), f"write at most {MOST_POINTS} pairs of seconds")
    for name in ("engines", "requests", "fitted", "contradicting", "at_edges"):
        if not 0 <= getattr(fit, name) < 2**31:
            raise InvalidInput(name, getattr(fit, name), "write a number of requests or engines")


def _check_accuracy(name: str, one: FitAccuracy) -> None:
    for field in fields(one):
        value = getattr(one, field.name)
        if field.name == "correlation":
            if value is not None and not -1.001 <= value <= 1.001:
                raise InvalidInput(f"{name}.correlation", value, "write a number from -1 to 1, or null")
        elif not (isfinite(value) and 0 <= value < 2**31):
            raise InvalidInput(f"{name}.{field.name}", value, "write a number from 0 on")


LONGEST_WINDOW = timedelta(hours=24)
HIGHEST_RATE = 100.0
MOST_TOKENS = 10_000_000
LATEST_MS = 1e15
_MOST = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAtPresent:
    """A pool in its present state: the facts of its spec in force, the number of instances of each role, and the
    weights of the instances that compute prompts. `simulated` describes the engines' behaviour if the pool has
    simulated engines.
    """

    facts: TableFacts
    instances: Mapping[Role, int]
    weights: Sequence[float] = ()
    simulated: SimulatedSpec | None = None
    fit: EngineFit | None = None
    """The engine model that was fitted to the pool's requests; None if there is none."""
    capability: EngineCapability = NOTHING_KNOWN
    """The measured capability of the pool's instances."""
    changed_at: datetime | None = None
    """The time at which the spec was last changed; None if it is not known. Requests recorded before that time do not
    show the pool as it is.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The checked inputs of a simulation. `window` is None if the requests come from `trace`."""

    policies: list[SimulatedPolicy]
    rates: list[float]
    seed: int
    target: SimulatedTarget
    window: tuple[datetime, datetime] | None
    trace: list[TraceRequest] | None


def inputs_of(request: SimulationRequest, pool: PoolAtPresent, policies: PolicyCatalogue, now: datetime) -> Inputs:
    """Return the inputs of the simulation that the request describes. Raises InvalidInput, which names the field of the
    request.
    """
    target = target_of(request, pool, now)
    roles = [Role.BOTH] if target.instances else [Role.PREFILL, Role.DECODE]
    _check_policies(request.policies, roles, policies)
    _check_rates(request.rates)
    if len(request.policies) * len(request.rates) > MOST_RUNS:
        raise InvalidInput("rates", len(request.rates), f"ask for at most {MOST_RUNS} runs: policies ({len(request.policies)}) times rates")
    if not 0 <= request.seed < 2**31:
        raise InvalidInput("seed", request.seed, f"write 0 to {2**31 - 1}")
    if request.trace is not None:
        _check_trace(request.trace)
    return Inputs(
        policies=request.policies,
        rates=request.rates,
        seed=request.seed,
        target=target,
        window=None if request.trace is not None else _window(request, now),
        trace=request.trace,
    )


def _window(request: SimulationRequest, now: datetime) -> tuple[datetime, datetime]:
    start, end = parse_time("start", request.start, now), min(now, parse_time("end", request.end, now))
    if start >= end:
        raise InvalidInput("start", request.start, f"write a time before `end` ({request.end}) and before now")
    if end - start > LONGEST_WINDOW:
        raise InvalidInput("start", request.start, f"choose a window of at most {LONGEST_WINDOW // timedelta(hours=1)} hours")
    return start, end


def _check_policies(asked: Sequence[SimulatedPolicy], roles: list[Role], policies: PolicyCatalogue) -> None:
    if not 1 <= len(asked) <= MOST_POLICIES:
        raise InvalidInput("policies", len(asked), f"write 1 to {MOST_POLICIES} policies")
    for number, one in enumerate(asked):
        field = f"policies[{number}]"
        if one in asked[:number]:
            raise InvalidInput(field, one.policy, "it is named twice; write it once")
        try:
            policies.check_parameters(one.policy, one.parameters)
            policies.check_roles(one.policy, roles)
        except UnknownName as error:
            raise InvalidInput(f"{field}.policy", error.name, f"choose one of {', '.join(sorted(error.known))}") from error
        except InvalidInput as error:
            raise InvalidInput(f"{field}.{error.field.removeprefix('spec.routing.')}", error.value, error.remedy) from error


def _check_rates(rates: Sequence[float]) -> None:
    if not 1 <= len(rates) <= MOST_RATES:
        raise InvalidInput("rates", len(rates), f"write 1 to {MOST_RATES} rates")
    for number, rate in enumerate(rates):
        if not 0.01 <= rate <= HIGHEST_RATE or rate in rates[:number]:
            raise InvalidInput(f"rates[{number}]", rate, f"write multiples of the recorded rate, 0.01 to {HIGHEST_RATE:g}, each once")


def fit_words(fit: EngineFit, now: datetime) -> str:
    """Describe the source, age and error of a fitted engine model, as a note of a simulation."""
    days = (now - fit.fitted_at).days
    age = "today" if days < 1 else "a day ago" if days == 1 else f"{days} days ago"
    return (
        f"Engines: fitted {age} to {fit.source}; on other requests, the mean error was {percentage(fit.ttft.mean_error)} of the mean TTFT and "
        f"{percentage(fit.tpot.mean_error)} of the mean TPOT."
    )


def target_of(request: SimulationRequest, pool: PoolAtPresent, now: datetime) -> SimulatedTarget:
    """Return the pool to simulate. Its engine model is the model that was fitted to the pool's requests, unless the
    pool has simulated engines or the request names another model. Raises InvalidInput for impossible numbers of
    instances.
    """
    facts = pool.facts
    numbers = _instances(request, pool)
    engine = request.engine or (EngineModel.SIMULATED if facts.engine.type == "simulated" else EngineModel.VLLM_8B)
    simulated = pool.simulated if engine is EngineModel.SIMULATED else None
    fit = pool.fit if request.engine is None and engine is not EngineModel.SIMULATED else None
    # simulated engines are as the pool declares them, whatever was seen
    known = facts.engine.declared if simulated is not None else joined(pool.capability, facts.engine.declared)
    step = UNKNOWN if request.trace is not None or request.engine is not None else known.decode_step_seconds
    return SimulatedTarget(
        engine=engine,
        fitted=None if fit is None else fit.costs,
        fit_words="" if fit is None else fit_words(fit, now),
        simulated=simulated,
        **numbers,
        prefill_tokens_per_second=value_of(known.prefill_tokens_per_second),
        speed_source=source_words(known.prefill_tokens_per_second, "prefill"),
        decode_step_seconds=step.observed,
        decode_source=source_words(step, "answer"),
        decoding_instances=pool.instances.get(Role.DECODE, 0) or pool.instances.get(Role.BOTH, 0),
        kv_cache_tokens=round(value_of(known.kv_cache_tokens)),
        prefills_in_flight=facts.routing.prefills_in_flight,
        anchors=facts.anchors_per_instance,
        session_ttl_seconds=facts.session.ttl_seconds,
        early_rejection=facts.early_rejection.mode,
        headroom=facts.early_rejection.headroom,
        slo_ttft_seconds=facts.slo.ttft_seconds,
        slo_tpot_seconds=facts.slo.tpot_seconds,
        weights=_weights(pool.weights, numbers.get("instances") or numbers["prefill_instances"]),
    )


def _weights(present: Sequence[float], count: int) -> list[float]:
    """Return the weights of `count` instances: the present weights, then weight 1 for each additional instance."""
    weights = [*present, *[1.0] * (count - len(present))][:count]
    return weights if any(weight != 1.0 for weight in weights) else []


def _instances(request: SimulationRequest, pool: PoolAtPresent) -> dict[str, int]:
    """Return the numbers of instances to simulate, by field of SimulatedTarget: the requested number of each role, or
    its present number if the request gives none. Raises InvalidInput.
    """
    split = any(role is not Role.BOTH for role in pool.instances)
    wanted = (
        (("prefill_replicas", "prefill_instances", Role.PREFILL), ("decode_replicas", "decode_instances", Role.DECODE))
        if split
        else (("replicas", "instances", Role.BOTH),)
    )
    for name in ("replicas", "prefill_replicas", "decode_replicas"):
        if getattr(request, name) is not None and name not in [one for one, _, _ in wanted]:
            raise InvalidInput(name, getattr(request, name), f"remove it; this pool takes {' and '.join(one for one, _, _ in wanted)}")
    numbers = {}
    for name, field, role in wanted:
        asked = getattr(request, name)
        count = pool.instances.get(role, 0) if asked is None else asked
        if not 1 <= count <= MOST_INSTANCES:
            why = "the pool has none now; " if asked is None and not count else ""
            raise InvalidInput(name, asked, f"{why}write 1 to {MOST_INSTANCES}")
        numbers[field] = count
    return numbers


def _check_trace(trace: Sequence[TraceRequest]) -> None:
    if not 2 <= len(trace) <= MOST_UPLOADED:
        raise InvalidInput("trace", len(trace), f"write 2 to {MOST_UPLOADED:,} requests")
    latest = 0.0
    for number, one in enumerate(trace):
        place = f"trace[{number}]"
        if not latest <= one.timestamp <= LATEST_MS:
            raise InvalidInput(f"{place}.timestamp", one.timestamp, f"write milliseconds in order of time, up to {LATEST_MS:g}")
        latest = one.timestamp
        for name, least in (("input_length", 1), ("output_length", 0)):
            if not least <= getattr(one, name) <= MOST_TOKENS:
                raise InvalidInput(f"{place}.{name}", getattr(one, name), f"write {least} to {MOST_TOKENS:,} tokens")
        needed = -(-one.input_length // TRAFFIC_BLOCK_TOKENS)
        if len(one.hash_ids) != needed:
            remedy = f"write {needed}, one for each {TRAFFIC_BLOCK_TOKENS} tokens of input_length"
            raise InvalidInput(f"{place}.hash_ids", len(one.hash_ids), remedy)
        if not all(0 <= block < _MOST for block in one.hash_ids):
            raise InvalidInput(f"{place}.hash_ids", None, "write whole numbers from 0 to 2**63 - 1")


class SimulationStore(Protocol):
    """Stores simulations in the database. Methods raise NotFound for a pool that does not exist."""

    async def present(self, pool: PoolKey, now: datetime) -> PoolAtPresent:
        """Return the pool in its present state. Raises NotFound, also for a pool whose spec was never usable."""

    async def recorded(self, pool: PoolKey, start: datetime, end: datetime, most: int) -> int:
        """Return the number of requests that were recorded from `start` to `end`, but at most `most`."""

    async def add(self, pool: PoolKey, simulation_id: str, inputs: Inputs, total: int, draft: AuditDraft, now: datetime) -> Simulation:
        """Add a simulation. Raises Conflict (simulation-running) if another simulation of the pool has not finished."""

    async def simulations(self, pool: PoolKey, span: Span) -> Page[SimulationItem]: ...

    async def get(self, pool: PoolKey, simulation_id: str) -> Simulation:
        """Return a simulation. Raises NotFound."""

    async def cancel(self, pool: PoolKey, simulation_id: str, draft: AuditDraft, now: datetime) -> Simulation:
        """Cancel a simulation, unless it has ended. Raises NotFound."""


class Simulations:
    """Simulations of pools that people request. The code that uses this class must first check people's roles.
    `enabled` is True if some process runs simulations.
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
        """Cancel a simulation. A simulation that has ended is left unchanged."""
        draft = replace(caller.draft(AuditAction.SIMULATION_CANCELLED, str(pool)), after={"simulation": simulation_id})
        return await self._store.cancel(pool, simulation_id, draft, now)

    async def plan(self, pool: PoolKey, simulation_id: str, request: SimulationPlanRequest, caller: Caller, now: datetime) -> Plan:
        """Make a plan of kind `policy` that sets one of the simulated policies. Raises Conflict (simulation-not-done),
        InvalidInput.
        """
        found = await self._store.get(pool, simulation_id)
        if found.state is not SimulationState.DONE or found.winner is None:
            raise Conflict("simulation-not-done", f"simulation {simulation_id} is {found.state}; a plan can be made only from a done one")
        place = found.winner if request.policy is None else request.policy
        if not 0 <= place < len(found.policies):
            raise InvalidInput("policy", place, f"write the index of a policy, 0 to {len(found.policies) - 1}")
        chosen = found.policies[place]
        fields = {"policy": chosen.policy, "parameters": chosen.parameters}
        asked = PlanRequest(kind=PlanKind.POLICY, fields=fields)
        return await self._plans.plan(pool, asked, caller, now, expected=expected_of(found, place))


def most_requests(runs: int) -> int:
    """Return the maximum number of requests in each run of a simulation that has `runs` runs."""
    return min(MOST_REQUESTS, MOST_SIMULATED // runs)


def expected_of(found: Simulation, place: int) -> Expected:
    """Return the simulated effect of the policy with the index `place`, at the simulated rate nearest to the recorded
    one.
    """
    chosen = found.policies[place]
    mine = [one for one in found.results if (one.policy, one.parameters) == (chosen.policy, chosen.parameters)]
    one = min(mine, key=lambda result: abs(result.rate - 1.0))
    span = f"recorded from {_minute(found.start)} to {_minute(found.end)}" if found.start and found.end else "of an uploaded trace"
    basis = f"in simulation {found.id} of {one.requests:,} requests {span}, at {one.rate:g} times their rate"
    return Expected(attainment=one.attainment, refusals=one.refused_share, basis=basis)


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
