"""Adds the requests in a report to session trees and sums, in the transaction that stores the report, so that each
request counts once.

Postgres adds to the stored sums and extends the stored times, so the order of reports does not matter. A session's
position in a tree is determined once, under a lock on its pool. Therefore two simultaneous reports cannot make two
sessions each other's parent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Text, and_, bindparam, case, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.batches import Report
from fairlead.reports.traffic import RecordedRequest
from fairlead.session_trees import FIGURE_NAMES, Evidence, Link, Reach
from fairlead.tables import PoolKey
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import bound, recordset
from fairlead_api.tables import session_trees as trees
from fairlead_api.tables import task_turns
from fairlead_api.trees.growing import Grown, Growth, grown, wants_place

MOST_SOUGHT = 20_000
"""Maximum number of blocks that are looked up for one report, to find the sessions from which the report's sessions
were forked. A session whose blocks would exceed the number becomes a root.
"""
FIRST_LOOK = timedelta(minutes=1)
"""Time from the end of a turn to the first check whether its task is over. If the task was already counted as over, it
is checked at once.
"""
_LOCK_SPACE = 0x7472_6565
"""Advisory lock space (the letters `tree`); the second key is the pool's id."""

_written = recordset(trees.columns)
_row = insert(trees).from_select(trees.c.keys(), select(*_written.c).order_by(_written.c.pool_id, _written.c.session))
_new = _row.excluded
_finds_parent = trees.c.parent.is_(None) & _new.parent.is_not(None)
_is_newest = _new.last_at >= trees.c.last_at
_SAVE = _row.on_conflict_do_update(
    index_elements=["pool_id", "session"],
    set_={
        **{name: case((_finds_parent, _new[name]), else_=trees.c[name]) for name in ("root", "parent", "link", "evidence")},
        "first_at": func.least(trees.c.first_at, _new.first_at),
        "last_at": func.greatest(trees.c.last_at, _new.last_at),
        **{name: case((_is_newest, _new[name]), else_=trees.c[name]) for name in ("first_blocks", "last_blocks", "last_block")},
    },
)

_summed = recordset(task_turns.columns)
_sums = insert(task_turns).from_select(
    task_turns.c.keys(), select(*_summed.c).order_by(_summed.c.pool_id, _summed.c.session, _summed.c.task)
)
_ADD = _sums.on_conflict_do_update(
    index_elements=["pool_id", "session", "task"],
    set_={
        "first_at": func.least(task_turns.c.first_at, _sums.excluded.first_at),
        "ended_at": func.greatest(task_turns.c.ended_at, _sums.excluded.ended_at),
        "priority_class": case(
            (_sums.excluded.first_at < task_turns.c.first_at, _sums.excluded.priority_class),
            (_sums.excluded.first_at > task_turns.c.first_at, task_turns.c.priority_class),
            else_=func.least(task_turns.c.priority_class.collate("C"), _sums.excluded.priority_class.collate("C")),
        ),
        "answered": case(
            (_sums.excluded.ended_at > task_turns.c.ended_at, _sums.excluded.answered),
            (_sums.excluded.ended_at < task_turns.c.ended_at, task_turns.c.answered),
            else_=and_(task_turns.c.answered, _sums.excluded.answered),
        ),
        **{name: task_turns.c[name] + _sums.excluded[name] for name in FIGURE_NAMES},
        "count_at": case((task_turns.c.count_at.is_(None), _sums.excluded.first_at), else_=_sums.excluded.count_at),
    },
)

_moved = recordset([trees.c.pool_id, trees.c.session, trees.c.root])
_JOIN = update(trees).where(trees.c.pool_id == _moved.c.pool_id, trees.c.root == _moved.c.session).values(root=_moved.c.root)
"""SQL that runs after a session got a parent: all sessions below this session get the root of the parent's tree."""


