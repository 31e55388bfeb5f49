"""Moves as routers record them: session migrations and re-routes, each stored once."""

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.reports.moves import MigrationRecord, ReRouteRecord
from fairlead.tables import PoolKey
from fairlead_api import tables
from fairlead_api.infra.records import Record, Writing

_MIGRATIONS = Writing(tables.migrations, MigrationRecord, "pool_id", "router", "request")
_REROUTES = Writing(tables.reroutes, ReRouteRecord, "pool_id", "router", "request")


async def save_migrations(connection: AsyncConnection, records: Sequence[MigrationRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Stores session migrations; one that already exists stays unchanged."""
    await _save(connection, _MIGRATIONS, [record for record in records if record.pool in ids], router, ids)


async def save_reroutes(connection: AsyncConnection, records: Sequence[ReRouteRecord], router: str, ids: Mapping[PoolKey, int]) -> None:
    """Stores re-routes; one that already exists stays unchanged."""
    await _save(connection, _REROUTES, [record for record in records if record.pool in ids], router, ids)


async def _save(
    connection: AsyncConnection, moves: Writing[Record], records: Sequence[Record], router: str, ids: Mapping[PoolKey, int]
) -> None:
    await moves.add(connection, records, pool_id=lambda move: ids[move.pool], router=router, request=lambda move: move.request or None)
