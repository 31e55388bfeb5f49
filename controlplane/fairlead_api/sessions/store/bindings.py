"""Applies the binding changes in a report to the rows of their sessions: stores history and migrations, and collects
the responses for the router.

Rows are read and written in bulk, with a fixed number of statements.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.binding_races import Held, Verdict, judge
from fairlead.instances import InstanceState
from fairlead.reports.batches import Report
from fairlead.reports.bindings import Binding, BindingChange
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra import notifying
from fairlead_api.infra.database import moment
from fairlead_api.infra.notices import BindingsChanged
from fairlead_api.moves.store import save_migrations
from fairlead_api.sessions.store.rows import SessionRow, add_sessions, bind, give_up, lock_sessions, save_sessions

Key = tuple[int, str]

_HOLD_POOLS = text("SELECT id FROM pools WHERE id = ANY(:pools) ORDER BY id FOR KEY SHARE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of applying binding changes.

    A change loses if another router's change of the same session takes precedence. `lost` has the ids of the changes
    that lost, each with the session's present binding. `lost_moves` is the number of migrations, by pool, that were not
    stored because their change lost.
    """

    lost: dict[str, Binding]
    lost_moves: Counter[PoolKey]


async def apply_bindings(connection: AsyncConnection, report: Report, ids: Mapping[PoolKey, int], ignored: Counter[str]) -> Applied:
    """Apply the report's binding changes in order. The migration that belongs to a change is stored only if the change
    takes effect.
    """
    changes = [change for change in report.bindings if change.pool in ids]
    if len(changes) < len(report.bindings):
        ignored["unknown-pool"] += len(report.bindings) - len(changes)
    pools = (*(change.pool for change in changes), *(decision.pool for decision in report.decisions))
    await _hold_pools(connection, {ids[pool] for pool in pools if pool in ids})
    alive = await _alive(connection, {change.instance for change in changes})
    judging = _Judging(report, changes, ids, alive)
    wanted = {*judging.changes, *judging.seen}
    rows = {(row.pool_id, row.session): row for row in await lock_sessions(connection, list(wanted), judging.pools)}
    judging.judge(rows, judging.changes.keys() - rows.keys())
    raced = await add_sessions(connection, [row for row in rows.values() if row.new and row.changed])
    if raced:
        rows.update({(row.pool_id, row.session): row for row in await lock_sessions(connection, list(raced), judging.pools)})
        judging.judge({key: rows[key] for key in raced}, ())
    ignored["unknown-instance"] += judging.unknown
    await save_sessions(connection, [row for row in rows.values() if row.touched and (row.changed or not row.new)])
    moves = [move for row in rows.values() for move in row.moves]
    await save_migrations(connection, moves, report.router, dict(ids))
    moved = tuple(row.binding() for row in rows.values() if row.changed)
    if moved:
        await notifying.send(connection, [BindingsChanged(moved)])
    made = {move.id for move in moves}
    lost_moves = Counter(record.pool for record in report.migrations if record.id not in made and record.pool in ids)
    await _count_lost_moves(connection, report.router, {ids[pool]: count for pool, count in lost_moves.items()})
    return Applied(lost={name: row.binding() for row in rows.values() for name in row.lost}, lost_moves=lost_moves)


class _Judging:
    """The binding changes of one report by session, and the resulting content of the sessions' rows."""

    def __init__(self, report: Report, changes: Sequence[BindingChange], ids: Mapping[PoolKey, int], alive: set[Key]) -> None:
        self.pools = {pool_id: pool for pool, pool_id in ids.items()}
        self.changes: dict[Key, list[BindingChange]] = {}
        self.seen: dict[Key, float] = {}
        self._router = report.router
        self._alive = alive
        self._records = {record.id: record for record in report.migrations}
        for change in changes:
            self.changes.setdefault((ids[change.pool], change.session), []).append(change)
        for decision in report.decisions:
            if decision.session is not None and decision.pool in ids:
                key = (ids[decision.pool], decision.session)
                self.seen[key] = max(self.seen.get(key, 0.0), decision.at)
        self.unknown = sum((pool_id, change.instance) not in alive for (pool_id, _), group in self.changes.items() for change in group)

    def judge(self, rows: dict[Key, SessionRow], absent: Any) -> None:
        """Apply the changes to the existing rows `rows`, and to new rows for the sessions in `absent`, which
        have none.
        """
        for key in absent:
            rows[key] = self._new_row(key)
        for key, row in rows.items():
            for change in self.changes.get(key, ()):
                self._apply(row, change)
            if key in self.seen:
                row.last_seen_at = max(row.last_seen_at, moment(self.seen[key]))
                row.touched = True

    def _apply(self, row: SessionRow, change: BindingChange) -> None:
        if change.shared:
            row.last_seen_at = max(row.last_seen_at, moment(change.at))
            if row.held.version:
                give_up(row, change)
            return
        known = (row.pool_id, change.instance) in self._alive
        verdict = judge(change, row.held) if known else Verdict.CONFLICT
        if verdict is Verdict.CONFLICT:
            row.lost.append(change.id)
            return
        row.last_seen_at = max(row.last_seen_at, moment(change.at))
        row.context_tokens = change.context_tokens or row.context_tokens
        row.touched = True
        if verdict is Verdict.BIND:
            bind(row, change, self._router, self._records.get(change.id))
        elif row.held.rank is None and change.rank is not None:
            row.held = replace(row.held, rank=change.rank)  # its router found out which ranks there are

    def _new_row(self, key: Key) -> SessionRow:
        first = self.changes[key][0]
        return SessionRow(
            pool=self.pools[key[0]],
            pool_id=key[0],
            session=key[1],
            held=Held(instance=None, version=0, router=self._router),
            reason=first.reason.value,
            bound_at=moment(first.at),
            migrated_at=None,
            last_seen_at=moment(first.at),
            migrations=0,
            context_tokens=0,
            new=True,
        )


async def _hold_pools(connection: AsyncConnection, pools: Collection[int]) -> None:
    """Wait for transactions that change the instances of these pools, and block further such transactions until the
    present transaction ends.

    Without this lock, an instance could disappear after its existence was checked and before a session is bound to it.
    It is the lock that Postgres takes on a pool's row whenever a row that refers to the pool is stored. It is taken
    before the locks on sessions, as in transactions that unbind sessions.
    """
    if pools:
        await connection.execute(_HOLD_POOLS, {"pools": list(pools)})


async def _alive(connection: AsyncConnection, instances: set[str]) -> set[Key]:
    """Return the named instances that exist and are not in the state Gone, each with its pool's id."""
    if not instances:
        return set()
    table = tables.instances
    rows = await connection.execute(
        select(table.c.pool_id, table.c.id).where(table.c.id.in_(instances), table.c.state != InstanceState.GONE.value)
    )
    return {(pool_id, instance) for pool_id, instance in rows}


async def _count_lost_moves(connection: AsyncConnection, router: str, counts: Mapping[int, int]) -> None:
    if not counts:
        return
    row = upsert(tables.lost_moves)
    statement = row.on_conflict_do_update(
        index_elements=["pool_id", "router", "minute"], set_={"moves": tables.lost_moves.c.moves + row.excluded.moves}
    )
    minute = func.date_trunc("minute", text("now()"))
    for pool_id, moves in sorted(counts.items()):
        await connection.execute(statement.values(pool_id=pool_id, router=router, minute=minute, moves=moves))
