"""One-token requests to idle engines, where a pool allows them."""

import asyncio
from dataclasses import dataclass, field, replace

import orjson
import pytest

from fairlead.routing.contracts.loads import GivenWork
from fairlead.routing.knowledge.progress import CANARY_SECONDS, EngineProgress, Life, Movement
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.relaying.canaries import UNABLE_SECONDS, Canaries
from fairlead_testing.builders.routing_tables import CHAT, routing_table


class Engines(UpstreamPool):
    """Engines that answer a canary, or fail in the given way."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.failure: str | None = None
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.headers: list[bytes] = []

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        self.asked.append((path, orjson.loads(body or b"{}")))
        self.headers.append(headers)
        if self.failure is not None:
            raise UpstreamFailure(self.failure, "in this way")
        return b"{}"


@dataclass
class Stage:
    allowed: bool = True
    now: float = 1000.0
    running: int = 0
    progress: EngineProgress = field(default_factory=EngineProgress)

    def __post_init__(self) -> None:
        self.engines = Engines()
        table = routing_table(["10.0.0.1:8000"])
        self.pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), RouterMetrics(), lambda: self.now)
        self.pools.apply(replace(table, engine=replace(table.engine, canary=self.allowed)))
        [entry] = table.instances
        self.pool.engines.lives[entry.id] = self.progress
        self.canaries = Canaries(self.pools, self.engines, lambda: self.now)

    @property
    def pool(self) -> Pool:
        pool = self.pools.get(CHAT)
        assert pool is not None
        return pool

    def is_now(self, life: Life) -> bool:
        return self.progress.life is life

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            self.now += 1.0
            self.progress.saw(Movement(running=self.running, counts=(1.0,)), GivenWork(requests=0), self.now)
            await self.canaries.send()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


async def test_an_idle_engine_is_asked_for_one_token_every_half_minute() -> None:
    stage = Stage()
    await stage.seconds(5 * int(CANARY_SECONDS) + 5)
    assert len(stage.engines.asked) in (4, 5)
    path, body = stage.engines.asked[0]
    assert (path, body["max_tokens"], body["model"]) == ("/v1/completions", 1, stage.pool.table.model)
    assert stage.pool.counters.canaries == {"answered": len(stage.engines.asked)}
    assert stage.is_now(Life.IDLE)


async def test_no_engine_is_asked_where_its_pool_does_not_allow_it() -> None:
    stage = Stage(allowed=False)
    await stage.seconds(300)
    assert stage.engines.asked == []


async def test_an_idle_engine_that_hangs_is_found() -> None:
    stage = Stage()
    stage.engines.failure = "timeout"
    await stage.seconds(40)
    assert stage.is_now(Life.STALLED)
    assert stage.pool.counters.canaries["hung"] >= 1
    stage.engines.failure = None
    await stage.seconds(40)
    assert stage.is_now(Life.IDLE), "it answered again"


@pytest.mark.parametrize("kind", ["refused", "unreachable", "lost"])
async def test_what_speaks_of_the_connection_is_no_sign_of_a_hang(kind: str) -> None:
    stage = Stage()
    stage.engines.failure = kind
    await stage.seconds(200)
    assert stage.is_now(Life.IDLE)


async def test_an_engine_that_takes_no_canary_is_left_alone_for_an_hour() -> None:
    """The engine asks for a credential, or generates no text."""
    stage = Stage()
    stage.engines.failure = "status"
    await stage.seconds(int(UNABLE_SECONDS) - 1)
    assert len(stage.engines.asked) == 1
    assert stage.is_now(Life.IDLE)


async def test_each_rank_of_an_engine_is_asked_by_its_number() -> None:
    stage = Stage()
    stage.pool.see_ranks("i0", range(3), stage.now)
    lives = {f"i0#{rank}": EngineProgress() for rank in range(3)}
    stage.pool.engines.lives = {**lives}
    for _ in range(40):
        for one in lives.values():
            one.saw(Movement(running=0, counts=(1.0,)), GivenWork(requests=0), stage.now + 1)
        await stage.seconds(1)
    assert sorted(stage.engines.headers) == [b"x-data-parallel-rank: %d\r\n" % rank for rank in range(3)]
