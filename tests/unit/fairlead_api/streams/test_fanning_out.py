"""Streams and live topics in memory: which streams are cut off, which must read again, and which routers share work."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlead.errors import InvalidInput
from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.reports.bindings import Binding, BindingReason
from fairlead.reports.shares import InstanceWork, PoolShare
from fairlead.tables import PoolKey
from fairlead_api.infra.errors import NotFound, StoreUnavailable
from fairlead_api.infra.notices import BindingsChanged
from fairlead_api.infra.sharing import Shared
from fairlead_api.infra.spans import Sight
from fairlead_api.streams.live import BACKLOG, LEAST_SECONDS, OVERLAP, RESUME, Listener, Live, Snapshot, Tail
from fairlead_api.streams.table_stream import TableStream
from fairlead_client.lines import KeptSession, TableLine
from fairlead_testing.waiting import PATIENCE_SECONDS

POOL = PoolKey(namespace="n", name="p")


def binding(session: str, version: int = 1) -> Binding:
    return Binding(pool=POOL, session=session, instance="a", version=version, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None)


class MemoryStore:
    """A store with 1,200 bindings, and a switch that makes the database unavailable."""

    def __init__(self) -> None:
        self.rows = [binding(f"s{number:04}") for number in range(1200)]
        self.away = False
        self.told: dict[PoolKey, dict[str, tuple[PoolShare, float]]] = {}

    async def shares(self) -> dict[PoolKey, dict[str, tuple[PoolShare, float]]]:
        return self.told

    async def tables(self) -> list[TableLine]:
        if self.away:
            raise StoreUnavailable("away")
        return []

    async def gateway_keys(self) -> list[GatewayKeyFacts]:
        if self.away:
            raise StoreUnavailable("away")
        return []

    async def kept_sessions(self) -> list[KeptSession]:
        return []

    async def table(self, pool: PoolKey) -> TableLine:
        raise NotFound("table", str(pool))

    async def deleted_pools(self) -> list[PoolKey]:
        return [POOL]

    async def bindings(self, after: tuple[int, str] | None, limit: int) -> tuple[list[Binding], tuple[int, str] | None]:
        found = [row for row in self.rows if after is None or row.session > after[1]][:limit]
        return found, (1, found[-1].session) if len(found) == limit else None


async def test_a_snapshot_comes_in_batches_and_ends_with_synced_then_heartbeats() -> None:
    stream = TableStream(MemoryStore(), heartbeat_seconds=0.01)
    lines = await stream.open("r")
    kinds = [msgspec.json.decode(await anext(lines)) for _ in range(8)]
    assert [kind["type"] for kind in kinds] == [
        "gateway_keys",
        "kept_sessions",
        "pool_deleted",
        "bindings",
        "bindings",
        "bindings",
        "synced",
        "heartbeat",
    ]
    assert [len(kind.get("bindings", ())) for kind in kinds[3:6]] == [500, 500, 200]
    assert stream.subscribers == 1


async def test_a_reader_beyond_its_backlog_is_cut_off_and_others_are_not() -> None:
    store = MemoryStore()
    store.rows = []
    stream = TableStream(store, heartbeat_seconds=0.01, backlog=8)
    slow, quick = await stream.open("slow"), await stream.open("quick")
    for lines in (slow, quick):
        while b"synced" not in await anext(lines):
            pass
    for number in range(20):
        await stream.on_notice(BindingsChanged((binding("s", number + 1),)))
        while b"bindings" not in await anext(quick):
            pass
    taken = [line async for line in slow]
    assert len(taken) <= 8
    assert stream.subscribers == 1


async def test_a_gap_is_filled_by_a_new_snapshot_once_the_database_is_back() -> None:
    store = MemoryStore()
    store.rows = []
    stream = TableStream(store, heartbeat_seconds=0.01)
    lines = await stream.open("r")
    while b"synced" not in await anext(lines):
        pass
    store.away = True
    stream.on_gap()
    assert b"heartbeat" in await anext(lines)
    store.rows, store.away = [binding("late")], False
    async with asyncio.timeout(PATIENCE_SECONDS):
        while b"late" not in await anext(lines):
            pass


async def test_only_those_that_share_are_told_of_others_and_one_alone_of_nobody() -> None:
    store = MemoryStore()
    stream = TableStream(store)
    lines = {name: await stream.open(name) for name in ("a", "b", "asking")}
    for of_router in lines.values():
        while b"synced" not in await anext(of_router):
            pass
    for names in (("a",), ("a", "b")):
        store.told = {POOL: {name: (PoolShare(pool=POOL, why="no-answer", work=(InstanceWork(instance=name),)), 0.5) for name in names}}
        await stream.tell_others()
    told = {name: msgspec.json.decode(await anext(lines[name])) for name in names}
    assert {name: [row["instance"] for row in line["share"]["work"]] for name, line in told.items()} == {"a": ["b"], "b": ["a"]}
    await stream.on_notice(BindingsChanged((binding("s"),)))
    assert msgspec.json.decode(await anext(lines["asking"]))["type"] == "bindings"


async def test_a_stream_without_database_is_an_error_and_leaves_nothing_behind() -> None:
    store = MemoryStore()
    store.away = True
    stream = TableStream(store)
    with pytest.raises(StoreUnavailable):
        await stream.open("r")
    assert stream.subscribers == 0


def test_a_full_listener_is_told_to_look_again() -> None:
    listener = Listener()
    for _ in range(BACKLOG + 1):
        listener.offer(b"event: pools\n\n")
    assert listener.events.qsize() == 1
    assert listener.events.get_nowait().startswith(b"event: resync")


async def test_one_look_serves_all_who_listen_to_a_topic() -> None:
    looks = 0

    async def read(pool: str | None, _sight: Sight, now: datetime) -> list[int]:
        nonlocal looks
        looks += 1
        return [looks]

    live = Live({"pools": Snapshot(seconds=3600, read=read)}, lambda: datetime.now(UTC))
    streams = [live.stream(["pools"], None, bytes([number]), None) for number in range(20)]
    await asyncio.gather(*(anext(stream) for stream in streams))
    assert live.streams == 20
    assert looks == 1
    for stream in streams:
        await stream.aclose()
    assert live.streams == 0


async def test_a_pool_that_changed_is_looked_at_at_once_by_those_who_show_it_and_not_more_often_than_bearable() -> None:
    looks: list[tuple[str | None, float]] = []

    async def read(pool: str | None, _sight: Sight, now: datetime) -> list[int]:
        looks.append((pool, time.monotonic()))
        return [len(looks)]

    live = Live({"pools": Snapshot(seconds=3600, read=read)}, lambda: datetime.now(UTC))
    streams = {pool: live.stream(["pools"], pool, b"", None) for pool in (None, str(POOL), "n/other")}
    for stream in streams.values():
        await anext(stream)
    live.look_again(POOL)
    live.look_again(POOL)
    for pool in (None, str(POOL)):
        await asyncio.wait_for(anext(streams[pool]), PATIENCE_SECONDS)
    assert Counter(pool for pool, _ in looks) == {None: 2, str(POOL): 2, "n/other": 1}
    first, second = (at for pool, at in looks if pool is None)
    assert second - first >= LEAST_SECONDS * 0.99
    for stream in streams.values():
        await stream.aclose()


@pytest.mark.parametrize("pool", ["a", "a/", "/b", "a/b/c"])
def test_a_pool_that_cannot_be_is_refused_before_the_stream_begins(pool: str) -> None:
    with pytest.raises(InvalidInput, match="write namespace/name"):
        Live({}, lambda: datetime.now(UTC)).check([], pool)


async def test_a_look_that_fails_is_not_the_last_one_of_those_who_listen() -> None:
    looks = 0

    async def read(_pool: str | None, _sight: Sight, _now: datetime) -> list[int]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("a row that nobody expected")
        return [looks]

    live = Live({"pools": Snapshot(seconds=LEAST_SECONDS, read=read)}, lambda: datetime.now(UTC))
    stream = live.stream(["pools"], None, b"", None)
    assert b"[2]" in await asyncio.wait_for(anext(stream), PATIENCE_SECONDS)
    await stream.aclose()


async def test_concurrent_askers_share_one_computation_and_failures_are_not_kept() -> None:
    made = 0

    async def make() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0.01)
        if made == 1:
            raise StoreUnavailable("away")
        return made

    shared = Shared(60)
    failed = await asyncio.gather(*(shared.get("k", make) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(found, StoreUnavailable) for found in failed)
    assert await asyncio.gather(*(shared.get("k", make) for _ in range(3))) == [2, 2, 2]
    assert await shared.get("k", make) == 2


@pytest.mark.parametrize(
    ("ago", "looks_back"),
    [(timedelta(seconds=10), timedelta(seconds=10) + OVERLAP), (timedelta(hours=1), RESUME)],
    ids=["lately", "long-ago"],
)
async def test_a_stream_resumed_at_another_process_looks_back_before_its_last_event(ago: timedelta, looks_back: timedelta) -> None:
    """Rows that were committed late were not in the last event, and its id comes from the clock of another process."""
    now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
    asked: asyncio.Queue[datetime] = asyncio.Queue()

    async def read(_pool: str | None, _sight: Sight, since: datetime, _limit: int) -> list[tuple[datetime, object]]:
        asked.put_nowait(since)
        return []

    live = Live({"moves": Tail(seconds=3600, read=read)}, lambda: now)
    stream = live.stream(["moves"], None, b"someone", str(int((now - ago).timestamp() * 1000)))
    reading = asyncio.ensure_future(anext(stream))
    assert await asyncio.wait_for(asked.get(), PATIENCE_SECONDS) == now - looks_back
    reading.cancel()
    await asyncio.wait([reading])
