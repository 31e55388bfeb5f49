"""Keys of the gateway's clients in Postgres: of each secret only its SHA-256."""

from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.services.access.access import Caller
from fairlead_api.services.errors import NotFound
from fairlead_api.services.streams.notices import GatewayKeysChanged
from fairlead_api.store import audit, notifying, tables
from fairlead_api.store.database import Database
from fairlead_api.store.paging import page
from fairlead_api.store.records import read
from fairlead_client.resources.audit import AuditAction
from fairlead_client.resources.gateway_keys import GatewayKey
from fairlead_client.resources.pages import Page

keys = tables.gateway_keys

_COUNTING = 0x666C_6B00
"""Advisory lock (the letters `flk`) under which keys are counted and added: two at once must not pass the bound."""


class PostgresGatewayKeys:
    """Implements `services.access.gateway_keys.GatewayKeyStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, cursor: str | None, limit: int) -> Page[GatewayKey]:
        async with self._database.reading() as connection:
            return await page(
                connection, select(keys), (keys.c.created_at, keys.c.id), partial(read, GatewayKey), cursor=cursor, limit=limit
            )

    async def add(self, key: GatewayKey, secret_digest: bytes, caller: Caller, now: datetime, most: int) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _COUNTING})
            living = select(func.count()).select_from(keys).where(keys.c.revoked_at.is_(None))
            if (await connection.execute(living)).scalar_one() >= most:
                return False
            scope = {"pools": list(key.pools), "models": list(key.models)}
            limits = {"requests_per_minute": key.requests_per_minute, "tokens_per_minute": key.tokens_per_minute}
            await connection.execute(
                insert(keys).values(
                    id=key.id,
                    digest=secret_digest,
                    prefix=key.prefix,
                    name=key.name,
                    created_at=key.created_at,
                    created_by=key.created_by,
                    expires_at=key.expires_at,
                    **scope,
                    **limits,
                )
            )
            await notifying.send(connection, [GatewayKeysChanged()])
            expires_at = key.expires_at.isoformat() if key.expires_at else None
            after = {"name": key.name, "prefix": key.prefix, **scope, **limits, "expires_at": expires_at}
            await audit.append(connection, [replace(caller.draft(AuditAction.GATEWAY_KEY_CREATED, key.id), after=after)], now)
            return True

        return await self._database.writing(work)

    async def revoke(self, key_id: str, caller: Caller, now: datetime) -> None:
        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(select(keys).where(keys.c.id == key_id).with_for_update())).one_or_none()
            if row is None:
                raise NotFound("gateway key", key_id)
            if row.revoked_at is not None:
                return
            await connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=now))
            await notifying.send(connection, [GatewayKeysChanged()])
            before = {"name": row.name, "prefix": row.prefix}
            await audit.append(connection, [replace(caller.draft(AuditAction.GATEWAY_KEY_REVOKED, key_id), before=before)], now)

        await self._database.writing(work)
