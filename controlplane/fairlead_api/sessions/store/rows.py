"""Holds the rows of sessions, with their present and earlier instances, while a report or a drain changes them. Rows
are locked in one order and written in bulk. Also unbinds sessions whose instance is gone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ARRAY, Text, bindparam, case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.binding_races import Held, next_version
from fairlead.reports.bindings import Binding, BindingChange, told_reason
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead.tables import PoolKey
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import bound, read, recordset
from fairlead_api.tables import bindings, sessions

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class SessionRow:
    """A session's row while a report is applied to it."""

    pool: PoolKey
    pool_id: int
    session: str
    held: Held
    reason: str
    bound_at: datetime
    migrated_at: datetime | None
    last_seen_at: datetime
    migrations: int
    context_tokens: int
    shared_at: datetime | None = None
    """Time at which the session's name was last found to be used by several conversations."""
    ended_at: datetime | None = None
    """Time at which the session was released from its last instance; None while it is bound to an instance."""
    new: bool = False
    """Whether the table has no row for the session yet."""
    holders: list[dict[str, Any]] = field(default_factory=list)
    released: dict[int, datetime] = field(default_factory=dict)
    moves: list[MigrationRecord] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Ids of the binding changes that did not take effect, because another router's change came first."""
    touched: bool = False
    changed: bool = False

    @classmethod
    def stored(cls, row: Any, pool: PoolKey) -> "SessionRow":
        """Return a session's row, converted from a row of the table `sessions`."""
        return read(cls, row, pool=pool, held=read(Held, row))

    def binding(self) -> Binding:
        return Binding(
            pool=self.pool,
            session=self.session,
            instance=self.held.instance,
            rank=self.held.rank,
            version=self.held.version,
            reason=told_reason(self.reason),
            bound_at=self.bound_at.timestamp(),
            migrated_at=self.migrated_at.timestamp() if self.migrated_at else None,
            context_tokens=self.context_tokens,
            change=self.held.change,
            shared_at=self.shared_at.timestamp() if self.shared_at else None,
        )


SHARED_SECONDS = 30.0
"""Seconds for which the name of a session stays marked as shared by several conversations. During this time, binding
the session does not remove the mark, because the router that binds it may not know of the mark yet.
"""


def give_up(row: SessionRow, change: BindingChange) -> None:
    """Release the session from its instance, because its name was found to be shared by several conversations."""
    at = max(moment(change.at), row.bound_at)
    if row.held.instance is not None:
        _release(row, at)
        row.held = replace(row.held, instance=None, rank=None)
        row.ended_at = at
    row.shared_at, row.changed, row.touched = at, True, True


def _release(row: SessionRow, at: datetime) -> None:
    """Record that the present holder held the session until `at`."""
    if row.holders:
        row.holders[-1]["released_at"] = at
    else:
        row.released[row.held.version] = at


def bind(row: SessionRow, change: BindingChange, router: str, record: MigrationRecord | None) -> None:
    """Bind the session to the instance that the change names: add history and, for a move, the migration.

    The migration is the router's `record`; if the router sent none, a migration is made here. Routers' clocks differ,
    so the change may have an earlier time than the previous binding. Then it begins at the time of the previous
    binding, so that history does not run backwards.
    """
    at = max(moment(change.at), row.ended_at or (row.bound_at if row.held.version else _BEGINNING))
    source, rank = row.held.instance, row.held.rank
    if source is None and (row.held.version or record is not None):
        source, rank = change.previous, change.previous_rank
    version = next_version(change, row.held)
    moved = source is not None and (source, rank) != (change.instance, change.rank)
    if moved:
        told = record is not None and (record.source, record.source_rank) == (source, rank)
        row.moves.append(record if record is not None and told else bare_record(change, source or "", rank))
        row.migrations += 1
        row.migrated_at = at
    if row.held.instance is not None:
        _release(row, at)
    if row.shared_at is not None and at - row.shared_at > timedelta(seconds=SHARED_SECONDS):
        row.shared_at = None
    row.held = Held(instance=change.instance, version=version, router=router, change=change.id, rank=change.rank)
    row.reason, row.bound_at, row.ended_at, row.changed = change.reason.value, at, None, True
    row.holders.append(
        {
            "pool_id": row.pool_id,
            "session": row.session,
            "version": version,
            "instance": change.instance,
            "reason": change.reason.value,
            "router": router,
            "bound_at": at,
            "released_at": None,
            "migration": change.id if moved else None,
            "rank": change.rank,
        }
    )


def bare_record(change: BindingChange, source: str, rank: int | None) -> MigrationRecord:
    """Return a migration record for a binding change without a router's record. It has the change's id, like a router's
    record.
    """
    return MigrationRecord(
        id=change.id,
        pool=change.pool,
        session=change.session,
        request="",
        source=source,
        source_rank=rank,
        target=change.instance,
        target_rank=change.rank,
        trigger=change.reason,
        at=change.at,
        predicted_source_ttft_seconds=None,
        predicted_target_ttft_seconds=None,
        benefit_seconds=None,
        tokens_recomputed=change.context_tokens,
        outcome=MoveOutcome.COMPLETED,
    )


