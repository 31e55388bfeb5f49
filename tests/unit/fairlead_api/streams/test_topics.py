"""The content of live topics: all pools that the viewer may see, however many, and nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound
from fairlead_api.infra.spans import Sight, Span
from fairlead_api.streams.live import Snapshot, Tail
from fairlead_api.streams.topics import POOLS_AT_ONCE, topics
from fairlead_client.resources.pages import Page

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
NAMES = [f"pool-{number:03}" for number in range(POOLS_AT_ONCE + 20)]


class ManyPools:
    """A store with more pools than a page holds in namespace `a`, and one in `z`; it notes what is read."""

    def __init__(self) -> None:
        self.keys = [*(PoolKey(namespace="a", name=name) for name in NAMES), PoolKey(namespace="z", name="last")]
        self.read: list[str] = []

    async def pools(self, span: Span, now: datetime) -> Page[Any]:
        self.read.append("page")
        seen = [key for key in self.keys if span.sight is None or key.namespace in span.sight]
        start = int(span.cursor or 0)
        items: list[Any] = seen[start : start + span.limit]
        return Page(items=items, next_cursor=str(start + span.limit) if start + span.limit < len(seen) else None)

    async def pool(self, pool: PoolKey, now: datetime, *, instances: bool = True) -> Any:
        self.read.append(str(pool))
        if pool not in self.keys:
            raise NotFound("pool", str(pool))
        return SimpleNamespace(pool=pool, instances=[f"one of {pool}"] if instances else [])


class Nothing:
    """Histories without events; they note their queries."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, Sight]] = []

    async def recent(self, pool: str | None, sight: Sight, since: datetime, limit: int) -> Sequence[tuple[datetime, Any]]:
        self.asked.append((pool, sight))
        return []

    async def rejections(self, pool: str | None, start: datetime, end: datetime, *, sight: Sight = None) -> Any:
        self.asked.append((pool, sight))
        return SimpleNamespace(groups=[])


async def shown(topic: str, pool: str | None, sight: Sight, pools: ManyPools | None = None) -> list[str]:
    nothing = Nothing()
    snapshot = topics(pools or ManyPools(), nothing, nothing, nothing, nothing)[topic]
    assert isinstance(snapshot, Snapshot)
    return [str(one) for one in await snapshot.read(pool, sight, NOW)]


async def test_every_pool_in_sight_is_shown_also_beyond_a_page() -> None:
    everything = [*(f"a/{name}" for name in NAMES), "z/last"]
    assert await shown("pools", None, None) == everything
    assert await shown("pools", None, frozenset({"z"})) == ["z/last"]
    assert await shown("instances", None, None) == [f"one of {pool}" for pool in everything]


async def test_one_pool_is_read_by_its_name_and_only_by_who_sees_it() -> None:
    pools = ManyPools()
    assert await shown("pools", "z/last", None, pools) == ["z/last"]
    assert await shown("pools", "z/last", frozenset({"z"}), pools) == ["z/last"]
    assert await shown("instances", "z/last", None, pools) == ["one of z/last"]
    assert pools.read == ["z/last"] * 3, "no other is read for it"
    for topic in ("pools", "instances"):
        assert await shown(topic, "z/last", frozenset({"a"}), pools) == []
        assert await shown(topic, "z/gone", None, pools) == []


@pytest.mark.parametrize("topic", ["migrations", "reroutes", "decisions", "rejections"])
async def test_what_happened_is_asked_for_within_the_sight(topic: str) -> None:
    nothing, sight = Nothing(), frozenset({"z"})
    found = topics(ManyPools(), nothing, nothing, nothing, nothing)[topic]
    assert list(await (found.read("z/last", sight, NOW, 5) if isinstance(found, Tail) else found.read("z/last", sight, NOW))) == []
    assert nothing.asked == [("z/last", sight)]
