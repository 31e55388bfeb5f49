"""Reads the audit log for the public API. Also finds the authors of pool changes in the Kubernetes API's audit log, and
names them in the pools' revisions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Boolean, ColumnElement, func, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api import tables
from fairlead_api.audit.cluster_events import CLUSTER, ClusterChange, Seen, actors, changers, in_sight, kind_of
from fairlead_api.audit.tables import BY_THE_SYSTEM
from fairlead_api.infra import audit_log
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.object_marks import FIELD_MANAGER
from fairlead_api.infra.paging import Test, between, narrowed, page
from fairlead_api.infra.records import read
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.tables import audit_log as log
from fairlead_client.resources.audit import AuditAction, AuditEntry, AuditFacet, AuditFacets, AuditKind
from fairlead_client.resources.pages import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Filter of the audit log. `actor`, `action` and `object` must match exactly, but a value that ends in `*` matches
    every text with that prefix.

    `pool` matches actions on the pool and on everything that belongs to it, such as its instances.
    """

    pool: str | None = None
    actor: str | None = None
    action: str | None = None
    object: str | None = None
    kind: AuditKind | None = None
    start: datetime | None = None
    end: datetime | None = None


LOOKED_BACK = 20
"""Number of a pool's newest revisions whose author may still be added by an audit event that arrives late."""
NEVER = Seen(version=0, generation=0)


