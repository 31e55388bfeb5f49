"""`…/instances` and `…/instances/{id}`: the instances of a pool, and all known facts about one instance."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.amounts import amount
from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.reconciling.actions import DrainReason
from fairlead.reports.engines import PASSING
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.figures import FiguresByInstance, InstanceFigures
from fairlead_client.resources.instances import CacheKnowledge, InstanceDetail, InstanceSummary, InstanceTransition
from fairlead_client.resources.load_explanations import LoadExplanation
from fairlead_client.resources.moves import Migration
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.plan_kinds import OF_INSTANCES, EngineAction, PlanKind, PlanRequest
from fairlead_client.resources.problems import Problem
from fairlead_web.drawing import findings
from fairlead_web.drawing.charts import even_ticks
from fairlead_web.drawing.explained_figures import FigureRow, figure_rows
from fairlead_web.drawing.learnt_figures import TIMES, Learnt, learnt_of
from fairlead_web.drawing.range_figures import ShownInstance, shown_instance
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text import formats
from fairlead_web.text.facets import Facet, facet
from fairlead_web.text.paging import part_of
from fairlead_web.text.time_ranges import TimeRange, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesPage(Context):
    template: ClassVar[str] = "pages/instances.html"
    shell: Shell
    pool: str
    listing: Listing[InstanceSummary]
    """The page of those instances that match the filters."""
    total: int
    """Number of all instances of the pool, whether they match the filters or not."""
    several_roles: bool
    sort: str
    states: list[Facet]
    may_drain: bool
    drains: dict[str, PlanKind | None]
    """For each instance, the kind of plan that drains it or cancels its drain; None if neither is possible."""
    figures: dict[str, ShownInstance]
    """Each instance's figures over the range; empty if they cannot be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow:
    """One router's knowledge about the instance's prefix cache. `word` names the source of this knowledge, such as KV
    events or the router's own history; `why` gives the reason.
    """

    router: str
    is_followed: bool
    word: str
    why: str
    blocks: int
    lag_seconds: float | None
    answered: int
    exact_share: float | None
    off_share: float | None
    """Number of tokens that the router wrongly assumed to be cached, as a share of all cached tokens; None if no token
    was cached.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBar:
    """A bar for an instance's state during a part of the range; it begins at the position `x`."""

    x: float
    width: float
    state: InstanceState
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage(Context):
    template: ClassVar[str] = "pages/instance.html"
    shell: Shell
    pool: str
    detail: InstanceDetail
    shown: ShownInstance | None
    """The instance's figures over the range; None if they could not be read."""
    passing: frozenset[str]
    """Those conditions of the engine that will end without anyone's action."""
    caches: list[CacheRow]
    learnt: Learnt
    states: list[StateBar]
    state_ticks: tuple[str, ...]
    explained: LoadExplanation | None
    figures: list[FigureRow]
    explained_whole: bool
    """Whether the explanation of the load covers the page's whole range."""
    arrived: list[Migration] | None
    left: list[Migration] | None
    decisions: list[RoutingDecision] | None
    mark: PlanKind | None
    drain: PlanKind | None
    problem: str | None


ROWS = 100
"""Maximum number of rows in the list of instances. It is large, because a row has few elements and people compare the
instances of a pool.
"""
STATES = tuple(InstanceState)
"""Instance states, in the order in which an instance passes through them."""
FOLLOWED = {"current", "incomplete"}
CACHE_WORDS = {
    "current": ("by KV events", "All its KV events were received."),
    "incomplete": ("by KV events and own history", "Some of its KV events were lost."),
    "waiting": ("by own history", "It publishes KV events, but none has arrived yet."),
    "replaying": ("by own history for now", "It was asked to replay KV events that are missing."),
    "disconnected": ("by own history", "Its KV events cannot be reached."),
    "wrong-block-size": ("by own history", "Its KV blocks have another size than those of the pool's other instances."),
    "silent": ("by own history", "It publishes no KV events."),
}
"""For each state of a KnownCache: the source of the router's knowledge, and an explanation."""
STATE_WIDTH = 1080
EXPLAINED = timedelta(hours=1)
"""Maximum length of the range that the explanation covers. If the page's range is longer, only its end is explained,
because little stands out in a long range.
"""
EXPLAINED_METRIC = "pending_prefill_tokens"
ROLES = tuple(Role)
SORTS: dict[str, Callable[[InstanceSummary, InstanceFigures | None], tuple[float | str, ...]]] = {
    "name": lambda instance, _: (instance.id,),
    "role": lambda instance, _: (ROLES.index(instance.role), instance.id),
    "pending": lambda instance, _: (-instance.pending_prefill_tokens, instance.id),
    "running": lambda instance, _: (-instance.running, instance.id),
    "waiting": lambda instance, _: (-instance.waiting, instance.id),
    "kv": lambda instance, _: (-(instance.kv_usage or 0.0), instance.id),
    "sessions": lambda instance, _: (-instance.bound_sessions, instance.id),
    "hits": lambda instance, of: (1.0 if of is None or of.hit_rate is None else -of.hit_rate, instance.id),
    "ttft": lambda instance, of: (2.0 if of is None or of.ttft_attainment is None else of.ttft_attainment, instance.id),
    "state": lambda instance, _: (STATES.index(instance.state), instance.id),
}


