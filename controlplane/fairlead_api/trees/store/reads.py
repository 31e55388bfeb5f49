"""Reads session trees, tasks and think times for the public API. Every read is bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, func, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.session_trees import FIGURE_NAMES, Evidence, Figures, Link, TaskVerdict, total
from fairlead.tables import PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.paging import SEARCHED, Lists
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.infra.records import read
from fairlead_api.infra.session_names import names_of_keys
from fairlead_api.infra.spans import Sight
from fairlead_api.slo.budgets import WINDOWS
from fairlead_api.tables import pools, recorded_requests, session_trees, sessions, task_turns
from fairlead_api.trees.budgets import TASK_WINDOWS, task_burn
from fairlead_api.trees.store.task_rollups import rolled, task_goals, whole_hour
from fairlead_api.trees.store.tasks import NAMES, SUMMED, joined, judged, judged_tasks, moves
from fairlead_api.trees.telling import StoredTurn, Told, in_order, spreads, told, tool_seconds, waited
from fairlead_client.resources.slo import SloTaskBurn, SloTasks
from fairlead_client.resources.trees import SessionTree, TaskFigures, TaskList, ThinkTime, ThinkTimes, TreeSession, TreeTurn

MOST_SESSIONS = 200
"""Maximum number of sessions of a tree that are shown; the first ones are shown."""
MOST_TURNS = 2_000
"""Maximum number of turns of a tree that are shown; the newest ones are shown."""
MOST_TASKS = 100
MOST_RECENT = 1_000
"""Maximum number of sums that are read for each pool to find the tasks with the newest turns. Each sum covers the turns
of one session for one task; the newest sums are read.
"""
MOST_COUNTED = 10_000
"""Maximum number of sessions of a tree that are counted."""
MOST_WAITED = 20_000
"""Number of a pool's turns from which think times are computed; the newest turns are used."""


class PostgresTrees:
    """Reads session trees, tasks and think times from the database."""

    def __init__(self, database: Database) -> None:
        self._lists = Lists(database)

    async def tasks(self, pool: str | None, sight: Sight, now: datetime) -> TaskList:
        """Return the tasks with the newest turns, of all visible pools or of one pool. Each has the sums over all its
        turns.
        """
        newest = (
            select(task_turns.c.task, task_turns.c.ended_at, session_trees.c.root)
            .select_from(joined)
            .where(task_turns.c.pool_id == pools.c.id)
            .order_by(task_turns.c.ended_at.desc())
            .limit(MOST_RECENT)
            .lateral("newest")
        )
        query = select(pools.c.id.label("pool_id"), newest.c.task, newest.c.root).select_from(pools.join(newest, true()))
        async with self._lists.database.reading() as connection:
            number = await self._lists.pool_id(connection, pool)
            if number is not None:
                query = query.where(pools.c.id == number)
            if sight is not None:
                query = query.where(pools.c.namespace.in_(sorted(sight)))
            rows = (await connection.execute(query.order_by(newest.c.ended_at.desc()).limit(SEARCHED))).all()
            keys = list(dict.fromkeys((row.pool_id, row.task or row.root, row.task != "") for row in rows))[:MOST_TASKS]
            return TaskList(tasks=await self._figures(connection, keys, now))

    async def slo_tasks(self, pool: PoolKey, start: datetime, end: datetime, now: datetime) -> SloTasks:
        """Return the attainment of the tasks that ended in a range; each task is judged by the target of its class.
        Raises NotFound.
        """
        async with self._lists.database.reading() as connection:
            number = (await pool_row(connection, pool)).id
            found = await judged_tasks(connection, number, start, end, now)
        return SloTasks(pool=str(pool), start=start, end=end, since=found.since, shares=found.shares)

    async def slo_task_burn(self, pool: PoolKey, now: datetime, kept: timedelta) -> SloTaskBurn:
        """Return the burn rates of the error budgets of the pool's targets of tasks. `kept` is the time for which
        rollups are kept. Raises NotFound.
        """
        lengths = {name: timedelta(seconds=WINDOWS[name]) for name in TASK_WINDOWS}
        async with self._lists.database.reading() as connection:
            row = await pool_row(connection, pool)
            found = {
                name: await rolled(connection, row.id, whole_hour(now - length), now) for name, length in lengths.items() if length <= kept
            }
            goals = await task_goals(connection, row.id)
        return task_burn(str(pool), now, found, goals, int(row.slo_version))

    async def _figures(self, connection: AsyncConnection, keys: Sequence[tuple[int, str, bool]], now: datetime) -> list[TaskFigures]:
        """Return the figures of these tasks, in the same order. Each of `keys` is the pool's id, the task's name, and
        whether clients gave that name.
        """
        found: dict[tuple[int, str, bool], Any] = {}
        for named in {named for _, _, named in keys}:
            own = [(pool, name) for pool, name, kind in keys if kind is named]
            of_pools = task_turns.c.pool_id.in_({pool for pool, _ in own})
            query = judged(SUMMED[named].where(of_pools, _is_any(NAMES[named], [name for _, name in own], "names")), now)
            found |= {(row.pool_id, row.name, named): row for row in await connection.execute(query)}
        pool_names = await self._lists.names(connection, [pool for pool, _, _ in keys])
        return [_task(found[key], pool_names[key[0]], named=key[2]) for key in keys if key in found]

    async def tree(self, pool: PoolKey, session: str, now: datetime) -> SessionTree:
        """Return the tree that contains a session. The tree has no sessions if no request of the session is recorded.
        Raises NotFound for an unknown pool, and for an unknown session.
        """
        async with self._lists.database.reading() as connection:
            number = (await pool_row(connection, pool)).id
            of_pool = session_trees.c.pool_id == number
            root = (
                await connection.execute(select(session_trees.c.root).where(of_pool, session_trees.c.session == session))
            ).scalar_one_or_none()
            key = (await names_of_keys(connection, [session])).get(session)
            if root is None:
                return replace(await _unrecorded(connection, pool, number, session), key=key)
            members = of_pool & (session_trees.c.root == root)
            rows = (await connection.execute(_sessions_of(members).limit(MOST_SESSIONS))).all()
            some = select(session_trees.c.number).where(members).limit(MOST_COUNTED).subquery()
            counted = (await connection.execute(select(func.count()).select_from(some))).scalar_one()
            sums = await _sums_of(connection, number, [row.session for row in rows])
            turns = await _turns_of(connection, number, rows)
            keys = [(number, name, named) for name, named in _tasks_of(sums, root)]
            tasks = await self._figures(connection, keys[:MOST_TASKS], now)
        return replace(_tree(str(pool), root, rows, counted, sums, turns, tasks), key=key)

    async def think_times(self, pool: PoolKey) -> ThinkTimes:
        """Return the times for which sessions waited between turns, from the pool's newest recorded requests. Raises
        NotFound for an unknown pool.
        """
        columns = recorded_requests.c
        async with self._lists.database.reading() as connection:
            number = (await pool_row(connection, pool)).id
            query = (
                select(columns.session, columns.at, columns.ended_seconds, columns.tenant, columns.tool)
                .where(columns.pool_id == number)
                .order_by(columns.at.desc())
                .limit(MOST_WAITED)
            )
            rows = [row for row in reversed((await connection.execute(query)).all()) if row.session is not None]
        times = [ThinkTime(**asdict(one)) for one in spreads(waited(rows))]
        return ThinkTimes(pool=str(pool), since=rows[0].at if rows else None, times=times)


