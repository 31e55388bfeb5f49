"""What the endpoints of history ask for: filters, and the port that answers them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fairlead.tables import PoolKey
from fairlead_api.services.spans import Span
from fairlead_client.resources.audit import AuditEntry
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, MigrationMatrix, ReRoute
from fairlead_client.resources.pages import Page
from fairlead_client.resources.rejections import RejectionReport
from fairlead_client.resources.sessions import SessionDetail, SessionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """`q` is any part of a session's name."""

    pool: str | None = None
    instance: str | None = None
    q: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFilter:
    """Of migrations or of re-routes. `paid_off` False finds those whose first token came no sooner than predicted for staying."""

    pool: str | None = None
    source: str | None = None
    target: str | None = None
    trigger: str | None = None
    outcome: str | None = None
    session: str | None = None
    paid_off: bool | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """`instance` matches the chosen one."""

    pool: str | None = None
    instance: str | None = None
    session: str | None = None
    reason: str | None = None
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """`actor`, `action` and `object` are exact, or beginnings when they end in `*`."""

    actor: str | None = None
    action: str | None = None
    object: str | None = None
    start: datetime | None = None
    end: datetime | None = None


class HistoryReader(Protocol):
    """Sessions, migrations, re-routes, decisions, rejections, audit. Single reads raise NotFound."""

    async def sessions(self, wanted: SessionFilter, span: Span) -> Page[SessionSummary]: ...

    async def session(self, pool: PoolKey, session: str) -> SessionDetail: ...

    async def migrations(self, wanted: MoveFilter, span: Span) -> Page[Migration]: ...

    async def migration(self, migration_id: str) -> Migration: ...

    async def migration_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix: ...

    async def reroutes(self, wanted: MoveFilter, span: Span) -> Page[ReRoute]: ...

    async def reroute(self, reroute_id: str) -> ReRoute: ...

    async def reroute_matrix(self, wanted: MoveFilter, now: datetime) -> MigrationMatrix: ...

    async def decisions(self, wanted: DecisionFilter, span: Span) -> Page[RoutingDecision]: ...

    async def decision(self, decision_id: str) -> RoutingDecision: ...

    async def rejections(self, pool: str | None, start: datetime, end: datetime) -> RejectionReport: ...

    async def audit(self, wanted: AuditFilter, span: Span) -> Page[AuditEntry]: ...

    async def audit_entry(self, entry_id: int) -> AuditEntry: ...