async def index(visit: Visit) -> Response:
    """Show a page of the instances that match the filters. The API returns all instances of the pool, so search, state
    filters and order apply to all of them.
    """
    key = visit.pool_key()
    pool, advice = await asyncio.gather(visit.api.pool(key), visit.attempt("advice", visit.api.advice(key)))
    visit = visit.since([pool.pool.created_at])
    asked = visit.range.asked
    ranged = await visit.attempt("figures", visit.api.figures_by_instance(key, start=asked["from"], end=asked["to"]), ["results"])
    sort, state = visit.param("sort") or "name", visit.param("state")
    sort = sort if sort in SORTS else "name"
    wanted = (visit.param("q") or "").lower()
    found = [one for one in pool.instances if (state is None or one.state == state) and wanted in f"{one.id} {one.node or ''}".lower()]
    ordered = sorted(found, key=lambda one: SORTS[sort](one, known_figures(ranged, one.id)))
    listing = part_of(ordered, visit.param("cursor"), ROWS)
    shell = await visit.shell(
        f"Instances of {key}",
        "pools",
        crumbs=crumbs_below(str(key), Crumb(words="Instances")),
        pool=str(key),
        tab="instances",
        ranged=True,
        live="instances",
        findings=findings.first(findings.of_advice(advice.items if advice else ())),
        summary=pool.pool,
    )
    return visit.page(
        InstancesPage(
            shell=shell,
            pool=str(key),
            listing=listing,
            total=len(pool.instances),
            several_roles=len({one.role for one in pool.instances}) > 1,
            sort=sort,
            states=facet(visit.here, "state", (one.state for one in pool.instances)),
            may_drain=shell.may(PlanKind.DRAIN.facts.role),
            drains={one.id: drain_for(one.state, one.reason) for one in listing.items},
            figures={one.id: shown_instance(ranged.of(one.id)) for one in listing.items} if ranged else {},
        )
    )


def known_figures(found: FiguresByInstance | None, instance: str) -> InstanceFigures | None:
    """Return the figures of an instance; None if they are not known for any part of the range."""
    figures = found.of(instance) if found else None
    return figures if figures and figures.known else None


async def show(visit: Visit) -> Response:
    return await _page(visit, None)


async def plan(visit: Visit) -> Response:
    """Request a plan that cordons or drains the instance, ends a cordon or a drain, or removes an engine, and redirect
    to the plan.

    A refusal is shown on the instance's page.
    """
    name, kind = visit.request.path_params["instance"], str((await visit.form()).get("kind", ""))
    if kind == PlanKind.ENGINES:
        asked = PlanRequest(kind=PlanKind.ENGINES, fields={"action": EngineAction.REMOVE.value, "name": name})
    elif kind in OF_INSTANCES:
        asked = PlanRequest(kind=PlanKind(kind), instance=name)
    else:
        raise HTTPException(404)
    try:
        made = await visit.api.create_plan(visit.pool_key(), asked)
    except ApiProblem as error:
        if error.problem.status in {400, 409, 422}:
            return await _page(visit, error.problem)
        raise
    return visit.redirect(f"/plans/{made.id}")


def mark_for(state: InstanceState) -> PlanKind | None:
    """Return the kind of plan that cordons or uncordons an instance in this state; None if neither plan would change
    anything.
    """
    if state is InstanceState.CORDONED:
        return PlanKind.UNCORDON
    return PlanKind.CORDON if state in ACCEPTING else None


def drain_for(state: InstanceState, reason: str) -> PlanKind | None:
    """Return the kind of plan that drains an instance or cancels its drain; None if neither is possible."""
    if state is InstanceState.DRAINING:
        return PlanKind.UNDRAIN if reason == DrainReason.REQUESTED else None
    return PlanKind.DRAIN if state is not InstanceState.GONE else None