async def _unrecorded(connection: AsyncConnection, pool: PoolKey, number: int, session: str) -> SessionTree:
    """Return the empty tree of a session that exists but has no recorded request. Raises NotFound."""
    known = select(sessions.c.session).where(sessions.c.pool_id == number, sessions.c.session == session)
    if (await connection.execute(known)).first() is None:
        raise NotFound("session", session)
    return SessionTree(pool=str(pool), root=session, sessions=[], sessions_in_all=0, tasks=[], turns=[], complete=True)


def _is_any(column: Any, values: Sequence[str], name: str) -> Any:
    return column == func.any(bindparam(name, list(values), type_=ARRAY(Text)))


def _seconds(row: Any) -> dict[str, Any]:
    """Return the sums in a row as fields of `TurnSums`, with times in seconds."""
    whole = {name: int(getattr(row, name)) for name in FIGURE_NAMES}
    queued, model = whole.pop("queued_microseconds"), whole.pop("model_microseconds")
    return {**whole, "queued_seconds": queued / 1e6, "model_seconds": model / 1e6}


def _task(row: Any, pool: str, *, named: bool) -> TaskFigures:
    return TaskFigures(
        pool=pool,
        task=row.name,
        named=named,
        root=row.root,
        sessions=row.sessions,
        first_at=row.first_at,
        ended_at=row.ended_at,
        wall_seconds=(row.ended_at - row.first_at).total_seconds(),
        moves=int(row.moves),
        priority_class=row.priority_class,
        verdict=None if row.verdict is None else TaskVerdict(row.verdict),
        **_seconds(row),
    )


def _sessions_of(members: Any) -> Any:
    held = session_trees.outerjoin(
        sessions, (sessions.c.pool_id == session_trees.c.pool_id) & (sessions.c.session == session_trees.c.session)
    )
    query = select(session_trees, sessions.c.instance, func.coalesce(moves, 0).label("moves")).select_from(held)
    return query.where(members).order_by(session_trees.c.first_at, session_trees.c.session)


