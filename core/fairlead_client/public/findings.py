"""Search, advice and trends."""

from fairlead.tables import PoolKey
from fairlead_client.public.calling import ApiCalls, Query, path_of
from fairlead_client.resources.advice import AdviceReport, Trends
from fairlead_client.resources.engine_fits import EngineFit, PoolEngine, ServedRequests
from fairlead_client.resources.search import SearchReport


class FindingCalls(ApiCalls):
    """Calls about search, advice and trends, for all visible pools or for one pool."""

    async def search(self, part: str, *, limit: int = 8) -> SearchReport:
        """Return all objects and pages whose name contains this text."""
        return await self._call("GET", "/v1/search", SearchReport, query={"q": part, "limit": limit})

    async def advice(self, pool: PoolKey | None = None) -> AdviceReport:
        """Return the problems of all pools or, with `pool`, of one pool, ranked by harm."""
        return await self._call("GET", "/v1/advice" if pool is None else f"/v1/pools/{path_of(pool)}/advice", AdviceReport)

    async def pool_engine(self, pool: PoolKey) -> PoolEngine:
        """Return the engine model with which the pool is simulated."""
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/engine", PoolEngine)

    async def store_engine(self, pool: PoolKey, fit: EngineFit) -> PoolEngine:
        """Store this engine model; from now on the pool is simulated with it."""
        return await self._call("PUT", f"/v1/pools/{path_of(pool)}/engine", PoolEngine, body=fit)

    async def forget_engine(self, pool: PoolKey) -> PoolEngine:
        """Remove the stored engine model; from now on the pool is simulated with a preset again."""
        return await self._call("DELETE", f"/v1/pools/{path_of(pool)}/engine", PoolEngine)

    async def served_requests(self, pool: PoolKey, *, start: str = "now-1h", end: str = "now", limit: int = 2_000) -> ServedRequests:
        """Return the newest recorded requests of a time range, and how an engine served each of them."""
        query: Query = {"from": start, "to": end, "limit": limit}
        return await self._call("GET", f"/v1/pools/{path_of(pool)}/served-requests", ServedRequests, query=query)

    async def trends(self, *, start: str = "now-1h", end: str = "now") -> Trends:
        """Return the results of all pools over a range, for each pool in a few time steps."""
        return await self._call("GET", "/v1/trends", Trends, query={"from": start, "to": end})