async def save_turns(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int]) -> None:
    """Add those requests in the report that have a session's name to the trees and sums of their sessions."""
    by_pool: dict[int, list[RecordedRequest]] = {}
    for turn in report.traffic:
        if turn.name and turn.session is not None and turn.pool in ids:
            by_pool.setdefault(ids[turn.pool], []).append(turn)
    for pool, turns in sorted(by_pool.items()):
        await _save(connection, pool, turns)


async def _save(connection: AsyncConnection, pool: int, turns: Sequence[RecordedRequest]) -> None:
    names = {one for turn in turns for one in (turn.name, turn.parent) if one is not None}
    known = await _known(connection, pool, names)
    if any(wants_place(turn, known.get(turn.name or "")) for turn in turns):
        await connection.execute(text("SELECT pg_advisory_xact_lock(:space, :pool)"), {"space": _LOCK_SPACE, "pool": pool})
        known = await _known(connection, pool, names)
    new = [turn for turn in turns if turn.parent is None and turn.name not in known]
    growth = grown(turns, known, await _forked(connection, pool, new))
    await _write(connection, pool, growth)


async def _known(connection: AsyncConnection, pool: int, names: Collection[str]) -> dict[str, Grown]:
    of = (trees.c.pool_id == pool) & (trees.c.session == func.any(bindparam("names", sorted(names), type_=ARRAY(Text))))
    return {row.session: _stored(row) for row in await connection.execute(select(trees).where(of))}


async def _forked(connection: AsyncConnection, pool: int, new: Iterable[RecordedRequest]) -> dict[int, list[Grown]]:
    """Return, for each block of the prompts of `new`, the sessions whose conversation ends with this block. Sessions
    with only one turn are left out.
    """
    sought: dict[int, None] = {}
    for turn in new:
        if len(sought) + len(turn.blocks) <= MOST_SOUGHT:
            sought.update(dict.fromkeys(turn.blocks))
    if not sought:
        return {}
    ends_with = trees.c.last_block == func.any(bindparam("blocks", list(sought), type_=ARRAY(BigInteger)))
    query = select(trees).where(trees.c.pool_id == pool, ends_with, trees.c.last_blocks > trees.c.first_blocks).limit(1000)
    found: dict[int, list[Grown]] = {}
    for row in await connection.execute(query):
        found.setdefault(row.last_block, []).append(_stored(row))
    return found


async def _write(connection: AsyncConnection, pool: int, growth: Growth) -> None:
    await connection.execute(_SAVE, bound([_tree_row(pool, one) for _, one in sorted(growth.sessions.items())]))
    if growth.joined:
        joined = [{"pool_id": pool, "session": session, "root": root} for session, root in sorted(growth.joined.items())]
        await connection.execute(_JOIN, bound(joined))
    rows = [
        {
            "pool_id": pool,
            "session": session,
            "task": task,
            "first_at": moment(sums.first_at),
            "ended_at": moment(sums.ended_at),
            "priority_class": sums.priority_class,
            "answered": sums.answered,
            **{name: getattr(sums.figures, name) for name in FIGURE_NAMES},
            "count_at": moment(sums.ended_at) + FIRST_LOOK,
        }
        for (session, task), sums in sorted(growth.sums.items())
    ]
    await connection.execute(_ADD, bound(rows))


def _tree_row(pool: int, one: Grown) -> dict[str, Any]:
    return {
        "pool_id": pool,
        "session": one.session,
        "number": one.number,
        "root": one.root,
        "parent": one.parent,
        "link": one.link,
        "evidence": one.evidence,
        "first_at": moment(one.first_at),
        "last_at": moment(one.last_at),
        **one.reach._asdict(),
    }


def _stored(row: Any) -> Grown:
    return Grown(
        session=row.session,
        number=row.number,
        root=row.root,
        parent=row.parent,
        link=None if row.link is None else Link(row.link),
        evidence=None if row.evidence is None else Evidence(row.evidence),
        first_at=row.first_at.timestamp(),
        last_at=row.last_at.timestamp(),
        reach=Reach(row.first_blocks, row.last_blocks, row.last_block),
    )
