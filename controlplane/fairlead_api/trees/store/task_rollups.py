"""Rolls up the tasks that are over, by the hour, priority class and version of the objectives, and reads these sums.

Each report sets the time at which its tasks are next checked (`task_turns.count_at`). A task that is over by then gets
one row in `finished_tasks`, made from the same sums as all other figures of tasks. A turn that arrives later makes the
task due again. Its row is then replaced or, if the task continues, deleted, and the hours of the old and the new row
are summed again. So each task counts once, even if its turns arrive late.
"""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, and_, bindparam, delete, func, insert, or_, select, text, true, update
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.session_trees import FIGURE_NAMES, TaskVerdict, microseconds
from fairlead.tables import DEFAULT_CLASS, TaskTarget
from fairlead_api.infra.database import Database
from fairlead_api.infra.records import bound, recordset
from fairlead_api.tables import TASK_SUMS, finished_tasks, session_trees, slo_configs, task_rollups_1h, task_turns
from fairlead_api.trees.budgets import Rolled
from fairlead_api.trees.store.tasks import NAMES, SUMMED, judged, targets

_log = logging.getLogger(__name__)

LOOK_SECONDS = 10
"""Seconds between two checks of the tasks that are due."""
AT_ONCE = 500
"""Maximum number of pairs of session and task that one transaction checks."""
MOST_TURNS = 50_000
"""Maximum number of recorded requests that one transaction reads for a pool. If its tasks have more, the time between
their turns stays unknown.
"""
USUAL_IDLE = timedelta(seconds=TaskTarget(name=DEFAULT_CLASS, turn_time_seconds=1.0).idle_seconds)
"""Time without a turn after which a task has ended, if the task's class has no target."""

_DUE = (
    select(task_turns.c.pool_id, task_turns.c.session, task_turns.c.task)
    .where(task_turns.c.count_at <= bindparam("now"))
    .order_by(task_turns.c.count_at)
    .limit(AT_ONCE)
    .with_for_update(skip_locked=True)
)
_looked = recordset([task_turns.c.pool_id, task_turns.c.session, task_turns.c.task, task_turns.c.count_at])
_LOOK_NEXT = (
    update(task_turns)
    .where(*(task_turns.c[name] == _looked.c[name] for name in ("pool_id", "session", "task")))
    .values(count_at=_looked.c.count_at)
)
_finished = recordset(finished_tasks.columns)
_ADD = insert(finished_tasks).from_select(finished_tasks.c.keys(), select(*_finished.c))
_KEYS = ("pool_id", "bucket", "priority_class", "slo_version")
_EMPTY = text("DELETE FROM task_rollups_1h WHERE pool_id = :pool AND bucket = ANY(:hours)")
_FILL = text(
    f"INSERT INTO task_rollups_1h ({', '.join((*_KEYS, *TASK_SUMS))}) "
    f"SELECT {', '.join(_KEYS)}, {', '.join(f'sum({name})' for name in TASK_SUMS)} FROM finished_tasks "
    f"WHERE pool_id = :pool AND bucket = ANY(:hours) GROUP BY {', '.join(_KEYS)}"
)
_GAPS = text("""
WITH turns AS (
  SELECT session, task, at, ended_seconds FROM recorded_requests
  WHERE session = ANY(:sessions) AND pool_id = :pool AND at >= :since ORDER BY at LIMIT :most
), gaps AS (
  SELECT session, task, extract(epoch FROM at - max(at + make_interval(secs => coalesce(ended_seconds, 0))) OVER (
    PARTITION BY session ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS seconds FROM turns
)
SELECT session, coalesce(task, '') AS task, count(*) AS turns, CAST(coalesce(sum(seconds) FILTER (WHERE seconds > 0), 0) AS float8) AS seconds
FROM gaps GROUP BY 1, 2
""")
"""SQL for the time in which sessions had no request in flight, as `fairlead.session_trees.gaps` computes it."""

TaskName = tuple[bool, str]
"""Whether clients named the task, and its name."""


