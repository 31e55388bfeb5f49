"""The history of the instances wanted of each role: a row for every change, by whatever it was made."""

from datetime import datetime
from typing import Any

from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.pool_states import PoolState
from fairlead_api.pools.store.pool_summaries import declared_by, desired_of
from fairlead_api.tables import wanted_replicas


async def note_wanted(connection: AsyncConnection, row: Any, state: PoolState, now: datetime) -> None:
    """Stores what the state changes of the numbers in `row`, of the table pools; all of them where the pool is new."""
    after = state.desired or declared_by(state.spec)
    new = not row.revision or row.uid != state.uid or row.deleted_at is not None
    before = {} if new else desired_of(row)
    changes = [
        {"pool_id": row.id, "role": role, "at": now, "before": before.get(role), "replicas": after.get(role, 0)}
        for role in sorted({*before, *after})
        if before.get(role) != after.get(role)
    ]
    if changes:
        await connection.execute(upsert(wanted_replicas).on_conflict_do_nothing(), changes)
