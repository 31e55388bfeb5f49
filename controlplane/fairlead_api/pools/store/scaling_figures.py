"""Reads the figures by which others can scale a pool's instances, from the tables of the pool's page."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.scaling.specs import ScalingMode
from fairlead_api.infra.database import Database
from fairlead_api.infra.pool_rows import share, slo_of
from fairlead_api.loads.store.rollups import complete_until
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_api.pools.store.summaries import TRAFFIC, desired_of
from fairlead_api.tables import pools

_ADVISED = """
SELECT asked.pool_id, asked.role, newest.replicas
FROM unnest(CAST(:pools AS bigint[]), CAST(:roles AS text[])) AS asked (pool_id, role), LATERAL
  (SELECT d.replicas FROM scaling_decisions d WHERE d.pool_id = asked.pool_id AND d.role = asked.role ORDER BY d.at DESC LIMIT 1) AS newest
"""


class PostgresScalingFigures:
    """Reads the figures of all pools that are not deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, now: datetime) -> ScalingFigures:
        """The current figures."""
        async with self._database.reading() as connection:
            rows = list(await connection.execute(select(pools).where(pools.c.deleted_at.is_(None))))
            advised = await _advised(connection, rows)
            headroom = await _headroom(connection, rows, now)
        names = {row.id: f"{row.namespace}/{row.name}" for row in rows}
        wanted = {(names[row.id], role): number for row in rows for role, number in (desired_of(row) | advised.get(row.id, {})).items()}
        return ScalingFigures(wanted=wanted, headroom={names[pool]: value for pool, value in headroom.items()})


async def _advised(connection: AsyncConnection, rows: list[Any]) -> dict[int, dict[str, int]]:
    """The newest recommendation by pool and role, of pools that are only advised."""
    asked = [(row.id, role) for row in rows if _is_advised(row.spec) for role in desired_of(row)]
    found: dict[int, dict[str, int]] = {}
    if asked:
        values = {"pools": [pool for pool, _ in asked], "roles": [role for _, role in asked]}
        for row in await connection.execute(text(_ADVISED), values):
            found.setdefault(row.pool_id, {})[row.role] = row.replicas
    return found


def _is_advised(spec: Mapping[str, Any]) -> bool:
    scaling = spec.get("scaling")
    return isinstance(scaling, Mapping) and scaling.get("mode") == ScalingMode.ADVISE


async def _headroom(connection: AsyncConnection, rows: list[Any], now: datetime) -> dict[int, float]:
    ids = [row.id for row in rows]
    goals = {row.id: slo_of(row).percentile / 100 for row in rows}
    behind = await complete_until(connection, ids, now)
    found: dict[int, float] = {}
    for row in await connection.execute(text(TRAFFIC), {"pools": ids, "now": now}):
        within = share(row.within_slo, row.judged)
        if within is not None and row.pool_id not in behind:
            found[row.pool_id] = within - goals[row.pool_id]
    return found
