"""Events of a pool: the operator's actions, each stored once with its audit entry."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolEvent
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.audit_chain import AuditDraft
from fairlead_api.infra.database import moment
from fairlead_api.infra.errors import NotFound
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.audit import OPERATOR_EVENT


async def store_events(connection: AsyncConnection, pool: PoolKey, events: Sequence[PoolEvent], actor: str) -> list[AuditDraft]:
    """Stores events not stored before, and returns their audit drafts. Raises NotFound."""
    pool_id = (
        await connection.execute(
            select(tables.pools.c.id).where(tables.pools.c.namespace == pool.namespace, tables.pools.c.name == pool.name)
        )
    ).scalar_one_or_none()
    if pool_id is None:
        raise NotFound("pool", str(pool))
    drafts = []
    for event in events:
        values = {"before": event.before, "after": event.after, "instance": event.instance, "at": moment(event.at)}
        row = upsert(tables.pool_events).values(pool_id=pool_id, reason=event.reason, message=event.message, **values)
        stored = await connection.execute(row.on_conflict_do_nothing().returning(tables.pool_events.c.id))
        if stored.scalar_one_or_none() is not None:
            drafts.append(_event_draft(pool, event, actor))
    return drafts


def _event_draft(pool: PoolKey, event: PoolEvent, actor: str) -> AuditDraft:
    return AuditDraft(
        actor=actor,
        role=AccessRole.SYSTEM_OPERATOR,
        source="operator",
        action=f"{OPERATOR_EVENT}{event.reason}",
        object=f"{pool}/{event.instance}" if event.instance else str(pool),
        reason=event.message,
        before=event.before,
        after=event.after,
    )
