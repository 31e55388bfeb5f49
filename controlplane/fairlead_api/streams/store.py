"""Reads routing tables, bindings and gateway keys from Postgres for the routers' stream."""

from typing import Any

import msgspec
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.bindings import Binding, told_reason
from fairlead.reports.shares import PoolShare
from fairlead.tables import PoolKey, RoutingTable
from fairlead_api import tables
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.records import read
from fairlead_api.pools.store.capabilities import engine_memory
from fairlead_api.pools.store.live_routers import SHARES_OF_LIVE
from fairlead_client.lines import KeptSession, TableLine

_CURRENT = (
    "SELECT p.*, t.content, now() AS now FROM pools p "
    "JOIN routing_tables t ON t.pool_id = p.id AND t.version = p.table_version WHERE p.deleted_at IS NULL"
)


def _facts_of(row: Any) -> list[GatewayKeyFacts]:
    """Return a gateway key in the form that routers use: one entry for each secret of the key. The former secret of a
    rotated key expires before the key itself.
    """
    secrets = [(row.digest, row.expires_at)]
    if row.former_until is not None:
        secrets.append((row.former_digest, min(row.former_until, row.expires_at or row.former_until)))
    return [
        read(
            GatewayKeyFacts,
            row,
            digest=bytes(secret).hex(),
            expires_at=None if ends is None else ends.timestamp(),
            budget_ends_at=None if row.budget_ends_at is None else row.budget_ends_at.timestamp(),
        )
        for secret, ends in secrets
    ]


class PostgresStream:
    """Implements `streams.table_stream.StreamStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tables(self) -> list[TableLine]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(text(f"{_CURRENT} ORDER BY p.namespace, p.name"))).all()
            return [await _line(connection, row) for row in rows]

    async def table(self, pool: PoolKey) -> TableLine:
        async with self._database.reading() as connection:
            found = await connection.execute(
                text(f"{_CURRENT} AND p.namespace = :namespace AND p.name = :name"), {"namespace": pool.namespace, "name": pool.name}
            )
            row = found.one_or_none()
            if row is None:
                raise NotFound("routing table of pool", str(pool))
            return await _line(connection, row)

    async def gateway_keys(self) -> list[GatewayKeyFacts]:
        keys = tables.gateway_keys
        async with self._database.reading() as connection:
            rows = await connection.execute(select(keys).where(keys.c.revoked_at.is_(None)).order_by(keys.c.id))
            return [facts for row in rows for facts in _facts_of(row)]

    async def kept_sessions(self) -> list[KeptSession]:
        kept, pools = tables.kept_sessions, tables.pools
        query = (
            select(kept.c.session, kept.c.until, pools.c.namespace, pools.c.name)
            .join(pools, pools.c.id == kept.c.pool_id)
            .where(kept.c.until > func.now(), pools.c.deleted_at.is_(None))
            .order_by(kept.c.pool_id, kept.c.session)
        )
        async with self._database.reading() as connection:
            return [
                KeptSession(pool=PoolKey(namespace=row.namespace, name=row.name), session=row.session, until=row.until.timestamp())
                for row in await connection.execute(query)
            ]

    async def deleted_pools(self) -> list[PoolKey]:
        pools = tables.pools
        async with self._database.reading() as connection:
            rows = await connection.execute(
                select(pools.c.namespace, pools.c.name).where(pools.c.deleted_at.is_not(None)).order_by(pools.c.id)
            )
            return [PoolKey(namespace=namespace, name=name) for namespace, name in rows]

    async def shares(self) -> dict[PoolKey, dict[str, tuple[PoolShare, float]]]:
        found: dict[PoolKey, dict[str, tuple[PoolShare, float]]] = {}
        async with self._database.reading() as connection:
            for router, age, shares in await connection.execute(SHARES_OF_LIVE):
                for share in msgspec.convert(shares, dict[str, PoolShare]).values():
                    found.setdefault(share.pool, {})[router] = (share, float(age))
        return found

    async def bindings(self, after: tuple[int, str] | None, limit: int) -> tuple[list[Binding], tuple[int, str] | None]:
        async with self._database.reading() as connection:
            rows = (
                await connection.execute(
                    text(
                        "SELECT s.*, p.namespace, p.name FROM sessions s JOIN pools p ON p.id = s.pool_id AND p.deleted_at IS NULL "
                        "WHERE s.instance IS NOT NULL AND (s.pool_id, s.session) > (:pool, :session) ORDER BY s.pool_id, s.session LIMIT :limit"
                    ),
                    {"pool": after[0] if after else 0, "session": after[1] if after else "", "limit": limit},
                )
            ).all()
        found = [
            Binding(
                pool=PoolKey(namespace=row.namespace, name=row.name),
                session=row.session,
                instance=row.instance,
                rank=row.rank,
                version=row.version,
                reason=told_reason(row.reason),
                bound_at=row.bound_at.timestamp(),
                migrated_at=row.migrated_at.timestamp() if row.migrated_at else None,
                context_tokens=row.context_tokens,
                change=row.change,
            )
            for row in rows
        ]
        return found, (rows[-1].pool_id, rows[-1].session) if len(rows) == limit else None


async def _line(connection: AsyncConnection, row: Any) -> TableLine:
    table = msgspec.convert(row.content, RoutingTable)
    return TableLine(table=table, known=await engine_memory(connection, row, table, row.now))
