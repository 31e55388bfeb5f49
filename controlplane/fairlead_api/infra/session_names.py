"""Finds the session that a person means. The person writes the session's identity, or the name that a client sends
(`fairlead.session_identities`). Also finds the name of the gateway key to which a session belongs.

This module belongs to no subject, because the routes of several subjects accept names of sessions. No other module
searches for such names.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Select, func, literal, select, true, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.errors import InvalidInput
from fairlead.session_identities import name_of, tenant_of
from fairlead.tables import PoolKey
from fairlead_api.infra.database import Database
from fairlead_api.infra.errors import SeveralSessions
from fairlead_api.infra.spans import Sight
from fairlead_api.tables import gateway_keys, pools, sessions
from fairlead_client.resources.problems import SessionOfKey

NAMED = 1_000
"""Maximum number of sessions per pool that are read to find the sessions with one name; the first by identity are read.
More sessions can match only if a thousand gateway keys use the name, or if clients without keys invented a thousand
names that look like identities of this name.
"""


class SessionNames:
    """Finds sessions by the names that people give."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def identity(self, pool: PoolKey, session: str) -> str:
        """Return the identity of the pool's session that a person calls `session`, which is an identity or a name.

        An identity is returned unchanged. For a name, the result is the identity of the pool's only session with this
        name. If the pool has no such session, the name itself is returned. Raises SeveralSessions if sessions of
        several keys have the name.
        """
        query = _candidates(session).where(pools.c.namespace == pool.namespace, pools.c.name == pool.name)
        return await self._chosen(session, str(pool), query)

    async def filtered(self, pool: str | None, session: str | None, sight: Sight) -> str | None:
        """Return the session's identity for the filter of a list; None if `session` is None. If `pool` is None, the
        session is searched in all pools in `sight`. Raises InvalidInput for a pool that is not namespace/name;
        SeveralSessions as `identity` does.
        """
        if session is None:
            return None
        if pool is None:
            query = _candidates(session)
            return await self._chosen(session, None, query if sight is None else query.where(pools.c.namespace.in_(sorted(sight))))
        try:
            key = PoolKey.parse(pool)
        except ValueError as error:
            raise InvalidInput("pool", pool, "write namespace/name") from error
        return await self.identity(key, session)

    async def _chosen(self, session: str, pool: str | None, query: "Select[Any]") -> str:
        if tenant_of(session):
            return session
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found: dict[str, Any] = {row.session: row for row in rows if session in (row.session, name_of(row.session))}
        if session in found or not found:
            return session
        if len(found) == 1:
            return next(iter(found))
        raise SeveralSessions(session, pool, _of_keys(list(found.values())))


async def names_of_keys(connection: AsyncConnection, identities: Iterable[str]) -> dict[str, str]:
    """Return, by identity of a session, the name of the gateway key to which the session belongs, or the key's id if
    the key does not exist. Sessions without a key are left out.
    """
    ids = {identity: key for identity in identities if (key := tenant_of(identity))}
    if not ids:
        return {}
    query = select(gateway_keys.c.id, gateway_keys.c.name).where(gateway_keys.c.id.in_(sorted(set(ids.values()))))
    names = {row.id: row.name for row in await connection.execute(query)}
    return {identity: names.get(key, key) for identity, key in ids.items()}


def _candidates(session: str) -> "Select[Any]":
    """Return a query for the sessions whose identity is `session`, or whose name may be `session`. Its rows have the
    pool, the identity, and the name of the key.

    The identity of a key's session is the name, `@` and hexadecimal digits. All identities of a name therefore lie
    between two bounds of the primary key, in every collation. Some collations have other names there too, which the
    caller must leave out.
    """
    of_pool = sessions.c.pool_id == pools.c.id
    low, high = f"{session}@0", f"{session}@g"
    within = select(sessions.c.session).where(of_pool, sessions.c.session >= low, sessions.c.session < high)
    exact = select(sessions.c.session).where(of_pool, sessions.c.session == session)
    named = union_all(exact, within.order_by(sessions.c.session).limit(NAMED)).lateral("named")
    pool = (pools.c.namespace + literal("/") + pools.c.name).label("pool")
    source = pools.join(named, true()).outerjoin(gateway_keys, gateway_keys.c.id == func.right(named.c.session, 16))
    return select(pool, named.c.session, gateway_keys.c.name.label("key")).select_from(source).order_by(named.c.session, pool)


def _of_keys(rows: Sequence[Any]) -> list[SessionOfKey]:
    return [SessionOfKey(pool=row.pool, session=row.session, key=row.key or tenant_of(row.session)) for row in rows]
