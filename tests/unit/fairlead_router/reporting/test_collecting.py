"""Taking records from schedulers and putting them on disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.reports.key_use import KeyUse
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import Outlook
from fairlead_client.report_posts import decode_batch
from fairlead_router.key_use import KeyUseCounts
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.reporting.batches import encode_batches
from fairlead_router.reporting.collecting import Collector
from fairlead_router.reporting.spool import Cargo, Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.builders.reports import a_change, batch_ids
from fairlead_testing.builders.routing_tables import routing_table


def _collector(spool: Spool, metrics: RouterMetrics, on_spooled: Callable[[], None], use: KeyUseCounts | None = None) -> Collector:
    pools = Pools(lambda _table: pytest.fail("no tables here"), metrics, lambda: 5.0)
    watched = SpoolMetrics(spool, metrics, lambda: 5.0)
    return Collector("router-0", pools, use or KeyUseCounts(), spool, watched, lambda: 5.0, batch_ids(), on_spooled)


async def test_what_a_pool_recorded_last_is_kept_when_it_is_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "reports", 1_000_000)
    spool.open()
    metrics = RouterMetrics()
    now = [5.0]
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 0), metrics, lambda: now[0])
    watched = SpoolMetrics(spool, metrics, lambda: now[0])
    collector = Collector("router-0", pools, KeyUseCounts(), spool, watched, lambda: now[0], batch_ids(), lambda: None)
    pools.apply(replace(routing_table([]), outlook=Outlook.COMING))
    (pool,) = pools.all()
    for number in range(5):
        pool.submit(RoutingRequest(id=f"r{number}", arrived_at=5.0, prompt_tokens=10, blocks=(), first_bytes_hash=number), 5.0)
    pools.delete(pool.key)
    now[0] = 200.0
    pools.tick()
    assert sum(pool.counters.refused.values()) == 5
    await collector.collect()
    stored = [decode_batch(batch.path.read_bytes()) for cargo in Cargo for batch in spool.batches(cargo)]
    assert sum(one.count for batch in stored for one in batch.rejections) == 5
    assert list(pools.living()) == [], "and then nothing is kept of it"


async def test_what_the_disk_does_not_take_is_kept_in_memory_and_tried_again(tmp_path: Path) -> None:
    directory = tmp_path / "reports"
    spool = Spool(directory, 1_000_000)
    spool.open()
    woken: list[int] = []
    collector = _collector(spool, RouterMetrics(), lambda: woken.append(len(spool)))
    collector._unspooled = list(encode_batches("router-0", {"bindings": [a_change("a")]}, batch_ids()))
    directory.rmdir()
    await collector.collect()
    assert len(collector._unspooled) == 1
    directory.mkdir()
    await collector.collect()
    assert collector._unspooled == []
    assert len(spool) == 1
    assert woken[-1] == 1, "who sends is told once it is on disk"


async def test_the_use_of_keys_is_put_on_disk_as_history_once(tmp_path: Path) -> None:
    spool, use = Spool(tmp_path / "reports", 1_000_000), KeyUseCounts()
    spool.open()
    collector = _collector(spool, RouterMetrics(), lambda: None, use)
    use.add("k1", 130.0, requests=1)
    await collector.collect(final=True)
    await collector.collect(final=True)
    (batch,) = spool.batches(Cargo.HISTORY)
    assert decode_batch(batch.path.read_bytes()).key_use == (KeyUse(key="k1", minute=120, requests=1),)
