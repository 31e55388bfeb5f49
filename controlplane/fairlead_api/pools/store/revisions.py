"""Revisions of a pool's spec and versions of its SLO, each stored once, with an audit entry naming who changed it."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState
from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.audit.cluster_events import Seen
from fairlead_api.audit.store import author_of
from fairlead_api.infra.audit_chain import AuditDraft, as_stored
from fairlead_api.infra.object_marks import CHANGE_REASON, CHANGED_BY, FIELD_MANAGER
from fairlead_api.pools.diffs import diff
from fairlead_client.resources.audit import AuditAction, AuditResult

_SLO = tables.slo_configs.c
_ACTIVE_SLO = select(_SLO.ttft_seconds, _SLO.tpot_seconds, _SLO.percentile, _SLO.classes).where(
    _SLO.pool_id == bindparam("pool"), _SLO.active_until.is_(None)
)


async def note_revision(
    connection: AsyncConnection, row: Any, pool: PoolKey, state: PoolState, drafts: list[AuditDraft], now: datetime
) -> int:
    """The number of the spec's revision; a new one, with an audit entry, if the spec changed."""
    recreated = row.uid != state.uid or row.deleted_at is not None
    if row.revision and not recreated and (row.spec == state.spec or as_stored(row.spec) == as_stored(state.spec)):
        return int(row.revision)
    actor = state.annotations.get(CHANGED_BY, state.changed_by) if state.changed_by == FIELD_MANAGER else state.changed_by
    reason = state.annotations.get(CHANGE_REASON) if state.changed_by == FIELD_MANAGER else None
    version = int(state.resource_version) if state.resource_version.isdecimal() else None
    if version is not None and state.changed_by != FIELD_MANAGER:
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
            manager=state.changed_by,
        )
    )
    created = recreated or not row.revision
    drafts.append(
        AuditDraft(
            actor=actor,
            role="cluster",
            source=state.changed_by,
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
    """The version of the pool's SLO; a new one if its targets or classes changed, by `revision` of the spec or by a
    window of a schedule. Without facts the last stays in force.
    """
    if facts is None:
        return int(row.slo_version)
    slo, wanted = tables.slo_configs, facts.table.slo
    classes = [msgspec.to_builtins(one) for one in facts.table.priority_classes]
    if row.slo_version:
        active = (await connection.execute(_ACTIVE_SLO, {"pool": row.id})).one_or_none()
        if active == (wanted.ttft_seconds, wanted.tpot_seconds, wanted.percentile, classes):
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
        )
    )
    return version
