"""`/simulator` and `…/{namespace}/{name}/simulator`: simulations of how other policies would have handled a pool's
traffic.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.pools import PoolDetail, PoolSummary
from fairlead_client.resources.simulations import (
    Simulation,
    SimulationItem,
    SimulationPlanRequest,
    SimulationState,
    TraceRequest,
)
from fairlead_web.drawing import simulation_tables
from fairlead_web.drawing.simulation_tables import Cell, RateTable
from fairlead_web.forms import simulation_forms, uploaded_traces
from fairlead_web.forms.simulation_forms import SimulationForm
from fairlead_web.forms.uploaded_traces import LeftOut
from fairlead_web.frame.health import pain
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.addresses import pool_path, segment, with_query
from fairlead_web.text.paging import Taken
from fairlead_web.text.typed_text import whole_number

AT_WORK = frozenset({SimulationState.QUEUED, SimulationState.RUNNING})
REFUSALS = frozenset({400, 403, 404, 409, 413, 422})
LISTED = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorPage(Context):
    """The page with the simulator's form for a pool, and the pool's simulations; both are None if no pool is chosen."""

    template: ClassVar[str] = "pages/simulator.html"
    shell: Shell
    at: str
    """Path of the simulator page of the chosen pool; empty if no pool is chosen."""
    cut: str
    """A text such as `the first 200 of 260 pools` if not all pools can be chosen; otherwise empty."""
    form: SimulationForm | None
    listing: Listing[SimulationItem] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationPage(Context):
    """The page of one simulation. `other` is a second simulation with which it is compared; `others` are the
    simulations that can be chosen for the comparison.
    """

    template: ClassVar[str] = "pages/simulation.html"
    shell: Shell
    at: str
    found: Simulation
    at_work: bool
    traffic: str
    size: str
    heads: tuple[str, ...]
    tables: list[RateTable]
    command: str
    left_out: list[LeftOut]
    left_out_count: int
    others: list[SimulationItem]
    other: Simulation | None
    compared: list[tuple[str, float, tuple[Cell, ...]]]
    conditions: list[tuple[str, str, str]]
    problem: str | None
    needed: AccessRole


async def index(visit: Visit) -> Response:
    """Show the simulator's form for the chosen pool or, if none is chosen, for the worst pool."""
    listed, wanted = await visit.first_pools(), visit.param("pool")
    name = wanted or next((f"{one.namespace}/{one.name}" for one in sorted(listed.items, key=pain)), None)
    if name is None:
        shell = await visit.shell("Simulator", "simulator", pools=listed)
        return visit.page(SimulatorPage(shell=shell, at="", cut="", form=None, listing=None))
    try:
        key = PoolKey.parse(name)
    except ValueError:
        raise HTTPException(404) from None
    here = replace(visit.here, params={**visit.here.params, "pool": name})
    return await _index(replace(visit, here=here), key, None, listed)


async def of_pool(visit: Visit) -> Response:
    return await _index(visit, visit.pool_key(), None)


async def _index(visit: Visit, key: PoolKey, refused: SimulationForm | None, pools: Taken[PoolSummary] | None = None) -> Response:
    detail, listing = await asyncio.gather(
        visit.api.pool(key, instances=False),
        visit.attempt("simulations", visit.api.simulations(key, cursor=visit.param("cursor"), limit=LISTED)),
    )
    form = refused
    if form is None:
        form = simulation_forms.form_of(detail.spec, [one for one in (visit.param("policy"),) if one])
        earlier = visit.param("again")
        found = await visit.attempt("the earlier simulation", visit.api.simulation(key, earlier)) if earlier else None
        form = simulation_forms.again(form, found) if found else form
    shell = await visit.shell("Simulator", "simulator", pools=pools, summary=detail.pool)
    context = SimulatorPage(shell=shell, at=_at(key), cut=pools.cut_words("pools") if pools else "", form=form, listing=listing)
    return visit.page(context, status=422 if form.problem else 200)


async def run(visit: Visit) -> Response:
    """Request a simulation and redirect to its page. If it is refused, the form is shown with the typed values and the
    reason.
    """
    key, given = visit.pool_key(), await visit.form()
    detail: PoolDetail = await visit.api.pool(key, instances=False)
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    form = simulation_forms.typed(simulation_forms.form_of(detail.spec), texts, [str(one) for one in given.getlist("policy")])
    upload, left_out = given.get("trace"), list[LeftOut]()
    trace: list[TraceRequest] | None = None
    try:
        if isinstance(upload, UploadFile) and upload.filename:
            trace, left_out = uploaded_traces.read_upload(await upload.read())
        made = await visit.api.create_simulation(key, simulation_forms.asked(form, trace))
    except InvalidInput as error:
        return await _index(visit, key, replace(form, problem=str(error)))
    except ApiProblem as error:
        if error.problem.status not in REFUSALS:
            raise
        return await _index(visit, key, replace(form, problem=formats.told(error.problem.detail, error.problem.remedy)))
    return visit.redirect(with_query(_path(key, made.id), {"left_out": uploaded_traces.told(left_out)}))


