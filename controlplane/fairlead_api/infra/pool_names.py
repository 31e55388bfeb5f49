"""Names of pools by id. A pool keeps both for ever, so a cached pair never becomes wrong."""

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead.tables import PoolKey
from fairlead_api import tables


class PoolNames:
    """Caches names and ids. It saves lists a join with `pools`, and so leaves the planner one choice less."""

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}
        self._by_name: dict[str, int] = {}

    async def id_of(self, connection: AsyncConnection, pool: PoolKey) -> int | None:
        """The pool's id; None if there never was such a pool."""
        if str(pool) not in self._by_name:
            await self._read(connection)
        return self._by_name.get(str(pool))

    async def names(self, connection: AsyncConnection, ids: Iterable[int]) -> dict[int, str]:
        """Names as namespace/name, by id."""
        wanted = set(ids)
        if not wanted <= self._by_id.keys():
            await self._read(connection)
        return {pool: self._by_id[pool] for pool in wanted}

    async def _read(self, connection: AsyncConnection) -> None:
        pools = tables.pools
        found = await connection.execute(select(pools.c.id, pools.c.namespace, pools.c.name))
        self._by_id = {pool: f"{namespace}/{name}" for pool, namespace, name in found}
        self._by_name = {name: pool for pool, name in self._by_id.items()}