class PostgresClusterChanges:
    """Stores the changes of pools that were seen in the cluster, and their authors."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, changes: Sequence[ClusterChange], now: datetime) -> int:
        """Store new changes of pools, and return their number. Revisions that name only a field manager get the users
        who made these changes as their author.
        """
        if not changes:
            return 0

        async def work(connection: AsyncConnection) -> int:
            stored = insert(tables.cluster_changes).on_conflict_do_nothing().returning(tables.cluster_changes.c.uid)
            new = (
                (await connection.execute(stored, [msgspec.to_builtins(one, builtin_types=(datetime,)) for one in changes])).scalars().all()
            )
            drafts: list[AuditDraft] = []
            for uid in sorted(set(new)):  # in one order, as each locks a pool
                await _attribute(connection, uid, drafts)
            await audit_log.append(connection, drafts, now)
            return len(new)

        return await self._database.writing(work)


async def author_of(connection: AsyncConnection, pool_id: int, uid: str, until: Seen) -> str | None:
    """Return the users who changed the pool's spec after its stored revision, up to the next revision, which was seen
    at `until`. None if no audit event names them yet.
    """
    revisions = tables.pool_revisions
    query = select(revisions).where(revisions.c.pool_id == pool_id).order_by(revisions.c.number.desc()).limit(1)
    before = (await connection.execute(query)).one_or_none()
    found = await _changers(connection, uid, _seen(before, uid), until)
    return actors(found) or None


async def _attribute(connection: AsyncConnection, uid: str, drafts: list[AuditDraft]) -> None:
    """Add the users to the newest revisions of an existing object. Locks the pool's row, so that a revision that is
    created at the same time sees the changes stored here.
    """
    pools, revisions = tables.pools, tables.pool_revisions
    pool = (await connection.execute(select(pools).where(pools.c.uid == uid).with_for_update())).one_or_none()
    if pool is None:
        return
    query = select(revisions).where(revisions.c.pool_id == pool.id).order_by(revisions.c.number.desc()).limit(LOOKED_BACK)
    rows = (await connection.execute(query)).all()
    for before, row in zip([*rows[1:], None], rows, strict=True):
        if row.uid != uid or row.resource_version is None or row.manager in (None, FIELD_MANAGER):
            continue
        if before is None and row.number > 1:
            continue  # the one before is too far back
        found = await _changers(connection, uid, _seen(before, uid), _seen(row, uid))
        actor = actors(found)
        if not found or actor == row.actor:
            continue
        await connection.execute(
            update(revisions).where(revisions.c.pool_id == pool.id, revisions.c.number == row.number).values(actor=actor)
        )
        drafts.append(_draft(f"{pool.namespace}/{pool.name}", row, actor, found))


def _draft(pool: str, row: Any, actor: str, found: Sequence[ClusterChange]) -> AuditDraft:
    return AuditDraft(
        actor=actor,
        role=CLUSTER,
        source=row.manager,
        action=AuditAction.POOL_CHANGE_ATTRIBUTED,
        object=pool,
        reason=f"the Kubernetes API's audit log tells who made revision {row.number}",
        before={"actor": row.actor},
        after={
            "revision": row.number,
            "actor": actor,
            "groups": [list(one.groups) for one in found],
            "agents": [one.agent for one in found],
            "audit_ids": [one.audit_id for one in found],
        },
    )


async def _changers(connection: AsyncConnection, uid: str, since: Seen, until: Seen) -> list[ClusterChange]:
    changes = tables.cluster_changes
    query = select(changes).where(changes.c.uid == uid, changes.c.version > since.version, changes.c.version <= until.version)
    return changers([read(ClusterChange, row) for row in await connection.execute(query)], since, until)


def _seen(row: Any, uid: str) -> Seen:
    """Return the version and generation at which the revision in `row` was seen. NEVER if there is no revision, or if
    the object was deleted and created again since.
    """
    return NEVER if row is None or row.uid != uid else Seen(version=row.resource_version or 0, generation=row.generation)


_BY_THE_SYSTEM = literal_column(f"({BY_THE_SYSTEM})", Boolean)


class PostgresAuditLog:
    """Audit entries as the public API lists them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def entries(self, wanted: AuditFilter, span: Span) -> Page[AuditEntry]:
        exact: list[tuple[ColumnElement[Any], Any]] = []
        beginnings: list[Test] = []
        for name in ("object", "actor", "action"):
            value = getattr(wanted, name)
            if value is not None and value.endswith("*"):
                beginnings.append(_begins(name, value[:-1]))
            else:
                exact.append((log.c[name], value))
        if wanted.pool is not None:
            beginnings.append(_of_pool(wanted.pool))
        query, also = narrowed(between(select(log), log.c.at, wanted.start, wanted.end), exact)
        if wanted.kind is AuditKind.HUMAN:
            query = query.where(~_BY_THE_SYSTEM)
        elif wanted.kind is AuditKind.SYSTEM:
            also = [*also, lambda _: _BY_THE_SYSTEM]
        if span.sight is not None:
            also = [*also, _within(span.sight)]
        async with self._database.reading() as connection:
            also = [*also, *beginnings]
            return await page(
                connection, query, (log.c.at, log.c.id), _entry, also=also, cursor=span.cursor, limit=span.limit, reverse=span.reverse
            )

    async def facets(self, pool: str | None, start: datetime, end: datetime, sight: Sight) -> AuditFacets:
        """Count the newest entries of a range by action, actor and result."""
        within = [log.c.at >= start, log.c.at < end]
        within += [_of_pool(pool)(log.c)] if pool is not None else []
        within += [_within(sight)(log.c)] if sight is not None else []
        newest = select(log.c.action, log.c.actor, log.c.result).where(*within).order_by(log.c.at.desc(), log.c.id.desc()).limit(COUNTED)
        rows = newest.subquery()
        query = select(rows.c.action, rows.c.actor, rows.c.result, func.count().label("entries")).group_by(*rows.c)
        counts: dict[str, Counter[str]] = {name: Counter() for name in ("action", "actor", "result")}
        entries = 0
        async with self._database.reading() as connection:
            for row in await connection.execute(query):
                entries += row.entries
                for name, counted in counts.items():
                    counted[getattr(row, name)] += row.entries
        found = {name: [AuditFacet(value=value, entries=n) for value, n in _most(counted)] for name, counted in counts.items()}
        return AuditFacets(start=start, end=end, entries=entries, actions=found["action"], actors=found["actor"], results=found["result"])

    async def entry(self, entry_id: int, sight: Sight) -> AuditEntry:
        """Return an entry. Raises NotFound, also for an entry about an object that the caller may not see."""
        async with self._database.reading() as connection:
            row = (await connection.execute(select(log).where(log.c.id == entry_id))).one_or_none() if entry_id < 2**63 else None
        if row is None or not in_sight(row.object, sight):
            raise NotFound("audit entry", str(entry_id))
        return _entry(row)


COUNTED = 100_000
"""Maximum number of entries that facets count; the newest ones are counted."""
MOST_VALUES = 50
"""Maximum number of values of a facet."""


def _most(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:MOST_VALUES]


def _begins(name: str, beginning: str) -> Test:
    return lambda columns: columns[name].startswith(beginning, autoescape=True)


def _of_pool(pool: str) -> Test:
    return lambda columns: (columns.object == pool) | columns.object.startswith(f"{pool}/", autoescape=True)


def _within(sight: frozenset[str]) -> Test:
    return lambda columns: columns.object.contains("/") & func.split_part(columns.object, "/", 1).in_(sorted(sight))


def _entry(row: Any) -> AuditEntry:
    return read(AuditEntry, row, kind=kind_of(row.role, row.action, row.source))
