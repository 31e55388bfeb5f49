"""The topics of `/v1/live`, each with the seconds between two reads."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.streams.live import Snapshot, Tail, Topic
from fairlead_client.resources.instances import InstanceSummary
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolDetail, PoolSummary
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport

POOLS_AT_ONCE = 100
"""Number of pools per page when all pools are read page by page."""


class Pools(Protocol):
    """The source of pools' present states."""

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]: ...

    async def pool(self, pool: PoolKey, now: datetime, *, instances: bool = True) -> PoolDetail:
        """Return a pool. Raises NotFound."""


class Recent(Protocol):
    """The source of the newest items of a history, such as migrations."""

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> Sequence[tuple[datetime, Any]]:
        """Return the newest visible items as pairs (recorded at, item with an id), oldest first."""


class Rejections(Protocol):
    """The source of refusals, by cause."""

    async def rejections(self, pool: str | None, start: datetime, end: datetime, *, sight: Sight = None) -> RejectionReport: ...


def topics(pools: Pools, migrations: Recent, reroutes: Recent, decisions: Recent, refused: Rejections) -> dict[str, Topic]:
    """Return the topics of `/v1/live` by name."""

    async def details(key: PoolKey, sight: Sight, now: datetime, *, instances: bool) -> list[PoolDetail]:
        """Return a list with the pool; empty if the pool does not exist or is not visible."""
        if sight is not None and key.namespace not in sight:
            return []
        try:
            return [await pools.pool(key, now, instances=instances)]
        except NotFound:  # deleted between two looks
            return []

    async def all_pools(sight: Sight, now: datetime) -> list[PoolSummary]:
        page = await pools.pools(Span(limit=POOLS_AT_ONCE, sight=sight), now)
        found = list(page.items)
        while page.next_cursor is not None:
            page = await pools.pools(Span(cursor=page.next_cursor, limit=POOLS_AT_ONCE, sight=sight), now)
            found += page.items
        return found

    async def summaries(pool: str | None, sight: Sight, now: datetime) -> list[PoolSummary]:
        if pool is None:
            return await all_pools(sight, now)
        return [one.pool for one in await details(PoolKey.parse(pool), sight, now, instances=False)]

    async def instances(pool: str | None, sight: Sight, now: datetime) -> list[InstanceSummary]:
        keys = [PoolKey.parse(pool)] if pool else [PoolKey(namespace=one.namespace, name=one.name) for one in await all_pools(sight, now)]
        return [one for key in keys for detail in await details(key, sight, now, instances=True) for one in detail.instances]

    async def rejections(pool: str | None, sight: Sight, now: datetime) -> list[RejectionGroup]:
        return (await refused.rejections(pool, now - timedelta(minutes=5), now, sight=sight)).groups

    return {
        "pools": Snapshot(seconds=1.0, read=summaries),
        "instances": Snapshot(seconds=2.0, read=instances),
        "migrations": Tail(seconds=0.5, read=migrations.recent),
        "reroutes": Tail(seconds=0.5, read=reroutes.recent),
        "decisions": Tail(seconds=0.5, read=decisions.recent, most=10),
        "rejections": Snapshot(seconds=2.0, read=rejections),
    }
