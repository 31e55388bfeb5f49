"""A session's row while a report (or a drain) is applied to it."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.binding_races import Held, next_version
from fairlead.reports.bindings import Binding, BindingChange, told_reason
from fairlead.reports.moves import MigrationRecord, MoveOutcome
from fairlead.tables import PoolKey
from fairlead_api.infra.database import moment
from fairlead_api.infra.records import read

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
    """When its name was last found to be shared by several conversations."""
    ended_at: datetime | None = None
    """When its last holder was released, if nobody holds it."""
    new: bool = False
    """Whether the table has no row for it yet."""
    holders: list[dict[str, Any]] = field(default_factory=list)
    released: dict[int, datetime] = field(default_factory=dict)
    moves: list[MigrationRecord] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Ids of changes that did not bind."""
    touched: bool = False
    changed: bool = False

    @classmethod
    def stored(cls, row: Any, pool: PoolKey) -> "SessionRow":
        """A session's row, as read from the table `sessions`."""
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
"""A binding so soon after its name was found to be shared comes from a router that has not heard of it yet."""


def give_up(row: SessionRow, change: BindingChange) -> None:
    """The session's name was found to be shared: nobody holds it any more."""
    at = max(moment(change.at), row.bound_at)
    if row.held.instance is not None:
        _release(row, at)
        row.held = replace(row.held, instance=None, rank=None)
        row.ended_at = at
    row.shared_at, row.changed, row.touched = at, True, True


def _release(row: SessionRow, at: datetime) -> None:
    """Its holder held it until then."""
    if row.holders:
        row.holders[-1]["released_at"] = at
    else:
        row.released[row.held.version] = at


def bind(row: SessionRow, change: BindingChange, router: str, record: MigrationRecord | None) -> None:
    """Gives the session its new home: adds history and, for a move, its migration.

    The migration is the router's record, or one made here if the router sent none. Routers' clocks differ, and history
    must not run backwards: a binding begins no earlier than the one before it did.
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
    """A migration of which only the binding is known. It has the change's id, as a record from the router would."""
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
