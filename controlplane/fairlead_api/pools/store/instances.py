"""Stores instances as the operator reports them, with a transition for every change of state.

All of it happens inside the caller's transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceReport
from fairlead_api import tables
from fairlead_api.infra.database import moment


async def note_instances(
    connection: AsyncConnection,
    pool_id: int,
    reports: Sequence[InstanceReport],
    now: datetime,
    why: str = "no longer reported by the operator",
) -> list[str]:
    """Stores instances as reported, with a transition for every change of state; those not reported become Gone.

    Returns the ids of those that became Gone.
    """
    instances = tables.instances
    rows = await connection.execute(select(instances).where(instances.c.pool_id == pool_id, instances.c.gone_at.is_(None)))
    stored = {row.id: row for row in rows}
    transitions: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for report in reports:
        before = stored.pop(report.id, None)
        gone = report.state is InstanceState.GONE
        values = {
            "pool_id": pool_id,
            "id": report.id,
            "pod_uid": report.pod_uid,
            "address": report.address,
            "role": report.role.value,
            "state": report.state.value,
            "reason": report.reason,
            "node": report.node,
            "weight": report.weight,
            "restarts": report.restarts,
            "created_at": moment(report.created_at),
        }
        moved = before is None or before.state != report.state.value
        if gone and before is None:
            continue
        if moved:
            was = before.state if before else None
            transitions.append(
                {"pool_id": pool_id, "instance": report.id, "at": now, "before": was, "after": report.state.value, "reason": report.reason}
            )
        if moved or any(getattr(before, name) != value for name, value in values.items()):
            since = now if moved or before is None else before.state_since
            changed.append({**values, "state_since": since, "gone_at": now if gone else None})
    gone_now = InstanceState.GONE.value
    transitions.extend(
        {"pool_id": pool_id, "instance": missing.id, "at": now, "before": missing.state, "after": gone_now, "reason": why}
        for missing in stored.values()
    )
    if stored:
        await connection.execute(
            update(instances)
            .where(instances.c.pool_id == pool_id, instances.c.id.in_(list(stored)))
            .values(state=InstanceState.GONE.value, reason=why, state_since=now, gone_at=now, anchors=0, key_share=0)
        )
    if changed:
        row = upsert(instances)
        replaced = {name: row.excluded[name] for name in changed[0] if name not in {"pool_id", "id"}}
        await connection.execute(row.on_conflict_do_update(index_elements=["pool_id", "id"], set_=replaced), changed)
    if transitions:
        await connection.execute(insert(tables.instance_transitions), transitions)
    return [transition["instance"] for transition in transitions if transition["after"] == gone_now]
