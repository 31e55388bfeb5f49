"""Stores revisions of a pool's spec and versions of its SLO, each once. Each gets an audit entry, which names the
person or program that made the change.

Also stores the pool's routing tables. A table gets a new version when its content changes (recorded with the changed
instances), or when a router has a version that this database never issued.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState
from fairlead.routing.knowledge.rings import anchor_count
from fairlead.table_content import MirroredFacts, changed_entries, table_of
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api import tables
from fairlead_api.audit.cluster_events import Seen
from fairlead_api.audit.store import author_of
from fairlead_api.infra.audit_chain import AuditDraft, as_stored
from fairlead_api.infra.lost_commits import loss_of
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, FIELD_MANAGER
from fairlead_api.pools.diffs import diff
from fairlead_api.pools.mirroring import Shares, fingerprint, manager_of
from fairlead_api.pools.store.live_routers import NEWEST_ACKNOWLEDGED
from fairlead_client.resources.audit import AuditAction, AuditResult

_SLO = tables.slo_configs.c
_ACTIVE_SLO = select(_SLO.ttft_seconds, _SLO.tpot_seconds, _SLO.percentile, _SLO.classes, _SLO.task).where(
    _SLO.pool_id == bindparam("pool"), _SLO.active_until.is_(None)
)


async def note_revision(
    connection: AsyncConnection, row: Any, pool: PoolKey, state: PoolState, drafts: list[AuditDraft], now: datetime
) -> int:
    """Return the revision number of the spec in `state`. If the spec has changed, a new revision is stored with an
    audit entry.
    """
    recreated = row.uid != state.uid or row.deleted_at is not None
    if row.revision and not recreated and (row.spec == state.spec or as_stored(row.spec) == as_stored(state.spec)):
        return int(row.revision)
    manager = manager_of({} if recreated else row.spec, state)
    actor = state.annotations.get(CHANGED_BY, manager) if manager == FIELD_MANAGER else manager
    reason = state.annotations.get(CHANGE_REASON) if manager == FIELD_MANAGER else None
    version = int(state.resource_version) if state.resource_version.isdecimal() else None
    if version is not None and manager != FIELD_MANAGER:
        actor = await author_of(connection, row.id, state.uid, Seen(version=version, generation=state.generation)) or actor
    changes = diff({} if recreated else as_stored(row.spec), as_stored(state.spec))
    await connection.execute(
        insert(tables.pool_revisions).values(
            pool_id=row.id,
            number=row.revision + 1,
            uid=state.uid,
            generation=state.generation,
            at=now,
            actor=actor,
            reason=reason,
            spec=state.spec,
            diff=changes,
            resource_version=version,
            manager=manager,
        )
    )
    created = recreated or not row.revision
    drafts.append(
        AuditDraft(
            actor=actor,
            role="cluster",
            source=manager,
            action=AuditAction.POOL_CREATED if created else AuditAction.POOL_SPEC_CHANGED,
            object=str(pool),
            reason=reason,
            before=None if created else {change["path"]: change["before"] for change in changes},
            after={"uid": state.uid, "spec": state.spec} if created else {change["path"]: change["after"] for change in changes},
            result=AuditResult.OK if state.problem is None else AuditResult.REFUSED,
        )
    )
    return int(row.revision) + 1


async def note_slo(connection: AsyncConnection, row: Any, facts: MirroredFacts | None, revision: int, now: datetime) -> int:
    """Return the version of the pool's SLO. A new version is stored, with the number `revision` of the spec, if the
    SLO's targets or classes have changed: in the spec, or because a window of a schedule opened or closed. If `facts`
    is None, the last version stays in force.
    """
    if facts is None:
        return int(row.slo_version)
    slo, wanted = tables.slo_configs, facts.table.slo
    classes = [msgspec.to_builtins(one) for one in facts.table.priority_classes]
    tasks = [msgspec.to_builtins(one) for one in wanted.task]
    if row.slo_version:
        active = (await connection.execute(_ACTIVE_SLO, {"pool": row.id})).one_or_none()
        if active == (wanted.ttft_seconds, wanted.tpot_seconds, wanted.percentile, classes, tasks):
            return int(row.slo_version)
        await connection.execute(update(slo).where(slo.c.pool_id == row.id, slo.c.active_until.is_(None)).values(active_until=now))
    version = int(row.slo_version) + 1
    await connection.execute(
        insert(slo).values(
            pool_id=row.id,
            version=version,
            ttft_seconds=wanted.ttft_seconds,
            tpot_seconds=wanted.tpot_seconds,
            percentile=wanted.percentile,
            active_from=now,
            classes=classes,
            revision=revision,
            task=tasks,
        )
    )
    return version


_ROUTING = tables.routing_tables.c
_LAST_IF_OTHER = select(
    case((_ROUTING.content_hash == bindparam("hash", type_=_ROUTING.content_hash.type), None), else_=_ROUTING.content).label("content")
).where(_ROUTING.pool_id == bindparam("pool"), _ROUTING.version == bindparam("present"))
"""SQL for the content of the last routing table; null if the content is unchanged, that is, if its hash is `hash`."""


async def note_table(
    connection: AsyncConnection,
    row: Any,
    pool: PoolKey,
    state: PoolState,
    facts: MirroredFacts,
    slo_version: int,
    shares: Shares,
    drafts: list[AuditDraft],
    now: datetime,
) -> int:
    """Return the present version of the pool's routing table. A new version is stored if the table's content has
    changed.

    If a live router has acknowledged a newer version than the database has, the database was restored from a backup or
    lost committed data; an audit entry reports this. Routers accept no version below the one they have, so the table is
    stored again with a higher version, and every instance's entry counts as unacknowledged until routers acknowledge
    that version.
    """
    ahead = int((await connection.execute(NEWEST_ACKNOWLEDGED, {"pool": str(row.id)})).scalar_one() or 0)
    lost = ahead > row.table_version
    if lost:
        sign = f"routers had table {ahead} of {pool}, and the database has {row.table_version}"
        drafts.extend(await loss_of(connection, sign, row.observed_at, now))
    routing, instances = tables.routing_tables, tables.instances
    table = table_of(
        pool,
        state.uid,
        state.generation,
        facts.table,
        state.instances,
        state.outlook,
        state.opens_at,
        slo_version,
        state.objectives,
        state.canary,
    )
    content_hash = fingerprint(table)
    last = None
    if row.table_version:
        present = {"pool": row.id, "present": row.table_version, "hash": None if row.deleted_at else content_hash}
        last = (await connection.execute(_LAST_IF_OTHER, present)).one_or_none()
    if last is not None and last.content is None and not lost:
        return int(row.table_version)
    version = max(int(row.table_version), ahead) + 1
    await connection.execute(
        insert(routing).values(
            pool_id=row.id,
            version=version,
            uid=state.uid,
            generation=state.generation,
            content=msgspec.to_builtins(replace(table, version=version)),
            content_hash=content_hash,
            created_at=now,
        )
    )
    before = msgspec.convert(last.content, RoutingTable) if last and not lost else None
    changed = {report.id for report in state.instances} if lost else changed_entries(before, table)
    if changed:
        await connection.execute(
            update(instances).where(instances.c.pool_id == row.id, instances.c.id.in_(changed)).values(table_version=version)
        )
    owned = shares(table.instances)
    reported = {report.id for report in state.instances}
    anchors = {entry.id: anchor_count(entry) for entry in table.instances}
    if reported:
        await connection.execute(
            text(
                "UPDATE instances SET anchors = n.anchors, key_share = n.share FROM unnest(CAST(:ids AS text[]), "
                "CAST(:anchors AS bigint[]), "
                "CAST(:shares AS float8[])) AS n(id, anchors, share) WHERE instances.pool_id = :pool AND instances.id = n.id"
            ),
            {
                "pool": row.id,
                "ids": sorted(reported),
                "anchors": [anchors.get(name, 0) for name in sorted(reported)],
                "shares": [owned.get(name, 0.0) for name in sorted(reported)],
            },
        )
    return version