async def _page(visit: Visit, problem: Problem | None) -> Response:
    key, name = visit.pool_key(), visit.request.path_params["instance"]
    pool = str(key)
    detail = await visit.api.instance(key, name)
    visit = visit.since([detail.instance.created_at])
    begun = max(visit.range.start, visit.range.end - EXPLAINED)
    asked = visit.range.asked
    found, explained, arrived, left, decisions = await asyncio.gather(
        visit.attempt("figures", visit.api.instance_figures(key, name, start=asked["from"], end=asked["to"]), ["load"]),
        visit.attempt(
            "explanation",
            visit.api.load_explanation(key, name, metric=EXPLAINED_METRIC, start=stamp(begun), end=stamp(visit.range.end)),
            ["why"],
        ),
        visit.attempt(
            "migrations", visit.api.migrations(visit.filters(ranged=True) | {"pool": pool, "target": name, "limit": 8}), ["moves"]
        ),
        visit.attempt(
            "migrations", visit.api.migrations(visit.filters(ranged=True) | {"pool": pool, "source": name, "limit": 8}), ["moves"]
        ),
        visit.attempt(
            "decisions", visit.api.decisions(visit.filters(ranged=True) | {"pool": pool, "instance": name, "limit": 10}), ["chosen"]
        ),
    )
    shell = await visit.shell(
        name,
        "pools",
        crumbs=crumbs_below(pool, Crumb(words="Instances", path=f"/pools/{pool}/instances"), Crumb(words=name)),
        pool=pool,
        tab="instances",
        ranged=True,
        live="instances,migrations",
        findings=(),
        about={"instance": name},
    )
    return visit.page(
        InstancePage(
            shell=shell,
            pool=pool,
            detail=detail,
            shown=shown_instance(found) if found else None,
            passing=PASSING,
            caches=[cache_row(one) for one in detail.caches],
            learnt=learnt_of(detail.learnt, TIMES[detail.instance.role], detail.capability),
            states=state_band(detail.transitions, visit.range),
            state_ticks=even_ticks(visit.range.start, visit.range.end),
            explained=explained,
            figures=figure_rows(explained) if explained else [],
            explained_whole=begun == visit.range.start,
            arrived=arrived.items if arrived else None,
            left=left.items if left else None,
            decisions=decisions.items if decisions else None,
            mark=mark_for(detail.instance.state),
            drain=drain_for(detail.instance.state, detail.instance.reason),
            problem=formats.told(problem.detail, problem.remedy) if problem else None,
        ),
        status=problem.status if problem else 200,
    )


def cache_row(one: CacheKnowledge) -> CacheRow:
    """Return a router's knowledge about a prefix cache as text and shares."""
    word, why = CACHE_WORDS.get(one.state, (one.state, ""))
    if one.gaps:
        lost = f", {one.batches_lost:,} of them for good" if one.batches_lost else ""
        why = f"{why} Batches were missing {amount(one.gaps, 'time')}{lost}.".strip()
    return CacheRow(
        router=one.router,
        is_followed=one.state in FOLLOWED,
        word=word,
        why=why,
        blocks=one.blocks,
        lag_seconds=one.lag_seconds,
        answered=one.answered,
        exact_share=one.exact / one.answered if one.answered else None,
        off_share=one.wrong_tokens / one.cached_tokens if one.cached_tokens else None,
    )


def state_band(transitions: Sequence[InstanceTransition], chosen: TimeRange) -> list[StateBar]:
    """Return the instance's states over the range as bars. `transitions` are in order, the newest first. If several
    transitions have the same time, only the state after the newest of them gets a bar.
    """
    ordered = list(reversed(transitions))
    ordered.sort(key=lambda item: item.at)
    bars: list[StateBar] = []
    for index, item in enumerate(ordered):
        until = ordered[index + 1].at if index + 1 < len(ordered) else chosen.end
        start, end = max(item.at, chosen.start), min(until, chosen.end)
        if end <= start:
            continue
        x = (start - chosen.start).total_seconds() / chosen.seconds * STATE_WIDTH
        width = max(1.0, (end - start).total_seconds() / chosen.seconds * STATE_WIDTH)
        label = f"{item.after} for {formats.span((end - start).total_seconds())}: {item.reason}"
        bars.append(StateBar(x=round(x, 1), width=round(width, 1), state=item.after, label=label))
    return bars


ROUTES = Routes(
    pages={f"{POOL}/instances": index, **dict.fromkeys((f"{POOL}/instances/{{instance}}", f"{POOL}/instances/{{instance}}/plans"), show)},
    writes={f"{POOL}/instances/{{instance}}/plans": plan},
    exports={f"{POOL}/instances": Export(name="instances", of_pool=True)},
)
