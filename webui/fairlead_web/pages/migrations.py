"""`/migrations` and `/reroutes`: moves between instances, their reasons and whether they saved more time than they
cost.

The timeline and the flow matrix have the same filters as the list. A migration moves a bound session to another
instance; a re-route sends one request elsewhere. Migrations and re-routes are listed and counted separately.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from starlette.responses import Response

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead.routing.explanations.explaining_moves import cause_facts
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.public.calling import Query
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.figures import RangeFigures
from fairlead_client.resources.moves import Migration, MigrationFlow, MigrationMatrix, MovesEffect, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.sessions import BindingHistoryItem
from fairlead_web.drawing.charts import StackedTimeline, series_of, stacked_timeline
from fairlead_web.drawing.move_steps import MoveStep, NetEffect, net_effect, steps_of
from fairlead_web.drawing.range_figures import ShownFigures, shown
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Export, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import NEWEST_ROWS, Visit
from fairlead_web.text.addresses import Here, pool_path


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """The moves from one instance to another. `heat` (0-9) is the cell's shading, and `url` leads to the list of these
    moves.
    """

    count: int
    heat: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMatrix:
    """A matrix of moves between instances. Rows are sources, columns are targets; both are ordered by their number of
    moves.

    `hidden` is the number of moves of instances that are not shown.
    """

    targets: list[str]
    rows: list[tuple[str, list[MatrixCell | None], int]]
    column_totals: list[int]
    total: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWords:
    """The words for a kind of move, migrations or re-routes.

    `one` and `many` are the nouns for sentences; `topic` is the topic of the live stream and the name in the path.
    """

    one: str
    many: str
    title: str
    topic: str
    about: str
    none: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesPage(Context):
    template: ClassVar[str] = "pages/moves.html"
    shell: Shell
    words: MoveWords
    shown: ShownFigures | None
    """Figures of all moves in the range, whatever the list's other filters are. The charts draw the same figures."""
    triggers: list[str]
    outcomes: list[str]
    listing: Page[Migration] | Page[ReRoute]
    newest: Sequence[Migration | ReRoute]
    timeline: StackedTimeline | None
    matrix: FlowMatrix | None
    """The flow matrix of one pool; None if no pool is chosen, because there are no moves between instances of two
    pools.
    """
    ways: list[MigrationFlow]
    """The pairs of instances with the most moves, for a page without a matrix."""
    counted: int
    effect: MovesEffect | None
    by_trigger: list[tuple[BindingReason, int, int]]
    """For each trigger: the number of its moves, and its colour class."""
    counted_from: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTime:
    """One line in the comparison of predicted and actual TTFT.

    `length` is the line's length in % of the longest line.
    """

    words: str
    seconds: float | None
    length: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePage(Context):
    template: ClassVar[str] = "pages/move.html"
    shell: Shell
    words: MoveWords
    move: Migration | ReRoute
    times: list[MoveTime]
    effect: NetEffect
    cause: list[tuple[str, str]]
    """The recorded figures that caused the move, each as its name and value."""
    steps: list[MoveStep]
    """The steps of a migration; empty for a re-route, which has no steps."""
    decision: RoutingDecision | None


FILTERS = ("pool", "source", "target", "trigger", "outcome", "session", "paid_off")
MATRIX_MOST = 16
WAYS = 10
AROUND = timedelta(minutes=10)
"""Time before and after a move in which the decision about its request is searched."""

MIGRATIONS = MoveWords(
    one="migration",
    many="migrations",
    title="Migrations",
    topic="migrations",
    about="A migration moves a bound session: from then on the session's requests go to the new instance.",
    none="Sessions move when their instance is hot, drained or lost.",
)
REROUTES = MoveWords(
    one="re-route",
    many="re-routes",
    title="Re-routes",
    topic="reroutes",
    about="A re-route sends one queued or unbound request to another instance. No session moves.",
    none="Requests are re-routed when their instance is overloaded, drained or lost before their turn comes.",
)


