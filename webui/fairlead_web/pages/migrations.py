"""`/migrations`: what moved between instances, why, whether it paid off; timeline and flow matrix of the same filter."""

import asyncio
from collections import Counter

from starlette.responses import Response

from fairlead.reports import BindingReason
from fairlead_client.resources import Migration, MigrationMatrix, RoutingDecision
from fairlead_web import formats
from fairlead_web.addresses import Here
from fairlead_web.charts import stacked_timeline
from fairlead_web.contexts.traffic import FlowMatrix, MatrixCell, MigrationPage, MigrationsPage, Phase
from fairlead_web.shells import Crumb
from fairlead_web.visits import Visit

FILTERS = ("pool", "source", "target", "trigger", "outcome", "session")
MATRIX_MOST = 16


async def index(visit: Visit) -> Response:
    filters = visit.filters(*FILTERS, ranged=True)
    unpaged = {name: value for name, value in filters.items() if name not in {"cursor", "limit"}}
    listing, matrix = await asyncio.gather(visit.api.migrations(filters), visit.attempt("flow matrix", visit.api.migration_matrix(unpaged)))
    shell = await visit.shell(
        "Migrations", "migrations", crumbs=(Crumb(words="Migrations"),), pool=visit.param("pool"), ranged=True, live="migrations"
    )
    known = [item.paid_off for item in listing.items if item.paid_off is not None]
    return visit.page(
        MigrationsPage(
            shell=shell,
            listing=listing,
            triggers=[reason.value for reason in BindingReason if reason is not BindingReason.COLD],
            timeline=stacked_timeline(matrix.timeline, visit.range.start, visit.range.end) if matrix else None,
            matrix=flow_matrix(matrix, visit.here) if matrix else None,
            by_trigger=sorted(matrix.by_trigger.items(), key=lambda item: -item[1]) if matrix else [],
            paid_off=(sum(known), len(known)),
        )
    )


def flow_matrix(matrix: MigrationMatrix, here: Here) -> FlowMatrix:
    """The busiest instances as rows (from) and columns (to); totals are of what is shown, `hidden` is the rest."""
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
    migration = await visit.api.migration(visit.request.path_params["migration"])
    decision = await visit.attempt("decisions", _decision(visit, migration))
    shell = await visit.shell(
        f"Migration {migration.id}",
        "migrations",
        crumbs=(Crumb(words="Migrations", path="/migrations"), Crumb(words=migration.id)),
        pool=migration.pool,
    )
    return visit.page(
        MigrationPage(
            shell=shell,
            migration=migration,
            verdict=verdict(migration),
            phases=phases(migration),
            decision=decision,
        )
    )


async def _decision(visit: Visit, migration: Migration) -> RoutingDecision | None:
    """The sampled decision of the same request, which lists the candidates that were weighed."""
    if migration.session is None and migration.request is None:
        return None
    filters = {"pool": migration.pool, "session": migration.session, "instance": migration.target, "limit": 100}
    page = await visit.api.decisions(filters)
    return next((decision for decision in page.items if decision.request == migration.request), None)


def verdict(migration: Migration) -> str:
    """Whether the move was worth it, in one sentence with the numbers."""
    stay, actual = migration.predicted_source_ttft_seconds, migration.actual_ttft_seconds
    if actual is None:
        return "Not known yet: the moved work has had no first token since."
    difference = stay - actual
    if migration.paid_off:
        return f"Yes: the first token came {formats.seconds(difference)} sooner than predicted for staying on {migration.source}."
    return f"No: the first token came {formats.seconds(-difference)} later than predicted for staying on {migration.source}."


def phases(migration: Migration) -> list[Phase]:
    """Predicted for staying, predicted for moving, actual; on one scale."""
    rows = [
        (f"Predicted, staying on {migration.source}", migration.predicted_source_ttft_seconds, "stay"),
        (f"Predicted, moving to {migration.target}", migration.predicted_target_ttft_seconds, "move"),
        ("Actual", migration.actual_ttft_seconds, "actual"),
    ]
    top = max((value for _, value, _ in rows if value is not None), default=0.0) or 1.0
    return [Phase(words=words, seconds=value, length=round((value or 0.0) / top * 100, 1), kind=kind) for words, value, kind in rows]
