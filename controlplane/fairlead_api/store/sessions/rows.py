"""A session's row while a report (or a drain) is applied to it, and how rows, holders and migrations are written back."""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.binding_races import Held, next_version
from fairlead.reports import Binding, BindingChange, BindingReason, MigrationRecord, Move, MoveOutcome, ReRouteRecord
from fairlead.tables import PoolKey
from fairlead_api.store.database import moment

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
    ended_at: datetime | None = None
    """When its last holder was let go, if nobody holds it."""
    new: bool = False
    """Whether there is no such row yet."""
    holders: list[dict[str, Any]] = field(default_factory=list)
    released: dict[int, datetime] = field(default_factory=dict)
    moves: list[MigrationRecord] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Ids of changes that did not bind."""
    touched: bool = False
    changed: bool = False

    def binding(self) -> Binding:
        return Binding(
            pool=self.pool,
            session=self.session,
            instance=self.held.instance,
            version=self.held.version,
            reason=BindingReason(self.reason),
            bound_at=self.bound_at.timestamp(),
            migrated_at=self.migrated_at.timestamp() if self.migrated_at else None,
            context_tokens=self.context_tokens,
            change=self.held.change,
        )


def bind(row: SessionRow, change: BindingChange, router: str, record: MigrationRecord | None) -> None:
    """Gives the session its new home: history, and for a move its migration (the router's own record, or one made here if it sent none).

    Routers' clocks differ, and history must not run backwards: a binding begins no earlier than the one before it did.
    """
    at = max(moment(change.at), row.ended_at or (row.bound_at if row.held.version else _BEGINNING))
    source = row.held.instance or (change.previous if row.held.version or record is not None else None)
    version = next_version(change, row.held)
    moved = source is not None and source != change.instance
    if moved:
        row.moves.append(record if record is not None and record.source == source else bare_record(change, source or ""))
        row.migrations += 1
        row.migrated_at = at
    if row.holders and row.held.instance is not None:
        row.holders[-1]["released_at"] = at
    elif row.held.instance is not None:
        row.released[row.held.version] = at
    row.held = Held(instance=change.instance, version=version, router=router, change=change.id)
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
        }
    )


def bare_record(change: BindingChange, source: str) -> MigrationRecord:
    """A migration of which only the binding is known. It has the change's id, as a router's own record has."""
    return MigrationRecord(
        id=change.id,
        pool=change.pool,
        session=change.session,
        request="",
        source=source,
        target=change.instance,
        trigger=change.reason,
        at=change.at,
        predicted_source_ttft_seconds=None,
        predicted_target_ttft_seconds=None,
        benefit_seconds=None,
        tokens_recomputed=change.context_tokens,
        outcome=MoveOutcome.COMPLETED,
    )


_SESSIONS: dict[str, str] = {
    "instance": "text",
    "version": "bigint",
    "reason": "text",
    "router": "text",
    "bound_at": "timestamptz",
    "migrated_at": "timestamptz",
    "last_seen_at": "timestamptz",
    "migrations": "bigint",
    "context_tokens": "bigint",
    "change": "text",
}
_HOLDERS: dict[str, str] = {
    "pool_id": "int",
    "session": "text",
    "version": "bigint",
    "instance": "text",
    "reason": "text",
    "router": "text",
    "bound_at": "timestamptz",
    "released_at": "timestamptz",
    "migration": "text",
}

_MOVES: dict[str, str] = {
    "id": "text",
    "pool_id": "int",
    "session": "text",
    "request": "text",
    "source": "text",
    "target": "text",
    "trigger": "text",
    "at": "timestamptz",
    "router": "text",
    "predicted_source_ttft_seconds": "float8",
    "predicted_target_ttft_seconds": "float8",
    "benefit_seconds": "float8",
    "actual_ttft_seconds": "float8",
    "tokens_moved": "bigint",
    "tokens_recomputed": "bigint",
    "outcome": "text",
}


def _rows(types: Mapping[str, str]) -> str:
    """The parameter `:rows`, a JSON list of objects, as a table `n`: many times faster to bind than an array for each column."""
    return f"json_to_recordset(CAST(:rows AS json)) AS n({', '.join(f'{name} {kind}' for name, kind in types.items())})"


def _bound(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {"rows": msgspec.json.encode(rows).decode()}


def _values(row: SessionRow) -> dict[str, Any]:
    return {
        "of_pool": row.pool_id,
        "of_session": row.session,
        "instance": row.held.instance,
        "version": row.held.version,
        "reason": row.reason,
        "router": row.held.router,
        "bound_at": row.bound_at,
        "migrated_at": row.migrated_at,
        "last_seen_at": row.last_seen_at,
        "migrations": row.migrations,
        "context_tokens": row.context_tokens,
        "change": row.held.change,
    }


async def lock_sessions(connection: AsyncConnection, keys: Sequence[tuple[int, str]], pools: Mapping[int, PoolKey]) -> list[SessionRow]:
    """The rows there are of these (pool id, session), locked in one order everywhere so that nobody deadlocks."""
    if not keys:
        return []
    wanted = sorted(keys)
    found = await connection.execute(
        text(
            "SELECT s.*, CASE WHEN s.instance IS NULL THEN (SELECT max(b.released_at) FROM bindings b "
            "WHERE b.pool_id = s.pool_id AND b.session = s.session) END AS ended_at "
            f"FROM sessions s JOIN {_rows({'p': 'int', 'k': 'text'})} "
            "ON s.pool_id = n.p AND s.session = n.k ORDER BY s.pool_id, s.session FOR UPDATE OF s"
        ),
        _bound([{"p": pool, "k": session} for pool, session in wanted]),
    )
    return [
        SessionRow(
            pool=pools[row.pool_id],
            pool_id=row.pool_id,
            session=row.session,
            held=Held(instance=row.instance, version=row.version, router=row.router, change=row.change),
            reason=row.reason,
            bound_at=row.bound_at,
            migrated_at=row.migrated_at,
            last_seen_at=row.last_seen_at,
            migrations=row.migrations,
            context_tokens=row.context_tokens,
            ended_at=row.ended_at,
        )
        for row in found
    ]


async def add_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> set[tuple[int, str]]:
    """Writes rows that were not there, without their holders; returns the keys of those that another writer has made meanwhile."""
    if not rows:
        return set()
    types = {"of_pool": "int", "of_session": "text", **_SESSIONS}
    added = await connection.execute(
        text(
            f"INSERT INTO sessions (pool_id, session, {', '.join(_SESSIONS)}) SELECT {', '.join(types)} FROM {_rows(types)} "
            "ORDER BY of_pool, of_session ON CONFLICT DO NOTHING RETURNING pool_id, session"
        ),
        _bound([_values(row) for row in rows]),
    )
    made = {(pool_id, session) for pool_id, session in added}
    return {(row.pool_id, row.session) for row in rows} - made


async def save_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Writes rows back with their new holders and the ends of the old ones, in three statements however many rows."""
    keys = {"of_pool": "int", "of_session": "text"}
    sessions = [_values(row) for row in rows if not row.new]
    types = {**keys, **_SESSIONS}
    if sessions:
        await connection.execute(
            text(
                f"UPDATE sessions s SET {', '.join(f'{name} = n.{name}' for name in _SESSIONS)} FROM {_rows(types)} "
                "WHERE s.pool_id = n.of_pool AND s.session = n.of_session"
            ),
            _bound(sessions),
        )
    holders = [holder for row in rows for holder in row.holders]
    if holders:
        names = ", ".join(_HOLDERS)
        await connection.execute(
            text(f"INSERT INTO bindings ({names}) SELECT {names} FROM {_rows(_HOLDERS)}"),
            _bound(holders),
        )
    released = [
        {"of_pool": row.pool_id, "of_session": row.session, "of_version": version, "until": at}
        for row in rows
        for version, at in row.released.items()
    ]
    if released:
        ended = {**keys, "of_version": "bigint", "until": "timestamptz"}
        await connection.execute(
            text(
                f"UPDATE bindings b SET released_at = n.until FROM {_rows(ended)} "
                "WHERE b.pool_id = n.of_pool AND b.session = n.of_session AND b.version = n.of_version"
            ),
            _bound(released),
        )


async def save_migrations(connection: AsyncConnection, records: Sequence[MigrationRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Stores session migrations; one that is there stays as it is."""
    await _save_moves(connection, "migrations", records, router, ids)


async def save_reroutes(connection: AsyncConnection, records: Sequence[ReRouteRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Stores re-routes; one that is there stays as it is."""
    await _save_moves(connection, "reroutes", records, router, ids)


async def _save_moves(
    connection: AsyncConnection, table: str, records: Sequence[MigrationRecord | ReRouteRecord], router: str, ids: Mapping[PoolKey, int]
) -> None:
    rows = [{**move_row(record, router, ids[record.pool]), "session": record.session} for record in records if record.pool in ids]
    if rows:
        names = ", ".join(_MOVES)
        await connection.execute(
            text(f"INSERT INTO {table} ({names}) SELECT {names} FROM {_rows(_MOVES)} ORDER BY id ON CONFLICT DO NOTHING"), _bound(rows)
        )


def move_row(record: Move, router: str, pool_id: int) -> dict[str, Any]:
    """What the tables of both sorts of move have of a record."""
    return {
        "id": record.id,
        "pool_id": pool_id,
        "request": record.request or None,
        "source": record.source,
        "target": record.target,
        "trigger": record.trigger.value,
        "at": moment(record.at),
        "router": router,
        "predicted_source_ttft_seconds": record.predicted_source_ttft_seconds,
        "predicted_target_ttft_seconds": record.predicted_target_ttft_seconds,
        "benefit_seconds": record.benefit_seconds,
        "actual_ttft_seconds": record.actual_ttft_seconds,
        "tokens_moved": record.tokens_moved,
        "tokens_recomputed": record.tokens_recomputed,
        "outcome": record.outcome.value,
    }
