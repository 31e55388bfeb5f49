"""A session's row while a report (or a drain) is applied to it, and how rows, holders and migrations are written back."""

# ruff: noqa: S608 (statements are put together from this module's own constants; values are always bound)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports import Binding, BindingChange, BindingReason, MigrationRecord, Move, MoveOutcome, ReRouteRecord
from fairlead.tables import PoolKey
from fairlead_api.services.binding_races import Held, next_version
from fairlead_api.store import tables
from fairlead_api.store.database import moment

MAX_ID = 2200
"""Longest id made here for a migration a router sent no record of."""


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
    holders: list[dict[str, Any]] = field(default_factory=list)
    released: dict[int, datetime] = field(default_factory=dict)
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
        )


def bind(
    row: SessionRow,
    change: BindingChange,
    router: str,
    batch: str,
    records: Mapping[tuple[PoolKey, str, str], MigrationRecord],
    extra: list[MigrationRecord],
) -> None:
    """Gives the session its new home: history, and for a move its migration (the router's own record, or one made here if it sent none)."""
    at = moment(change.at)
    source = row.held.instance or (change.previous if row.held.version else None)
    version = next_version(change, row.held)
    migration: str | None = None
    if source is not None and source != change.instance:
        record = records.get((change.pool, change.session, change.instance))
        if record is None:
            record = bare_record(change, source, f"{batch}:{change.session}:{version}"[:MAX_ID])
            extra.append(record)
        migration = record.id
        row.migrations += 1
        row.migrated_at = at
    if row.held.instance is not None:
        row.released[row.held.version] = at
    row.held = Held(instance=change.instance, version=version, router=router)
    row.reason, row.bound_at, row.changed = change.reason.value, at, True
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
            "migration": migration,
        }
    )


def bare_record(change: BindingChange, source: str, name: str) -> MigrationRecord:
    return MigrationRecord(
        id=name,
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


def _arrays(types: Mapping[str, str]) -> str:
    """Parameters of one unnest: `CAST(:a AS text[]), …`."""
    return ", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in types.items())


def _columns(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in types}


async def save_sessions(connection: AsyncConnection, rows: Sequence[SessionRow]) -> None:
    """Writes rows back with their new holders and the ends of the old ones, in three statements however many rows."""
    if not rows:
        return
    keys = {"of_pool": "int", "of_session": "text"}
    sessions = [
        {
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
        }
        for row in rows
    ]
    types = {**keys, **_SESSIONS}
    await connection.execute(
        text(
            f"UPDATE sessions s SET {', '.join(f'{name} = n.{name}' for name in _SESSIONS)} FROM unnest({_arrays(types)}) "
            f"AS n({', '.join(types)}) WHERE s.pool_id = n.of_pool AND s.session = n.of_session"
        ),
        _columns(sessions, types),
    )
    holders = [holder for row in rows for holder in row.holders]
    if holders:
        names = ", ".join(_HOLDERS)
        await connection.execute(
            text(f"INSERT INTO bindings ({names}) SELECT {names} FROM unnest({_arrays(_HOLDERS)}) AS n({names})"),
            _columns(holders, _HOLDERS),
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
                f"UPDATE bindings b SET released_at = n.until FROM unnest({_arrays(ended)}) AS n({', '.join(ended)}) "
                "WHERE b.pool_id = n.of_pool AND b.session = n.of_session AND b.version = n.of_version"
            ),
            _columns(released, ended),
        )


async def save_migrations(connection: AsyncConnection, records: Sequence[MigrationRecord], router: str, ids: dict[PoolKey, int]) -> None:
    rows = [{**move_row(record, router, ids[record.pool]), "session": record.session} for record in records if record.pool in ids]
    if rows:
        await connection.execute(upsert(tables.migrations).on_conflict_do_nothing(), sorted(rows, key=lambda row: str(row["id"])))


async def save_reroutes(connection: AsyncConnection, records: Sequence[ReRouteRecord], router: str, ids: dict[PoolKey, int]) -> None:
    rows = [
        {**move_row(record, router, ids[record.pool]), "session": record.session, "request": record.request}
        for record in records
        if record.pool in ids
    ]
    if rows:
        await connection.execute(upsert(tables.reroutes).on_conflict_do_nothing(), sorted(rows, key=lambda row: str(row["id"])))


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
