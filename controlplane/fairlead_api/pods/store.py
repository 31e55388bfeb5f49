"""Where the engines of instances show their metrics, by what the operator reported."""

from typing import Any

import msgspec
from sqlalchemy import select

from fairlead.table_content import MirroredFacts
from fairlead.tables import EngineFacts, PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import Conflict, NotFound
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.tables import instances


class EngineAddresses:
    """Addresses of the engines of instances."""

    def __init__(self, reads: Database) -> None:
        self._reads = reads

    async def metrics_of(self, pool: PoolKey, instance: str) -> str:
        """The URL of an engine's metrics page. Raises NotFound, and Conflict (no-address)."""
        of = instances.c
        async with self._reads.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(of.address).where(of.pool_id == row.id, of.id == instance, of.gone_at.is_(None))
            found = (await connection.execute(query)).one_or_none()
        if found is None:
            raise NotFound("instance", instance)
        if found.address is None:
            raise Conflict("no-address", f"{instance} has no address yet; its metrics can be read once its pod has started")
        return f"http://{found.address}{_path(row)}"


def _path(row: Any) -> str:
    """Where the engines of a pool show their metrics; the default, before the pool has a table."""
    return (msgspec.convert(row.facts, MirroredFacts).table.engine if row.facts else EngineFacts()).metrics_path