class PostgresTaskRollups:
    """Counts tasks that are over."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self, now: datetime) -> None:
        """Check all tasks that are due by `now`, some in each transaction."""
        while await self._database.writing(partial(_look, now=now)) >= AT_ONCE:
            pass


async def _look(connection: AsyncConnection, now: datetime) -> int:
    """Count some of the tasks that are due. Returns the number of pairs of session and task.

    The pairs are locked before their sums are read, so a report adds to them either before or afterwards. If before,
    the sums include the report. If afterwards, the report makes the pairs due again.
    """
    due: dict[int, list[Any]] = defaultdict(list)
    for row in await connection.execute(_DUE, {"now": now}):
        due[row.pool_id].append(row)
    for pool, pairs in sorted(due.items()):
        await _count_if_possible(connection, pool, pairs, now)
    return sum(map(len, due.values()))


async def _count_if_possible(connection: AsyncConnection, pool: int, pairs: Sequence[Any], now: datetime) -> None:
    """Count the tasks of these pairs. A pair with sums that no column can hold is left out, and logged: otherwise it
    would be due again and again, and the tasks of all pools would wait behind it.
    """
    try:
        async with connection.begin_nested():
            await _count(connection, pool, pairs, now)
    except DataError as error:
        if len(pairs) > 1:
            for one in pairs:
                await _count_if_possible(connection, pool, [one], now)
            return
        (one,) = pairs
        await connection.execute(_LOOK_NEXT, bound([{"pool_id": pool, "session": one.session, "task": one.task, "count_at": None}]))
        extra = {"pool_id": pool, "session": one.session, "task": one.task, "error": str(error.orig)}
        _log.error("tasks that cannot be summed are left out of rollups", extra=extra)


async def _count(connection: AsyncConnection, pool: int, pairs: Sequence[Any], now: datetime) -> None:
    concerned = {(one.session, one.task): names for one, names in await _names(connection, pool, pairs)}
    names = sorted({name for own in concerned.values() for name in own})
    over_at, over = await _summed(connection, pool, names, now)
    tools = await _tool_seconds(connection, pool, over)
    rows = [_row(one, name, over_at[name], tools.get(name)) for name, one in over.items()]
    hours = {row["bucket"] for row in rows} | await _forget(connection, pool, names)
    if rows:
        await connection.execute(_ADD, bound(rows))
    for statement in (_EMPTY, _FILL) if hours else ():
        await connection.execute(statement, {"pool": pool, "hours": sorted(hours)})
    looked = [
        {
            "pool_id": pool,
            "session": session,
            "task": task,
            "count_at": min((over_at[one] for one in own if over_at.get(one, now) > now), default=None),
        }
        for (session, task), own in concerned.items()
    ]
    await connection.execute(_LOOK_NEXT, bound(looked))


async def _names(connection: AsyncConnection, pool: int, pairs: Sequence[Any]) -> list[tuple[Any, list[TaskName]]]:
    """Return, for each pair of a session and a task, all tasks that the pair concerns: the task itself; the task of the
    session's tree; and a task with the session's name, which existed if the session was a root before it got a parent.
    """
    sessions = bindparam("sessions", [one.session for one in pairs], type_=ARRAY(Text))
    query = select(session_trees.c.session, session_trees.c.root).where(
        session_trees.c.pool_id == pool, session_trees.c.session == func.any(sessions)
    )
    roots = {row.session: row.root for row in await connection.execute(query)}
    of_trees = [[(False, name) for name in dict.fromkeys((one.session, roots.get(one.session, one.session)))] for one in pairs]
    return [(one, [(True, one.task), *trees] if one.task else trees) for one, trees in zip(pairs, of_trees, strict=True)]


async def _summed(
    connection: AsyncConnection, pool: int, names: Iterable[TaskName], now: datetime
) -> tuple[dict[TaskName, datetime], dict[TaskName, Any]]:
    """Return two mappings by task: the time at which each existing task has ended or will end; and, for tasks that have
    ended by now, the row with their sums and the verdict on their target.
    """
    over_at: dict[TaskName, datetime] = {}
    rows: dict[TaskName, Any] = {}
    for named in (True, False):
        own = bindparam(f"names_{named}", [name for kind, name in names if kind is named], type_=ARRAY(Text))
        query = judged(SUMMED[named].where(task_turns.c.pool_id == pool, NAMES[named] == func.any(own)), now)
        for row in await connection.execute(query):
            over_at[named, row.name] = row.over_at or row.ended_at + USUAL_IDLE
            rows[named, row.name] = row
    return over_at, {name: row for name, row in rows.items() if over_at[name] <= now}


async def _forget(connection: AsyncConnection, pool: int, names: Sequence[TaskName]) -> set[datetime]:
    """Delete the rows of these tasks from `finished_tasks`. Return the hours in which the deleted rows counted."""
    tasks = finished_tasks.c

    def of(named: bool) -> Any:
        own = bindparam(f"names_{named}", [name for kind, name in names if kind is named], type_=ARRAY(Text))
        return and_(tasks.named.is_(named), tasks.name == func.any(own))

    found = await connection.execute(delete(finished_tasks).where(tasks.pool_id == pool, or_(of(True), of(False))).returning(tasks.bucket))
    return {row.bucket for row in found}


def _row(one: Any, name: TaskName, over_at: datetime, tool_seconds: float | None) -> dict[str, Any]:
    return {
        "pool_id": one.pool_id,
        "named": name[0],
        "name": name[1],
        "bucket": whole_hour(over_at),
        "priority_class": one.priority_class,
        "slo_version": one.version or 0,
        "tasks": 1,
        "judged": int(one.verdict in (TaskVerdict.IN_TIME, TaskVerdict.LATE)),
        "in_time": int(one.verdict == TaskVerdict.IN_TIME),
        "broken_off": int(one.verdict == TaskVerdict.BROKEN_OFF),
        "moves": int(one.moves),
        "wall_microseconds": microseconds(one.wall_seconds),
        "tool_tasks": int(tool_seconds is not None),
        "tool_microseconds": microseconds(tool_seconds or 0.0),
        **{figure: int(getattr(one, figure)) for figure in FIGURE_NAMES},
    }


async def _tool_seconds(connection: AsyncConnection, pool: int, over: Mapping[TaskName, Any]) -> dict[TaskName, float]:
    """Return the time between turns, in seconds, of the tasks for which all turns are stored."""
    if not over:
        return {}
    parts = [(name, row) for named in (True, False) for name, row in await _parts(connection, pool, named, over)]
    asked = {
        "sessions": [row.number for _, row in parts],
        "pool": pool,
        "since": min(row.first_at for _, row in parts),
        "most": MOST_TURNS,
    }
    found = {(row.session, row.task): row for row in await connection.execute(_GAPS, asked)}
    if sum(row.turns for row in found.values()) >= MOST_TURNS:
        return {}
    by_task: dict[TaskName, list[Any]] = defaultdict(list)
    for name, row in parts:
        if (row.number, row.task) in found:
            by_task[name].append(found[row.number, row.task])
    whole = {name: own for name, own in by_task.items() if sum(one.turns for one in own) == over[name].turns}
    return {name: sum(one.seconds for one in own) for name, own in whole.items()}


async def _parts(connection: AsyncConnection, pool: int, named: bool, over: Iterable[TaskName]) -> list[tuple[TaskName, Any]]:
    """Return the pairs of session and task whose turns belong to the tasks `over`, each with the name of its task.
    `named` selects the tasks whose names clients gave, or all other tasks.
    """
    own = bindparam("own", [name for kind, name in over if kind is named], type_=ARRAY(Text))
    same = (task_turns.c.pool_id == session_trees.c.pool_id) & (task_turns.c.session == session_trees.c.session)
    columns = (session_trees.c.number, session_trees.c.first_at, task_turns.c.task, NAMES[named].label("name"))
    query = select(*columns).select_from(task_turns.join(session_trees, same))
    of = (task_turns.c.task != "") if named else (task_turns.c.task == "")
    rows = await connection.execute(query.where(task_turns.c.pool_id == pool, of, NAMES[named] == func.any(own)))
    return [((named, row.name), row) for row in rows]


def whole_hour(at: datetime) -> datetime:
    """Return the start of the hour UTC that contains a time."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