_HELD = frozenset(one.name for one in fields(Held))
_NAMES = sessions.c.keys()
_VALUES = [one.name for one in sessions.columns if not one.primary_key]

_wanted = recordset([sessions.c.pool_id, sessions.c.session])
_ended_at = (
    select(func.max(bindings.c.released_at))
    .where(bindings.c.pool_id == sessions.c.pool_id, bindings.c.session == sessions.c.session)
    .correlate(sessions)
    .scalar_subquery()
)
_LOCK = (
    select(sessions, case((sessions.c.instance.is_(None), _ended_at)).label("ended_at"))
    .join(_wanted, (sessions.c.pool_id == _wanted.c.pool_id) & (sessions.c.session == _wanted.c.session))
    .order_by(sessions.c.pool_id, sessions.c.session)
    .with_for_update(of=sessions)
)

_written = recordset(sessions.columns)
_ADD = (
    insert(sessions)
    .from_select(_NAMES, select(*_written.c).order_by(_written.c.pool_id, _written.c.session))
    .on_conflict_do_nothing()
    .returning(sessions.c.pool_id, sessions.c.session)
)
_SAVE = (
    update(sessions)
    .where(sessions.c.pool_id == _written.c.pool_id, sessions.c.session == _written.c.session)
    .values({name: _written.c[name] for name in _VALUES})
)

_held = recordset(bindings.columns)
_ADD_HOLDERS = insert(bindings).from_select(bindings.c.keys(), select(*_held.c))

_ended = recordset([bindings.c.pool_id, bindings.c.session, bindings.c.version, bindings.c.released_at])
_END_HOLDERS = (
    update(bindings)
    .where(bindings.c.pool_id == _ended.c.pool_id, bindings.c.session == _ended.c.session, bindings.c.version == _ended.c.version)
    .values(released_at=_ended.c.released_at)
)


async def lock_sessions(connection: AsyncConnection, keys: Sequence[tuple[int, str]], pools: Mapping[int, PoolKey]) -> list[SessionRow]:
    """Return the existing rows of these (pool id, session) pairs. All callers lock rows in the same order, so that no
    deadlock arises.
    """
    if not keys:
        return []
    found = await connection.execute(_LOCK, bound([{"pool_id": pool, "session": session} for pool, session in sorted(keys)]))
    return [SessionRow.stored(row, pools[row.pool_id]) for row in found]


async def add_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> set[tuple[int, str]]:
    """Write new rows, without their holders. Returns the keys of those rows that another writer created first."""
    if not rows:
        return set()
    added = await connection.execute(_ADD, bound([_row(row) for row in rows]))
    made = {(pool_id, session) for pool_id, session in added}
    return {(row.pool_id, row.session) for row in rows} - made


async def save_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Write changed rows of sessions, with their new holders and the times at which earlier holders were released. Uses
    three statements in total.
    """
    changed = [_row(row) for row in rows if not row.new]
    if changed:
        await connection.execute(_SAVE, bound(changed))
    holders = [holder for row in rows for holder in row.holders]
    if holders:
        await connection.execute(_ADD_HOLDERS, bound(holders))
    ended = [
        {"pool_id": row.pool_id, "session": row.session, "version": version, "released_at": at}
        for row in rows
        for version, at in row.released.items()
    ]
    if ended:
        await connection.execute(_END_HOLDERS, bound(ended))


def _row(row: SessionRow) -> dict[str, Any]:
    return {name: getattr(row.held if name in _HELD else row, name) for name in _NAMES}


AT_ONCE = 20_000
"""Maximum number of sessions that one statement reads or writes, so that a statement stays within its time limit."""


async def unbind(connection: AsyncConnection, pool_id: int, now: datetime, instances: Collection[str] | None = None) -> None:
    """Unbind the pool's sessions that these instances hold, or all its sessions if `instances` is None. The history
    records the end of each binding.

    Routers receive no notice. Each router remembers the last instance of a session, and reports this instance and the
    reason for leaving it with the session's next request.

    The sessions' rows are not loaded into this process, because there may be hundreds of thousands of them. They are
    locked in the order in which reports lock them. While this runs, reports wait for the pool's row.
    """
    if instances is not None and not instances:
        return
    gone = bindparam("gone", sorted(instances or ()), type_=ARRAY(Text))
    is_held = sessions.c.instance.is_not(None) if instances is None else sessions.c.instance == func.any(gone)
    some = select(sessions.c.session).where(sessions.c.pool_id == pool_id, is_held).order_by(sessions.c.session).limit(AT_ONCE)
    held = some.with_for_update().cte("held")
    freed = (
        update(sessions)
        .where(sessions.c.pool_id == pool_id, sessions.c.session == held.c.session)
        .values(instance=None, rank=None)
        .returning(sessions.c.session)
        .cte("freed")
    )
    released = (
        update(bindings)
        .where(bindings.c.pool_id == pool_id, bindings.c.session == freed.c.session, bindings.c.released_at.is_(None))
        .values(released_at=func.greatest(now, bindings.c.bound_at))
        .returning(bindings.c.session)
        .cte("released")
    )
    statement = select(func.count()).select_from(freed).add_cte(released)
    while (await connection.execute(statement)).scalar_one() == AT_ONCE:
        pass
