"""The topics of `/v1/live`, and how often each is read."""

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from fairlead.tables import PoolKey
from fairlead_api.services.errors import NotFound
from fairlead_api.services.spans import Span
from fairlead_api.services.streams.live import Snapshot, Tail, Topic
from fairlead_client.resources.pages import Page
from fairlead_client.resources.pools import PoolDetail, PoolSummary
from fairlead_client.resources.rejections import RejectionReport


class Pools(Protocol):
    """The source of pools in their present state."""

    async def pools(self, span: Span, now: datetime) -> Page[PoolSummary]: ...

    async def pool(self, pool: PoolKey, now: datetime) -> PoolDetail:
        """One pool. Raises NotFound."""


class Recent(Protocol):
    """The source of the newest items of one history."""

    async def recent(self, pool: str | None, since: datetime, limit: int) -> Sequence[tuple[datetime, Any]]:
        """(recorded at, item with an id), oldest first."""


class Rejections(Protocol):
    """The source of refusals, by cause."""

    async def rejections(self, pool: str | None, start: datetime, end: datetime) -> RejectionReport: ...


def topics(pools: Pools, migrations: Recent, reroutes: Recent, decisions: Recent, refused: Rejections) -> dict[str, Topic]:
    """The topics of `/v1/live`."""

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
        return (await refused.rejections(pool, now - timedelta(minutes=5), now)).groups

    return {
        "pools": Snapshot(seconds=1.0, read=summaries),
        "instances": Snapshot(seconds=2.0, read=instances),
        "migrations": Tail(seconds=0.5, read=migrations.recent),
        "reroutes": Tail(seconds=0.5, read=reroutes.recent),
        "decisions": Tail(seconds=0.5, read=decisions.recent, most=10),
        "rejections": Snapshot(seconds=2.0, read=rejections),
    }
