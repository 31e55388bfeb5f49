"""Reads the history of a pool: serving and desired instances, goals, recommendations, models. Also reads the events in
a range that charts mark: changed desired numbers, changed specs, windows of schedules, lost instances, comments of
people.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from textwrap import shorten
from typing import Any

from sqlalchemy import or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.scaling.recommendations import Controller
from fairlead_api import tables
from fairlead_api.series.grids import Steps
from fairlead_api.series.reading import Changes
from fairlead_client.resources.series import Annotation, AnnotationKind, Annotations

MOST = 200
"""Maximum number of marked events of each kind."""
LONGEST_COMMENT = 200
"""Maximum number of characters of a comment that are shown beside a chart."""

_ROWS = {
    AnnotationKind.SCALED: "SELECT pool_id, at, CAST(NULL AS timestamptz) AS until, CAST(NULL AS text) AS instance, role AS a, "
    "CAST(before AS text) AS b, CAST(replicas AS text) AS c FROM wanted_replicas "
    "WHERE pool_id = ANY(:pools) AND before IS NOT NULL AND at >= :start AND at < :end ORDER BY at DESC LIMIT :most",
    AnnotationKind.REVISION: "SELECT pool_id, at, CAST(NULL AS timestamptz) AS until, CAST(NULL AS text) AS instance, "
    "CAST(number AS text) AS a, actor AS b, reason AS c FROM pool_revisions "
    "WHERE pool_id = ANY(:pools) AND at >= :start AND at < :end ORDER BY at DESC LIMIT :most",
    AnnotationKind.SCHEDULE: "SELECT pool_id, coalesce(opened_at, start) AS at, coalesce(closed_at, closes) AS until, "
    "CAST(NULL AS text) AS instance, schedule AS a, outcome AS b, CAST(NULL AS text) AS c FROM schedule_runs "
    "WHERE pool_id = ANY(:pools) AND outcome <> 'skipped' AND start < :end AND start >= CAST(:start AS timestamptz) - interval '1 day' "
    "AND coalesce(closed_at, closes, :end) > :start ORDER BY start DESC LIMIT :most",
    AnnotationKind.FAILURE: "SELECT pool_id, at, CAST(NULL AS timestamptz) AS until, instance, before AS a, after AS b, reason AS c "
    "FROM instance_transitions WHERE at >= :start AND at < :end AND pool_id = ANY(:pools) "
    "AND (after = 'Lost' OR before = 'Lost' AND after <> 'Gone') ORDER BY at DESC, id DESC LIMIT :most",
    AnnotationKind.COMMENT: 'SELECT pool_id, start AS at, nullif("end", start) AS until, CAST(NULL AS text) AS instance, '
    'author AS a, text AS b, plan AS c FROM comments WHERE pool_id = ANY(:pools) AND start < :end AND "end" >= :start '
    "AND start >= CAST(:start AS timestamptz) - interval '92 days' ORDER BY start DESC LIMIT :most",
}
"""SQL for the marked events of each kind. It includes windows of schedules that began up to a day before the range and
extend into it, and comments whose range, of at most 92 days, overlaps it.
"""


async def read_annotations(
    connection: AsyncConnection, pools: Mapping[int, str], instance: str | None, start: datetime, end: datetime
) -> Annotations:
    """Return the marked events of these pools (names by id). With `instance`, failures of other instances are
    left out.
    """
    items: list[Annotation] = []
    complete = True
    for kind, statement in _ROWS.items():
        values = {"pools": list(pools), "start": start, "end": end, "most": MOST + 1}
        rows = (await connection.execute(text(statement), values)).all()
        complete = complete and len(rows) <= MOST
        shown = [row for row in rows[:MOST] if instance is None or row.instance in (None, instance)]
        items += [_annotation(kind, row, pools[row.pool_id]) for row in reversed(shown)]
    return Annotations(start=start, end=end, items=sorted(items, key=_order), complete=complete)


def _order(one: Annotation) -> tuple[datetime, AnnotationKind, str]:
    """Return the sort key of a marked event: its time, its kind and, except for failures, its description. Failures at
    the same time therefore stay in the order in which they happened, for example an instance that is lost and at once
    back.
    """
    return one.at, one.kind, "" if one.kind is AnnotationKind.FAILURE else one.words


def _annotation(kind: AnnotationKind, row: Any, pool: str) -> Annotation:
    match kind:
        case AnnotationKind.SCALED:
            words = f"{row.a}: {row.b} → {row.c} wanted"
        case AnnotationKind.REVISION:
            words = f"revision {row.a} by {row.b}" + (f": {row.c}" if row.c else "")
        case AnnotationKind.SCHEDULE:
            words = f"schedule {row.a}" + (" is open" if row.b == "open" else "")
        case AnnotationKind.FAILURE:
            words = f"{row.instance} lost: {row.c}" if row.b == "Lost" else f"{row.instance} back: {row.b}"
        case AnnotationKind.COMMENT:
            words = f"{row.a}{' on plan ' + row.c if row.c else ''}: {shorten(row.b, LONGEST_COMMENT, placeholder=' …')}"
    return Annotation(at=row.at, until=row.until, kind=kind, pool=pool, instance=row.instance, words=words)


_NOW_SERVING = text(
    "SELECT role, count(*) AS instances FROM instances WHERE pool_id = :pool AND gone_at IS NULL AND state = 'Serving' GROUP BY role"
)
_CHANGED = text(
    "SELECT i.role, t.at, CAST(sum(CASE WHEN t.after = 'Serving' THEN 1 ELSE -1 END) AS int) AS more "
    "FROM instance_transitions t JOIN instances i ON i.pool_id = t.pool_id AND i.id = t.instance "
    "WHERE t.at >= :since AND t.pool_id = :pool AND (t.after = 'Serving') IS DISTINCT FROM (t.before IS NOT NULL AND t.before = 'Serving') "
    "GROUP BY 1, 2 ORDER BY 1, 2"
)

_WANTED = text(
    "(SELECT DISTINCT ON (role) role, at, replicas FROM wanted_replicas WHERE pool_id = :pool AND at < :since ORDER BY role, at DESC) "
    "UNION ALL SELECT role, at, replicas FROM wanted_replicas WHERE pool_id = :pool AND at >= :since ORDER BY role, at"
)
_STEP = "CAST(floor(extract(epoch FROM at - :start) / :step) AS int) AS step"
_WITHIN = "pool_id = :pool AND at >= :start AND at < :end"
_DECIDED = text(
    f"SELECT DISTINCT ON (1, 2, 3) {_STEP}, role, controller, recommended, signals, at FROM scaling_decisions WHERE {_WITHIN} "
    "ORDER BY 1, 2, 3, at DESC"
)
_MODELS = text(
    f"SELECT DISTINCT ON (1, 2) {_STEP}, figures ->> 'router' AS router, CAST(figures ->> :kind AS float8) AS value "
    f"FROM predictor_models WHERE {_WITHIN} ORDER BY 1, 2, version DESC"
)


async def read_serving(connection: AsyncConnection, row: Any, since: datetime) -> Mapping[str, Changes]:
    """Return the changes of the number of serving instances of each role, computed backwards from the present. `row` is
    the pool's row of the table pools. The result has no values for the time before the pool existed.
    """
    values = {"pool": row.id, "since": since}
    now = {one.role: int(one.instances) for one in await connection.execute(_NOW_SERVING, values)}
    changed: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for one in await connection.execute(_CHANGED, values):
        changed[one.role].append((one.at, one.more))
    found: dict[str, list[tuple[datetime, float | None]]] = {}
    for role in {*now, *changed}:
        number = now.get(role, 0) - sum(more for _, more in changed[role])
        steps: list[tuple[datetime, float | None]] = [(max(since, row.created_at), float(number))]
        for at, more in changed[role]:
            number += more
            steps.append((at, float(number)))
        found[role] = steps
    return found


async def read_wanted(connection: AsyncConnection, pool: int, since: datetime) -> Mapping[str, Changes]:
    """Return for each role the last change of the desired number before `since`, and the later changes."""
    found: dict[str, list[tuple[datetime, float | None]]] = defaultdict(list)
    for row in await connection.execute(_WANTED, {"pool": pool, "since": since}):
        found[row.role].append((row.at, float(row.replicas)))
    return found


async def read_goals(connection: AsyncConnection, pool: int, kind: str, since: datetime) -> Changes:
    """Return the changes of one column of the SLO over time; None while no version of the SLO was in force."""
    slo = tables.slo_configs.c
    query = select(slo.active_from, slo.active_until, slo[kind].label("value")).where(
        slo.pool_id == pool, or_(slo.active_until.is_(None), slo.active_until > since)
    )
    rows = (await connection.execute(query.order_by(slo.version))).all()
    changes: list[tuple[datetime, float | None]] = [(row.active_from, float(row.value)) for row in rows]
    changes += [(one.active_until, None) for one, after in pairwise(rows) if one.active_until < after.active_from]
    if rows and rows[-1].active_until is not None:
        changes.append((rows[-1].active_until, None))
    return sorted(changes, key=lambda one: one[0])


async def read_decisions(connection: AsyncConnection, pool: int, where: Steps) -> Mapping[tuple[str, str], Mapping[int, float]]:
    """Return figures of scaling decisions: the recommended numbers of instances, and the loads on which decisions were
    based. They are arranged by metric and part (a role, or a role and a controller), then by index of the step of time.
    Only each controller's last decision in a step counts.
    """
    return decided_lines((await connection.execute(_DECIDED, _where(pool, where))).all())


def decided_lines(rows: Iterable[Any]) -> Mapping[tuple[str, str], Mapping[int, float]]:
    """Arrange rows of decisions by metric and part, then by index of the step. A part is a role, or a role and a
    controller: each controller recommends its own number of instances, so these numbers are not mixed. Loads are taken
    from the newest decision of the step.
    """
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in sorted(rows, key=lambda one: one.at):
        part = row.role if row.controller == Controller.SCALING else f"{row.role}, {row.controller.lower()}"
        found["instances_recommended", part][row.step] = float(row.recommended)
        for signal in row.signals:
            for name in ("prefill_load", "decode_load"):
                if signal.get(name) is not None:
                    found[name, signal["role"]][row.step] = float(signal[name])
    return found


async def read_models(connection: AsyncConnection, pool: int, where: Steps, kind: str) -> Mapping[str, Mapping[int, float]]:
    """Return the figure `kind` of prediction models, by router, then by index of the step of time. Only the router's
    newest model in each step counts.
    """
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in await connection.execute(_MODELS, {**_where(pool, where), "kind": kind}):
        if row.value is not None:
            found[row.router][row.step] = row.value
    return found


def _where(pool: int, where: Steps) -> dict[str, Any]:
    return {"pool": pool, "start": where.start, "end": where.end, "step": where.seconds}
