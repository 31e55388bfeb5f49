"""What the reads of pools take from a pool's row."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, SloFacts
from fairlead_api import tables
from fairlead_api.infra.errors import NotFound
from fairlead_client.resources.pools import PoolCondition


async def pool_row(connection: AsyncConnection, pool: PoolKey) -> Any:
    """The living pool's row; raises NotFound."""
    pools = tables.pools
    query = select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row


def slo_of(row: Any) -> SloFacts:
    """The objectives routers obey, those of a spec that names none while the pool has no table."""
    return msgspec.convert(row.facts, MirroredFacts).table.slo if row.facts else SloFacts()


def conditions_of(row: Any) -> list[PoolCondition]:
    """The object's conditions in Kubernetes' own spelling; unreadable times are left out."""
    found = []
    for item in row.conditions:
        since = item.get("lastTransitionTime")
        try:
            at = datetime.fromisoformat(since) if isinstance(since, str) else None
        except ValueError:
            at = None
        found.append(
            PoolCondition(
                type=str(item.get("type", "")),
                status=str(item.get("status", "Unknown")),
                reason=str(item.get("reason", "")),
                message=str(item.get("message", "")),
                since=at,
            )
        )
    return found


def share(part: Any, whole: Any) -> float | None:
    """`part` of `whole` from 0 to 1; None when there is no whole."""
    return float(part) / float(whole) if whole else None