async def show(visit: Visit) -> Response:
    key, found = visit.pool_key(), await visit.api.simulation(visit.pool_key(), _id(visit))
    if visit.request.headers.get("hx-request") and found.state not in AT_WORK:
        return visit.redirect(visit.here.back)  # it is at its end: results and forms come with the whole page
    return await _show(visit, key, found, None)


async def find(visit: Visit) -> Response:
    """Redirect to the page of a simulation that is given only by its id, whatever its pool is."""
    for one in (await visit.first_pools()).items:
        key = PoolKey(namespace=one.namespace, name=one.name)
        try:
            return visit.redirect(_path(key, (await visit.api.simulation(key, _id(visit))).id))
        except ApiProblem as error:
            if error.problem.status != 404:
                raise
    raise HTTPException(404)


async def cancel(visit: Visit) -> Response:
    """Cancel a simulation. A simulation that has ended is left unchanged."""
    key = visit.pool_key()
    try:
        found = await visit.api.cancel_simulation(key, _id(visit))
    except ApiProblem as error:
        return await _refused(visit, key, error)
    return visit.redirect(_path(key, found.id))


async def plan(visit: Visit) -> Response:
    """Make a plan for one of the simulated policies and redirect to it. Nothing is applied."""
    key, place = visit.pool_key(), str((await visit.form()).get("policy", ""))
    try:
        made = await visit.api.create_simulation_plan(key, _id(visit), SimulationPlanRequest(policy=whole_number(place)))
    except ApiProblem as error:
        return await _refused(visit, key, error)
    return visit.redirect(f"/plans/{made.id}")


async def _refused(visit: Visit, key: PoolKey, error: ApiProblem) -> Response:
    if error.problem.status not in REFUSALS or error.problem.status == 404:
        raise error
    found = await visit.api.simulation(key, _id(visit))
    return await _show(visit, key, found, formats.told(error.problem.detail, error.problem.remedy), error.problem.status)


async def _show(visit: Visit, key: PoolKey, found: Simulation, problem: str | None, status: int = 200) -> Response:
    listed, other = await asyncio.gather(
        visit.attempt("simulations", visit.api.simulations(key, limit=LISTED)), _other(visit, key, found, visit.param("with"))
    )
    left_out, left_out_count = uploaded_traces.heard(visit.param("left_out") or "0")
    crumbs = crumbs_below(str(key), Crumb(words="Simulator", path=_at(key)), Crumb(words=found.id))
    shell = await visit.shell(f"Simulation {found.id}", "pools", crumbs=crumbs, pool=str(key), tab="simulator")
    context = SimulationPage(
        shell=shell,
        at=_path(key, found.id),
        found=found,
        at_work=found.state in AT_WORK,
        traffic=simulation_tables.window_words(found),
        size=simulation_tables.size_words(found),
        heads=simulation_tables.HEADS,
        tables=simulation_tables.rate_tables(found),
        command=simulation_tables.command_of(found),
        left_out=left_out,
        left_out_count=left_out_count,
        others=[one for one in (listed.items if listed else []) if one.state is SimulationState.DONE and one.id != found.id],
        other=other,
        compared=simulation_tables.compared(found, other) if other else [],
        conditions=simulation_tables.conditions(found, other) if other else [],
        problem=problem,
        needed=PlanKind.POLICY.facts.role,
    )
    return visit.page(context, status=status)


async def _other(visit: Visit, key: PoolKey, found: Simulation, wanted: str | None) -> Simulation | None:
    if not wanted or wanted == found.id or found.state is not SimulationState.DONE:
        return None
    return await visit.attempt(f"simulation {wanted}", visit.api.simulation(key, wanted))


def _at(key: PoolKey) -> str:
    return f"{pool_path(str(key))}/simulator"


def _path(key: PoolKey, simulation: str) -> str:
    return f"{_at(key)}/{segment(simulation)}"


def _id(visit: Visit) -> str:
    return str(visit.request.path_params["run"])


SIMULATOR, ONE = f"{POOL}/simulator", f"{POOL}/simulator/{{run}}"
ROUTES = Routes(
    pages={
        "/simulator": index,
        "/simulator/{run}": find,
        SIMULATOR: of_pool,
        **dict.fromkeys((ONE, f"{ONE}/cancel", f"{ONE}/plan"), show),
    },
    writes={SIMULATOR: run, f"{ONE}/cancel": cancel, f"{ONE}/plan": plan},
)
