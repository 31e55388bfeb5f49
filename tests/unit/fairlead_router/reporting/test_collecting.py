"""Records are taken from schedulers and written to disk."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.reports.batches import Cargo
from fairlead.reports.key_use import KeyUse
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import Outlook
from fairlead_client.report_posts import decode_batch
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.key_use import KeyUseCounts
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers import Usage
from fairlead_router.reporting.collecting import BATCH_RECORDS, Collector, encode_batches, spooled_changes
from fairlead_router.reporting.spool import Spool, SpooledBatch
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_testing.builders.reports import a_change, a_migration, a_rejection, batch_ids
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.waiting import PATIENCE_SECONDS


def _collector(spool: Spool, metrics: RouterMetrics, on_spooled: Callable[[], None], use: KeyUseCounts | None = None) -> Collector:
    pools = Pools(lambda _table: pytest.fail("no tables here"), metrics, lambda: 5.0)
    watched = SpoolMetrics(spool, metrics, lambda: 5.0)
    return Collector("router-0", pools, use or KeyUseCounts(), spool, watched, lambda: 5.0, batch_ids(), on_spooled)


async def test_what_a_pool_recorded_last_is_kept_when_it_is_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "reports", 1_000_000, time.time)
    spool.open()
    metrics = RouterMetrics()
    now = [5.0]
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 0), metrics, lambda: now[0])
    watched = SpoolMetrics(spool, metrics, lambda: now[0])
    collector = Collector("router-0", pools, KeyUseCounts(), spool, watched, lambda: now[0], batch_ids(), lambda: None)
    pools.apply(replace(routing_table([]), outlook=Outlook.COMING))
    (pool,) = pools.all()
    for number in range(5):
        pool.account.submit(RoutingRequest(id=f"r{number}", arrived_at=5.0, prompt_tokens=10, blocks=(), first_bytes_hash=number), 5.0)
    pools.delete(pool.key)
    now[0] = 200.0
    pools.tick()
    assert sum(pool.counters.refused.values()) == 5
    await collector.collect()
    stored = [decode_batch(batch.path.read_bytes()) for cargo in Cargo for batch in spool.batches(cargo)]
    assert sum(one.count for batch in stored for one in batch.rejections) == 5
    assert list(pools.living()) == [], "and then nothing is kept of it"


async def test_history_is_taken_each_time_and_samples_in_the_first_collection_of_a_second(tmp_path: Path) -> None:
    spool, metrics, now = Spool(tmp_path / "reports", 1_000_000, time.time), RouterMetrics(), [5.0]
    spool.open()
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 0, sample_rate=1.0), metrics, lambda: now[0], recorded_share=1.0)
    watched = SpoolMetrics(spool, metrics, lambda: now[0])
    collector = Collector("router-0", pools, KeyUseCounts(), spool, watched, lambda: now[0], batch_ids(), lambda: None)
    pools.apply(routing_table(["127.0.0.1:1"], policy="ear"))
    (pool,) = pools.all()

    async def collected() -> tuple[int, int, int]:
        """Return the numbers of bindings, decisions and recorded requests on disk."""
        await collector.collect()
        stored = [decode_batch(batch.path.read_bytes()) for cargo in Cargo for batch in spool.batches(cargo)]
        return sum(len(one.bindings) for one in stored), sum(len(one.decisions) for one in stored), sum(len(one.traffic) for one in stored)

    assert await collected() == (0, 0, 0)
    for number, seconds in enumerate((5.2, 5.9)):
        now[0] = seconds
        request = RoutingRequest(
            id=f"r{number}", arrived_at=seconds, prompt_tokens=10, blocks=(), first_bytes_hash=number, session=f"s{number}"
        )
        ticket = pool.account.submit(request, seconds)
        pool.account.complete(ticket, seconds, Usage(output_tokens=1))
        assert await collected() == (number + 1, 0, 0)
    now[0] = 6.0
    assert await collected() == (2, 2, 2)


async def test_what_the_disk_does_not_take_is_sent_from_memory_and_tried_again(tmp_path: Path) -> None:
    directory = tmp_path / "reports"
    spool, use = Spool(directory, 1_000_000, time.time), KeyUseCounts()
    spool.open()
    woken: list[int] = []
    collector = _collector(spool, RouterMetrics(), lambda: woken.append(len(spool)), use)
    directory.rmdir()
    use.add("k1", 130.0, requests=1)
    await collector.collect(final=True)
    assert woken == [1], "who sends is told at once"
    (batch,) = spool.lend(Cargo.HISTORY, 1, 1, 1)
    assert decode_batch(batch.read()).key_use == (KeyUse(key="k1", minute=120, requests=1),)
    directory.mkdir()
    await collector.collect()
    assert spool.unwritten == 0
    assert batch.path.read_bytes() == batch.content
    spool.discard([batch])
    assert list(directory.iterdir()) == []


async def test_the_last_collection_waits_for_what_a_cancelled_one_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, use = Spool(tmp_path / "reports", 1_000_000, time.time), KeyUseCounts()
    spool.open()
    collector = _collector(spool, RouterMetrics(), lambda: None, use)
    writing, slow = threading.Event(), threading.Event()

    def append(self: Spool, cargo: Cargo, records: int, content: bytes) -> SpooledBatch:
        writing.set()
        slow.wait(PATIENCE_SECONDS)
        return real_append(self, cargo, records, content)

    real_append = Spool.append
    monkeypatch.setattr(Spool, "append", append)
    use.add("k1", 130.0, requests=1)
    cancelled = asyncio.create_task(collector.collect(final=True))
    await asyncio.to_thread(writing.wait, PATIENCE_SECONDS)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    last = asyncio.create_task(collector.collect(final=True))
    done, _ = await asyncio.wait([last], timeout=0.1)
    assert not done
    slow.set()
    await last
    assert len(spool.lend(Cargo.HISTORY, 1, 1, 1)) == 1


async def test_the_last_collection_writes_what_a_cancelled_one_had_no_thread_for(tmp_path: Path) -> None:
    spool, use, free = Spool(tmp_path / "reports", 1_000_000, time.time), KeyUseCounts(), threading.Event()
    spool.open()
    collector = _collector(spool, RouterMetrics(), lambda: None, use)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    busy = loop.run_in_executor(None, free.wait, PATIENCE_SECONDS)
    use.add("k1", 130.0, requests=1)
    cancelled = asyncio.create_task(collector.collect(final=True))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    free.set()
    await busy
    await collector.collect(final=True)
    (batch,) = spool.batches(Cargo.HISTORY)
    assert decode_batch(batch.path.read_bytes()).key_use == (KeyUse(key="k1", minute=120, requests=1),)


async def test_the_use_of_keys_is_put_on_disk_as_history_once(tmp_path: Path) -> None:
    spool, use = Spool(tmp_path / "reports", 1_000_000, time.time), KeyUseCounts()
    spool.open()
    collector = _collector(spool, RouterMetrics(), lambda: None, use)
    use.add("k1", 130.0, requests=1)
    await collector.collect(final=True)
    await collector.collect(final=True)
    (batch,) = spool.batches(Cargo.HISTORY)
    assert decode_batch(batch.path.read_bytes()).key_use == (KeyUse(key="k1", minute=120, requests=1),)


def test_records_are_cut_into_batches_with_history_apart_from_samples() -> None:
    changes: list[Any] = [a_change(f"s{number}") for number in range(BATCH_RECORDS + 3)]
    batches = list(encode_batches("router-0", {"bindings": changes, "rejections": [a_rejection(1)], "loads": []}, batch_ids()))
    assert [(batch.cargo, batch.records) for batch in batches] == [(Cargo.HISTORY, BATCH_RECORDS), (Cargo.HISTORY, 4)]
    sessions = [change["session"] for batch in batches for change in msgspec.json.decode(batch.content).get("bindings", [])]
    assert sessions == [f"s{number}" for number in range(BATCH_RECORDS + 3)]


def test_a_migration_never_parts_from_its_binding() -> None:
    changes: list[Any] = [replace(a_change(f"s{number}"), id=f"m{number}") for number in range(BATCH_RECORDS)]
    moves: list[Any] = [a_migration(f"m{number}") for number in range(0, BATCH_RECORDS, 2)]
    batches = [
        msgspec.json.decode(batch.content) for batch in encode_batches("router-0", {"bindings": changes, "migrations": moves}, batch_ids())
    ]
    assert len(batches) == 2
    assert sum(len(batch["migrations"]) for batch in batches) == len(moves)
    for batch in batches:
        assert {move["id"] for move in batch["migrations"]} <= {change["id"] for change in batch["bindings"]}


def test_changes_not_delivered_are_recalled_in_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000_000, time.time)
    spool.open()
    rounds: list[list[Any]] = [[a_change("a"), a_change("b", "i1")], [a_change("a", "i2", based_on=1)]]
    for changes in rounds:
        (batch,) = encode_batches("router-0", {"bindings": changes}, batch_ids())
        spool.append(batch.cargo, batch.records, batch.content)
    spool.append(Cargo.HISTORY, 1, b"not json")
    assert list(spooled_changes(spool)) == [*rounds[0], *rounds[1]]
