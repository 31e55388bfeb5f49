"""What happened in a range of time: other numbers wanted, other specs, windows of schedules, instances lost."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_client.resources.series import Annotation, AnnotationKind, Annotations

MOST = 200
"""Of each kind."""

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
    "AND (after = 'Lost' OR before = 'Lost' AND after <> 'Gone') ORDER BY at DESC LIMIT :most",
}
"""Windows of schedules that began up to a day before the range and last into it are part of it."""


async def read_annotations(
    connection: AsyncConnection, pools: Mapping[int, str], instance: str | None, start: datetime, end: datetime
) -> Annotations:
    """Of these pools (names by id); of an instance's own failures only if one is given."""
    items: list[Annotation] = []
    complete = True
    for kind, statement in _ROWS.items():
        values = {"pools": list(pools), "start": start, "end": end, "most": MOST + 1}
        rows = (await connection.execute(text(statement), values)).all()
        complete = complete and len(rows) <= MOST
        items += [_annotation(kind, row, pools[row.pool_id]) for row in rows[:MOST] if instance is None or row.instance in (None, instance)]
    return Annotations(start=start, end=end, items=sorted(items, key=lambda one: (one.at, one.kind, one.words)), complete=complete)


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
    return Annotation(at=row.at, until=row.until, kind=kind, pool=pool, instance=row.instance, words=words)
