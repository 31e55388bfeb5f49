"""The live topics: what `/v1/live` offers, and how often each is read."""

import contextlib
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.pools.reading import PoolReader
from fairlead_api.services.spans import Span
from fairlead_api.services.streams.live import Snapshot, Tail, Topic
from fairlead_client.resources.decisions import RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.rejections import RejectionReport


class RecentReader(Protocol):
    """What is newest in the history."""

    async def rejections(self, pool: str | None, start: datetime, end: datetime) -> RejectionReport: ...

    async def recent_migrations(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, Migration]]: ...

    async def recent_reroutes(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, ReRoute]]: ...

    async def recent_decisions(self, pool: str | None, since: datetime, limit: int) -> list[tuple[datetime, RoutingDecision]]: ...


def topics(pools: PoolReader, history: RecentReader) -> dict[str, Topic]:
    """What `/v1/live` offers."""

    async def summaries(pool: str | None, now: datetime) -> Any:
        found = (await pools.pools(Span(limit=100), now)).items
        return [item for item in found if pool in {None, f"{item.namespace}/{item.name}"}]

    async def instances(pool: str | None, now: datetime) -> Any:
        keys = [PoolKey.parse(pool)] if pool else [PoolKey(namespace=item.namespace, name=item.name) for item in await summaries(None, now)]
        found: list[Any] = []
        for key in keys:
            with contextlib.suppress(NotFound):  # deleted between two looks
                found += (await pools.pool(key, now)).instances
        return found

    async def rejections(pool: str | None, now: datetime) -> Any:
        return (await history.rejections(pool, now - timedelta(minutes=5), now)).groups

    return {
        "pools": Snapshot(seconds=1.0, read=summaries),
        "instances": Snapshot(seconds=2.0, read=instances),
        "migrations": Tail(seconds=1.0, read=history.recent_migrations),
        "reroutes": Tail(seconds=1.0, read=history.recent_reroutes),
        "decisions": Tail(seconds=1.0, read=history.recent_decisions, most=10),
        "rejections": Snapshot(seconds=2.0, read=rejections),
    }