async def index(visit: Visit) -> Response:
    filters, unpaged = _filters(visit)
    listing, matrix, found = await asyncio.gather(
        visit.api.migrations(filters), visit.attempt("flow matrix", visit.api.migration_matrix(unpaged), ["results"]), _figures(visit)
    )
    return await _page(visit, MIGRATIONS, listing, matrix, found)


async def index_reroutes(visit: Visit) -> Response:
    filters, unpaged = _filters(visit)
    listing, matrix, found = await asyncio.gather(
        visit.api.reroutes(filters), visit.attempt("flow matrix", visit.api.reroute_matrix(unpaged), ["results"]), _figures(visit)
    )
    return await _page(visit, REROUTES, listing, matrix, found)


async def _figures(visit: Visit) -> RangeFigures | None:
    """Return the figures of the pool chosen by the filter, or of all pools if the filter is not set; None if its value
    is not a valid pool name.
    """
    try:
        pool = PoolKey.parse(named) if (named := visit.param("pool")) else None
    except ValueError:
        return None
    return await visit.attempt("figures", _living(visit, pool), ["results"])


async def _living(visit: Visit, pool: PoolKey | None) -> RangeFigures | None:
    try:
        return await visit.figures(pool)
    except ApiProblem as error:
        if error.problem.status == 404:  # what a pool did that is gone is listed, and charts have none of it
            return None
        raise


def _filters(visit: Visit) -> tuple[Query, Query]:
    """Return the filters of the list, and the filters of the timeline and matrix."""
    filters = visit.filters(*FILTERS, ranged=True, results="results") | visit.range.counted
    return filters, {name: value for name, value in filters.items() if name not in {"cursor", "limit"}}


async def _page(
    visit: Visit,
    words: MoveWords,
    listing: Page[Migration] | Page[ReRoute],
    matrix: MigrationMatrix | None,
    found: RangeFigures | None,
) -> Response:
    shell = await visit.shell(
        words.title, "migrations", crumbs=(Crumb(words=words.title),), pool=visit.param("pool"), ranged=True, live=words.topic
    )
    of_one = visit.param("pool") is not None
    return visit.page(
        MovesPage(
            shell=shell,
            words=words,
            shown=shown(found) if found else None,
            listing=listing,
            newest=listing.items[:NEWEST_ROWS],
            triggers=[reason for reason in BindingReason if reason is not BindingReason.COLD],
            outcomes=list(MoveOutcome),
            timeline=stacked_timeline(matrix.timeline, visit.range.start, visit.range.end) if matrix else None,
            matrix=flow_matrix(matrix, visit.here) if matrix and of_one else None,
            ways=matrix.flows[:WAYS] if matrix and not of_one else [],
            counted=matrix.total if matrix else 0,
            effect=matrix.effect if matrix and matrix.total else None,
            by_trigger=_by_trigger(matrix.by_trigger) if matrix else [],
            counted_from=None if matrix is None or matrix.complete else matrix.counted_from,
        )
    )


def _by_trigger(counts: Mapping[BindingReason, int]) -> list[tuple[BindingReason, int, int]]:
    series = series_of(counts)
    return [(trigger, amount, series[trigger]) for trigger, amount in sorted(counts.items(), key=lambda item: -item[1])]


def flow_matrix(matrix: MigrationMatrix, here: Here) -> FlowMatrix:
    """Return the matrix of the instances with the most moves, with sources as rows and targets as columns. Totals count
    the shown moves, `hidden` all others.
    """
    busiest: Counter[str] = Counter()
    counts: dict[tuple[str, str], int] = {}
    for flow in matrix.flows:
        counts[flow.source, flow.target] = counts.get((flow.source, flow.target), 0) + flow.count
        busiest[flow.source] += flow.count
        busiest[flow.target] += flow.count
    shown = sorted(name for name, _ in busiest.most_common(MATRIX_MOST))
    top = max(counts.values(), default=1)
    rows: list[tuple[str, list[MatrixCell | None], int]] = []
    for source in shown:
        cells: list[MatrixCell | None] = []
        for target in shown:
            count = counts.get((source, target), 0)
            heat = round(count / top * 9)
            cells.append(MatrixCell(count=count, heat=heat, url=here.url(source=source, target=target)) if count else None)
        rows.append((source, cells, sum(cell.count for cell in cells if cell)))
    columns = [sum(counts.get((source, target), 0) for source in shown) for target in shown]
    total = sum(columns)
    return FlowMatrix(targets=shown, rows=rows, column_totals=columns, total=total, hidden=matrix.total - total)


