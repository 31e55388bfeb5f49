"""What a pool's ring is made of: its present routing table, and the sessions bound to each instance."""

import msgspec
from sqlalchemy import func, select

from fairlead.table_content import MirroredFacts
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.pool_rows import pool_row


class PostgresRings:
    """Implements `pools.ring_routes.RingReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ring(self, pool: PoolKey) -> tuple[RoutingTable, int, dict[str, int]]:
        routing, sessions = tables.routing_tables, tables.sessions
        async with self._database.reading() as connection:
            row = await pool_row(connection, pool)
            query = select(routing.c.content).where(routing.c.pool_id == row.id, routing.c.version == row.table_version)
            content = (await connection.execute(query)).scalar_one_or_none()
            if content is None or row.facts is None:
                raise NotFound("routing table of pool", str(pool))
            counted = await connection.execute(
                select(sessions.c.instance, func.count()).where(sessions.c.pool_id == row.id).group_by(sessions.c.instance)
            )
            bound = {name: amount for name, amount in counted if name is not None}
        facts = msgspec.convert(row.facts, MirroredFacts).table
        return msgspec.convert(content, RoutingTable), facts.anchors_per_instance, bound
