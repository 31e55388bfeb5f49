"""Reads rows of pools for all subjects: the row of an existing pool, and names by id."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, SloFacts
from fairlead_api import tables
from fairlead_api.infra.errors import NotFound
from fairlead_client.resources.pools import PoolCondition


class PoolNames:
    """Caches names and ids of pools. Lists then need no join with `pools`, which Postgres' planner sometimes plans
    badly.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}
        self._by_name: dict[str, int] = {}

    async def id_of(self, connection: AsyncConnection, pool: PoolKey) -> int | None:
        """Return the pool's id; None if a pool of this name never existed."""
        if str(pool) not in self._by_name:
            await self._read(connection)
        return self._by_name.get(str(pool))

    async def names(self, connection: AsyncConnection, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of pools as namespace/name, by id."""
        wanted = set(ids)
        if not wanted <= self._by_id.keys():
            await self._read(connection)
        return {pool: self._by_id[pool] for pool in wanted}

    async def _read(self, connection: AsyncConnection) -> None:
        pools = tables.pools
        found = await connection.execute(select(pools.c.id, pools.c.namespace, pools.c.name))
        self._by_id = {pool: f"{namespace}/{name}" for pool, namespace, name in found}
        self._by_name = {name: pool for pool, name in self._by_id.items()}


def new_pool(**values: Any) -> Insert:
    """Return the insert statement of a new pool, with only these `values`. It has no effect if a pool of this name
    already exists.
    """
    unknown = {"generation": 0, "resource_version": "0", "model": "", "spec": {}, "labels": {}, "annotations": {}}
    return insert(tables.pools).values(**unknown, changed_by="", conditions=[], **values).on_conflict_do_nothing()


async def pool_row(connection: AsyncConnection, pool: PoolKey) -> Any:
    """Return the row of an existing pool from the table pools. Raises NotFound."""
    pools = tables.pools
    query = select(pools).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name, pools.c.deleted_at.is_(None))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound("pool", str(pool))
    return row


def slo_of(row: Any) -> SloFacts:
    """Return the objectives that routers apply to the pool; the default objectives before the pool has a
    routing table.
    """
    return msgspec.convert(row.facts, MirroredFacts).table.slo if row.facts else SloFacts()


async def goals_of(connection: AsyncConnection, pool: PoolKey) -> dict[int, float]:
    """Return the target percentile by version of the pool's objectives. Raises NotFound."""
    slo = tables.slo_configs.c
    row = await pool_row(connection, pool)
    found = await connection.execute(select(slo.version, slo.percentile).where(slo.pool_id == row.id))
    return {row.version: row.percentile for row in found}


def conditions_of(row: Any) -> list[PoolCondition]:
    """Return the conditions of the pool's Kubernetes object, spelled as in Kubernetes. A time that cannot be read is
    left out.
    """
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
    """Return `part` divided by `whole`, from 0 to 1; None when `whole` is 0."""
    return float(part) / float(whole) if whole else None