async def _sums_of(connection: AsyncConnection, pool: int, names: Sequence[str]) -> list[Any]:
    query = select(task_turns).where(task_turns.c.pool_id == pool, _is_any(task_turns.c.session, names, "names"))
    return list((await connection.execute(query)).all())


def _tasks_of(sums: Sequence[Any], root: str) -> list[tuple[str, bool]]:
    """Return the tasks of a tree, newest first: each task's name, and whether clients gave that name."""
    ordered = sorted(sums, key=lambda row: row.ended_at, reverse=True)
    return list(dict.fromkeys((row.task or root, row.task != "") for row in ordered))


async def _turns_of(connection: AsyncConnection, pool: int, rows: Sequence[Any]) -> list[Any]:
    """Return the newest recorded requests of these sessions, in the order of their arrival."""
    columns = recorded_requests.c
    numbers = bindparam("numbers", [row.number for row in rows], type_=ARRAY(BigInteger))
    query = select(recorded_requests).where(
        columns.session == func.any(numbers),
        columns.pool_id == pool,
        columns.at >= min(row.first_at for row in rows),
        columns.at <= max(row.last_at for row in rows),
    )
    return list(reversed((await connection.execute(query.order_by(columns.at.desc()).limit(MOST_TURNS))).all()))


def _tree(
    pool: str, root: str, rows: Sequence[Any], counted: int, sums: Sequence[Any], stored: Sequence[Any], tasks: list[TaskFigures]
) -> SessionTree:
    names = {row.number: row.session for row in rows}
    turns = [(row, _stored(row, names[row.session])) for row in stored]
    notes: dict[str, list[tuple[Any, StoredTurn, Told]]] = {}
    for name in names.values():
        own = [(row, turn) for row, turn in turns if turn.session == name]
        notes[name] = [(row, turn, note) for (row, turn), note in zip(own, told([turn for _, turn in own]), strict=True)]
    parts = {name: [one for one in sums if one.session == name] for name in names.values()}
    whole = len(rows) == counted and len(turns) == sum(int(one.turns) for one in sums)
    shown = {row.session: row for row in rows}
    ordered = in_order({row.session: row.parent for row in rows})
    return SessionTree(
        pool=pool,
        root=root,
        sessions=[_session(shown[name], depth, parts[name], [note for _, _, note in notes[name]]) for name, depth in ordered],
        sessions_in_all=counted,
        tasks=[_with_tools(task, root, notes, complete=whole) for task in tasks],
        turns=sorted((_turn(row, turn, note) for own in notes.values() for row, turn, note in own), key=lambda one: one.at),
        complete=whole,
    )


def _with_tools(task: TaskFigures, root: str, notes: Mapping[str, list[tuple[Any, StoredTurn, Told]]], *, complete: bool) -> TaskFigures:
    """Return the task with the total time between its turns added. The task is returned unchanged if some of its turns
    are missing in `notes`, so that the time is not known.
    """
    own = [note for found in notes.values() for _, turn, note in found if (turn.task == task.task if task.named else turn.task is None)]
    if not complete or len(own) != task.turns or task.root != root:
        return task
    return replace(task, tool_seconds=tool_seconds(own))


def _stored(row: Any, name: str) -> StoredTurn:
    at = row.at.timestamp()
    return StoredTurn(
        session=name,
        at=at,
        ended_at=at + (row.ended_seconds or 0.0),
        prompt_tokens=row.prompt_tokens,
        blocks=row.blocks,
        window_number=row.window_number,
        instance=row.instance,
        tool=row.tool,
        task=row.task,
    )


def _turn(row: Any, turn: StoredTurn, note: Told) -> TreeTurn:
    return read(
        TreeTurn,
        row,
        session=turn.session,
        ended_at=_ended(row),
        gap_seconds=note.gap_seconds,
        compacted=note.compacted,
        moved_from=note.moved_from,
        queued_seconds=row.sent_seconds,
        prompt_tokens=row.prompt_tokens if row.engine_prompt_tokens is None else row.engine_prompt_tokens,
    )


def _ended(row: Any) -> datetime:
    end: datetime = row.at + timedelta(seconds=row.ended_seconds or 0.0)
    return end


def _session(row: Any, depth: int, parts: Sequence[Any], notes: Sequence[Told]) -> TreeSession:
    figures = total(Figures(**{name: int(getattr(part, name)) for name in FIGURE_NAMES}) for part in parts)
    return TreeSession(
        session=row.session,
        parent=row.parent,
        link=None if row.link is None else Link(row.link),
        evidence=None if row.evidence is None else Evidence(row.evidence),
        depth=depth,
        first_at=row.first_at,
        ended_at=max((part.ended_at for part in parts), default=row.last_at),
        instance=row.instance,
        moves=int(row.moves),
        compactions=sum(note.compacted is not None for note in notes),
        tool_seconds=tool_seconds(notes) if len(notes) == figures.turns else None,
        **_seconds(figures),
    )