async def rolled(connection: AsyncConnection, pool: int, start: datetime, end: datetime, step: timedelta | None = None) -> list[Rolled]:
    """Return the sums of the tasks that were over in the whole hours from `start` to `end`, by class and version, and
    with `step` also by step of time.
    """
    sums = task_rollups_1h.c
    at = [] if step is None else [func.date_bin(step, sums.bucket, start)]
    keys = (sums.slo_version, sums.priority_class, *at)
    query = (
        select(*keys, *(func.sum(sums[name]).cast(BigInteger).label(name) for name in TASK_SUMS))
        .where(sums.pool_id == pool, sums.bucket >= start, sums.bucket < end)
        .group_by(*keys)
        .order_by(*keys)
    )
    return [
        Rolled(
            version=row[0],
            priority_class=row[1],
            at=row[2] if at else None,
            sums={name: getattr(row, name) for name in TASK_SUMS},
        )
        for row in await connection.execute(query)
    ]


async def task_goals(connection: AsyncConnection, pool: int) -> dict[tuple[int, str], float]:
    """Return the percentiles of the pool's targets of tasks, by version and class."""
    target = targets(slo_configs.c.task)
    query = select(slo_configs.c.version, target.c.name, target.c.percentile).select_from(slo_configs.join(target, true()))
    rows = await connection.execute(query.where(slo_configs.c.pool_id == pool))
    return {(row.version, row.name): row.percentile for row in rows}
