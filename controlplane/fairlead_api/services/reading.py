"""What the public read endpoints ask for: filters, and the port they are answered through."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fairlead.tables import PoolKey
from fairlead_api.services.pool_mirroring import RouterView
from fairlead_client.resources import (
    AuditEntry,
    Condition,
    InstanceDetail,
    InstanceSummary,
    Migration,
    MigrationMatrix,
    Page,
    PoolDetail,
    PoolEventItem,
    PoolRevision,
    PoolSummary,
    RejectionReport,
    ReRoute,
    RoutingDecision,
    SessionDetail,
    SessionSummary,
    SloVersion,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a list: from a cursor, at most `limit` rows."""

    cursor: str | None = None
    limit: int = 50


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


class PoolReader(Protocol):
    """Pools and what belongs to them. Single reads raise NotFound."""

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]: ...

    async def pool(self, pool: PoolKey, now: datetime) -> PoolDetail: ...

    async def instances(self, pool: PoolKey, span: Span, now: datetime) -> Page[InstanceSummary]: ...

    async def instance(self, pool: PoolKey, instance: str, now: datetime) -> InstanceDetail: ...

    async def revisions(self, pool: PoolKey, span: Span) -> Page[PoolRevision]: ...

    async def events(self, pool: PoolKey, span: Span) -> Page[PoolEventItem]: ...

    async def slo_versions(self, pool: PoolKey, span: Span, now: datetime) -> Page[SloVersion]: ...


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


def table_acknowledged(version: int, routers: Sequence[RouterView]) -> bool:
    """Whether every live router routes by `version` or a newer one. Pure."""
    return all(router.acknowledged is not None and router.acknowledged >= version for router in routers)


def ready_condition(conditions: Sequence[Condition], problem: str | None) -> Condition:
    """The pool's Ready condition; without one, why there is none. Pure."""
    for condition in conditions:
        if condition.type == "Ready":
            return condition
    if problem is not None:
        return Condition(type="Ready", status="False", reason="InvalidSpec", message=problem)
    return Condition(type="Ready", status="Unknown", reason="NotReported", message="The operator has not reported conditions yet.")
