"""Sums of tasks, and the attainment of tasks: each task is judged by the target of its class (`spec.slo.task`).

A task is judged by the version of the pool's objectives that was in force when its last turn ended. It is judged from
its present sums, so there is no second count that could differ from them. Every read is bounded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Boolean, Double, Select, Text, and_, case, column, func, literal, or_, select, true, union_all
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import TaskObservation
from fairlead.session_trees import FIGURE_NAMES, TaskVerdict
from fairlead_api.infra.records import read
from fairlead_api.tables import session_trees, sessions, slo_configs, task_turns
from fairlead_client.resources.slo import TaskShare

MOST_JUDGED = 20_000
"""Maximum number of sums that are read to judge the tasks of a range. Each sum covers the turns of one session for one
task; the newest sums are read.
"""
MOST_LATELY = 2_000
"""Maximum number of sums (of one session for one task) that are read for the pool's condition. It is lower than
MOST_JUDGED, because the condition is judged every few seconds.
"""
LATELY = timedelta(hours=1)

joined = task_turns.join(
    session_trees, (task_turns.c.pool_id == session_trees.c.pool_id) & (task_turns.c.session == session_trees.c.session)
)
moves = sessions.c.migrations
_with_moves = joined.outerjoin(sessions, (sessions.c.pool_id == task_turns.c.pool_id) & (sessions.c.session == task_turns.c.session))
NAMES: Mapping[bool, Any] = {True: task_turns.c.task, False: session_trees.c.root}
"""The column with the names of tasks: for tasks that clients named (True), and for all other tasks (False). A task that
clients did not name has the name of its root session.
"""


def _of_the_first(value: Any, kind: Any, *order: Any) -> Any:
    return func.array_agg(aggregate_order_by(value, *order), type_=ARRAY(kind))[1]


def _summed(name: Any, of: Any) -> "Select[Any]":
    turns = task_turns.c
    return (
        select(
            turns.pool_id,
            name.label("name"),
            func.min(session_trees.c.root).label("root"),
            func.count().label("sessions"),
            func.min(turns.first_at).label("first_at"),
            func.max(turns.ended_at).label("ended_at"),
            func.coalesce(func.sum(moves), 0).label("moves"),
            _of_the_first(turns.priority_class, Text, turns.first_at, turns.priority_class).label("priority_class"),
            _of_the_first(turns.answered, Boolean, turns.ended_at.desc(), turns.answered).label("answered"),
            *(func.sum(turns[one]).label(one) for one in FIGURE_NAMES),
        )
        .select_from(_with_moves)
        .where(of)
        .group_by(turns.pool_id, name)
    )


SUMMED = {True: _summed(NAMES[True], task_turns.c.task != ""), False: _summed(NAMES[False], task_turns.c.task == "")}
"""Queries for the sums of tasks, grouped by name: for tasks that clients named (True), and for all other tasks (False).
"""


def targets(of: Any) -> Any:
    """Return the targets in a column of `slo_configs`, as rows."""
    names = ("turn_time_seconds", "wall_time_seconds", "percentile", "idle_seconds")
    columns = (column("name", Text), *(column(name, Double) for name in names))
    return func.jsonb_to_recordset(of).table_valued(*columns, name="target").render_derived(name="target", with_types=True)


def judged(sums: Any, now: datetime) -> "Select[Any]":
    """Return a query for the sums of tasks. It adds to each task the version of the objectives and the target by which
    the task is judged, the time at which the task is over, and the verdict, which is None without a target.
    """
    task = sums.subquery("task")
    then = (
        select(slo_configs.c.version, slo_configs.c.task)
        .where(slo_configs.c.pool_id == task.c.pool_id, slo_configs.c.active_from <= task.c.ended_at)
        .order_by(slo_configs.c.version.desc())
        .limit(1)
        .lateral("at_that_time")
    )
    target = targets(then.c.task)
    turn_seconds = (task.c.queued_microseconds + task.c.model_microseconds) / literal(1e6, Double)
    wall_seconds = func.extract("epoch", task.c.ended_at - task.c.first_at).cast(Double)
    over_at = task.c.ended_at + func.make_interval(0, 0, 0, 0, 0, 0, target.c.idle_seconds)
    late = func.coalesce(or_(turn_seconds > target.c.turn_time_seconds, wall_seconds > target.c.wall_time_seconds), False)
    verdict = case(
        (target.c.name.is_(None), None),
        (and_(over_at <= now, ~task.c.answered), TaskVerdict.BROKEN_OFF.value),
        (late, TaskVerdict.LATE.value),
        (over_at > now, TaskVerdict.OPEN.value),
        else_=TaskVerdict.IN_TIME.value,
    )
    return select(
        task,
        then.c.version,
        *(target.c[name] for name in ("turn_time_seconds", "wall_time_seconds", "percentile")),
        turn_seconds.label("turn_seconds"),
        wall_seconds.label("wall_seconds"),
        over_at.label("over_at"),
        verdict.label("verdict"),
    ).select_from(task.outerjoin(then, true()).outerjoin(target, target.c.name == task.c.priority_class))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTasks:
    """The attainment of the tasks that ended in a range, by version and class. `since` is None if all tasks are judged,
    otherwise the end of the oldest judged task.
    """

    shares: list[TaskShare]
    since: datetime | None


async def judged_tasks(
    connection: AsyncConnection, pool: int, start: datetime, end: datetime, now: datetime, most: int = MOST_JUDGED
) -> JudgedTasks:
    """Return the attainment of the pool's tasks that ended from `start` to `end` (exclusive). At most `most` pairs of
    session and task are read, the newest first.

    A session whose last turn ended less than the shortest idle time ago still has an open task, so it is not read.
    Otherwise the open tasks of a busy pool could use up the maximum.
    """
    idle = await _idle_times(connection, pool)
    if idle is None:
        return JudgedTasks(shares=[], since=None)
    of_pool, turns = task_turns.c.pool_id == pool, task_turns.c
    newest = (
        select(turns.session, turns.task, turns.ended_at)
        .where(of_pool, turns.ended_at >= start - idle.longest, turns.ended_at < min(end, now) - idle.shortest)
        .order_by(turns.ended_at.desc())
        .limit(most)
        .cte("newest")
    )
    found = (await connection.execute(select(func.count(), func.min(newest.c.ended_at)).select_from(newest))).one()
    unnamed = _one_of(session_trees.c.session, select(newest.c.session).where(newest.c.task == ""))
    roots = select(session_trees.c.root).where(session_trees.c.pool_id == pool, unnamed)
    named = SUMMED[True].where(of_pool, _one_of(turns.task, select(newest.c.task).where(newest.c.task != "")))
    trees = SUMMED[False].where(of_pool, _one_of(session_trees.c.root, roots))
    rows = await connection.execute(_shares(judged(union_all(named, trees), now), start, min(end, now)))
    return JudgedTasks(shares=[_share(row) for row in rows], since=found[1] if found[0] >= most else None)


def _one_of(column_: Any, names: "Select[Any]") -> Any:
    """Return the condition that a column has one of these names. The names are an array, because Postgres uses the
    index for an array, but reads the whole table for a sub-query.
    """
    return column_ == func.any(func.array(names.distinct().scalar_subquery()))


async def tasks_of_late(connection: AsyncConnection, pool: int, now: datetime) -> tuple[TaskObservation, ...]:
    """Return, by class, the numbers of tasks that were over in the last hour. Only the newest tasks are counted
    (MOST_LATELY).
    """
    found: dict[str, Counter[str]] = {}
    for one in (await judged_tasks(connection, pool, now - LATELY, now, now, MOST_LATELY)).shares:
        counts = {"tasks": one.tasks, "in_time": one.in_time, "broken_off": one.broken_off}
        found.setdefault(one.priority_class, Counter()).update(counts)
    return tuple(TaskObservation(name=name, **counts) for name, counts in sorted(found.items()))


class _IdleTimes(NamedTuple):
    shortest: timedelta
    longest: timedelta


async def _idle_times(connection: AsyncConnection, pool: int) -> _IdleTimes | None:
    """Return the shortest and longest idle time of the pool's targets of tasks; None if no version of the objectives
    has such a target.
    """
    target = targets(slo_configs.c.task)
    of_targets = select(func.min(target.c.idle_seconds), func.max(target.c.idle_seconds)).select_from(slo_configs.join(target, true()))
    shortest, longest = (await connection.execute(of_targets.where(slo_configs.c.pool_id == pool))).one()
    return None if shortest is None else _IdleTimes(timedelta(seconds=shortest), timedelta(seconds=longest))


def _shares(of: "Select[Any]", start: datetime, end: datetime) -> "Select[Any]":
    task = of.subquery("judged")
    key = (task.c.version, task.c.priority_class, task.c.turn_time_seconds, task.c.wall_time_seconds, task.c.percentile)
    counted = task.c.verdict.in_([TaskVerdict.IN_TIME.value, TaskVerdict.LATE.value])

    def goal(value: Any) -> Any:
        return func.percentile_disc(task.c.percentile / 100).within_group(value).filter(counted)

    return (
        select(
            *key,
            func.count().filter(counted).label("tasks"),
            func.count().filter(task.c.verdict == TaskVerdict.IN_TIME.value).label("in_time"),
            func.count().filter(task.c.verdict == TaskVerdict.BROKEN_OFF.value).label("broken_off"),
            goal(task.c.turn_seconds).label("turn_seconds"),
            goal(task.c.wall_seconds).label("wall_seconds"),
        )
        .where(task.c.verdict.is_not(None), task.c.over_at >= start, task.c.over_at < end)
        .group_by(*key)
        .order_by(task.c.version.desc(), task.c.priority_class)
    )


def _share(row: Any) -> TaskShare:
    whole = row.tasks + row.broken_off
    return read(
        TaskShare,
        row,
        attainment=row.in_time / row.tasks if row.tasks else None,
        served_in_time=row.in_time / whole if whole else None,
    )