async def show(visit: Visit) -> Response:
    return await _one(visit, MIGRATIONS, await visit.api.migration(visit.request.path_params["move"]))


async def show_reroute(visit: Visit) -> Response:
    return await _one(visit, REROUTES, await visit.api.reroute(visit.request.path_params["move"]))


async def _one(visit: Visit, words: MoveWords, move: Migration | ReRoute) -> Response:
    decision, history = await asyncio.gather(visit.attempt("decisions", _decision(visit, move)), _history(visit, move))
    shell = await visit.shell(
        f"{words.one.capitalize()} {move.id}",
        "pools",
        crumbs=crumbs_below(move.pool, Crumb(words=words.title, path=f"{pool_path(move.pool)}/{words.topic}"), Crumb(words=move.id)),
        pool=move.pool,
        tab="migrations",
    )
    steps = steps_of(move, decision, history) if isinstance(move, Migration) else []
    return visit.page(
        MovePage(
            shell=shell,
            words=words,
            move=move,
            times=times(move),
            effect=net_effect(move),
            cause=[(name.capitalize(), told) for name, told in cause_facts(move)],
            steps=steps,
            decision=decision,
        )
    )


async def _decision(visit: Visit, move: Migration | ReRoute) -> RoutingDecision | None:
    """Return the recorded routing decision of the request with which the move happened, which lists the compared
    candidates. None if there is no such record.

    The record is found by the request's id. It cannot be found by the move's target, because a request that moved while
    it was queued has a decision for the instance that it left.
    """
    if not move.request:
        return None
    around = {"from": (move.at - AROUND).isoformat(), "to": (move.at + AROUND).isoformat()}
    page = await visit.api.decisions({"pool": move.pool, "request": move.request, "limit": 1, **around})
    return next(iter(page.items), None)


async def _history(visit: Visit, move: Migration | ReRoute) -> list[BindingHistoryItem] | None:
    """Return the history of bindings of the session that moved; None for a re-route, or if the history could not be
    read.
    """
    return await visit.attempt("session", _homes(visit, move)) if isinstance(move, Migration) else None


async def _homes(visit: Visit, move: Migration) -> list[BindingHistoryItem]:
    """Return a session's history of bindings; empty if the API no longer knows the session."""
    try:
        return (await visit.api.session(PoolKey.parse(move.pool), move.session)).history
    except ApiProblem as error:
        if error.problem.status == 404:
            return []
        raise


def times(move: Migration | ReRoute) -> list[MoveTime]:
    """Return three times as lines with the same scale: the TTFT predicted for the case that the request stayed on its
    instance, the TTFT predicted for the move, and the actual TTFT.
    """
    rows = [
        (f"Predicted for staying on {move.origin}", move.predicted_source_ttft_seconds, "stay"),
        (f"Predicted for moving to {move.destination}", move.predicted_target_ttft_seconds, "move"),
        ("Actual", move.actual_ttft_seconds, "actual"),
    ]
    top = max((value for _, value, _ in rows if value is not None), default=0.0) or 1.0
    return [MoveTime(words=words, seconds=value, length=round((value or 0.0) / top * 100, 1), kind=kind) for words, value, kind in rows]


ROUTES = Routes(
    pages={
        "/migrations": index,
        f"{POOL}/migrations": index,
        "/migrations/{move:path}": show,
        "/reroutes": index_reroutes,
        f"{POOL}/reroutes": index_reroutes,
        "/reroutes/{move:path}": show_reroute,
    },
    exports={
        f"{below}/{name}": Export(name=name, filters=FILTERS, ranged=True)
        for below in ("", POOL)
        for name in ("migrations", "migrations/matrix", "reroutes", "reroutes/matrix")
    },
)
