"""KV events of engines that announce too many sources: sockets are bounded, and other engines are still followed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import zmq

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sources import Source
from fairlead.plausibility import MESSAGE_BYTES, MOST_INTEGER, MOST_SOURCES
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events import subscriptions
from fairlead_router.kv_events.reading import SlicedReader
from fairlead_router.kv_events.sources import EventSource
from fairlead_router.kv_events.subscriptions import (
    ASKS_AT_ONCE,
    FIRST_REST_SECONDS,
    LONGEST_REST_SECONDS,
    MOST_BYTES_A_SECOND,
    REST_AFTER_SECONDS,
    Subscription,
)
from fairlead_router.kv_events.wire import WireBatch
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.kv_event_following import ASK_AGAIN_SECONDS, OPENED_A_TURN, SILENT_SECONDS, KvEventFollower
from fairlead_router.pools.pools import Pools
from fairlead_testing.builders.routing_tables import CHAT, routing_table

SOURCE = Source(instance="i0")


def naming(count: int) -> bytes:
    """Return the answer of an engine that names this many sources, none of which listens."""
    return json.dumps([{"endpoint": f"tcp://*:{1 + number % 60_000}", "replay_endpoint": "tcp://*:1"} for number in range(count)]).encode()


class Answers(UpstreamPool):
    """Engines that give these answers, by address."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        super().__init__(lambda: 0.0)
        self.answers = answers

    async def fetch(self, address: str, path: str, **_: Any) -> bytes:
        if address not in self.answers:
            raise UpstreamFailure("refused", "nobody is there")
        return self.answers[address]


class Followed:
    """A follower of engines at 127.0.0.2, …3, and so on."""

    def __init__(self, *answers: bytes, most: int = 1024) -> None:
        self.now = 1000.0
        addresses = [f"127.0.0.{2 + number}:8000" for number in range(len(answers))]
        self.engines = Answers(dict(zip(addresses, answers, strict=True)))
        metrics = RouterMetrics()
        self.pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), metrics, lambda: self.now)
        self.pools.apply(routing_table(addresses))
        self.follower = KvEventFollower(self.pools, self.engines, metrics, lambda: self.now, most_sources=most)

    async def look(self, seconds: float = 0.0) -> None:
        self.now += seconds
        await self.follower.follow()

    @property
    def open(self) -> list[int]:
        """The open sources, by instance."""
        events = [one.events for _, one in sorted(self.follower._followed.items())]
        return [0 if one is None else len(one.subscriptions) for one in events]

    def troubles(self, instance: str) -> dict[EngineTrouble, str]:
        pool = self.pools.get(CHAT)
        assert pool is not None
        return dict(pool.engines.troubles[instance])


@asynccontextmanager
async def following(*answers: bytes, most: int = 1024) -> AsyncIterator[Followed]:
    made = Followed(*answers, most=most)
    try:
        yield made
    finally:
        made.follower.close()


async def test_an_engine_with_30_000_sources_gets_a_bounded_number_of_sockets_and_a_complaint() -> None:
    async with following(naming(30_000), naming(1)) as stage:
        for _ in range(3):
            await stage.look(ASK_AGAIN_SECONDS)
        assert stage.open == [MOST_SOURCES, 1]
        assert "it names 30000 sources" in stage.troubles("i0")[EngineTrouble.REPORTS_IMPLAUSIBLE]
        assert stage.troubles("i1") == {}
        stage.engines.answers["127.0.0.2:8000"] = naming(2)
        await stage.look(ASK_AGAIN_SECONDS)
        assert stage.open == [2, 1] and stage.troubles("i0") == {}


async def test_of_all_engines_together_no_more_sources_are_followed_than_the_setting_allows() -> None:
    async with following(*[naming(30)] * 5, most=100) as stage:
        for _ in range(3):
            await stage.look(ASK_AGAIN_SECONDS)
        assert stage.open == [30, 30, 30, 10, 0]
        stage.engines.answers["127.0.0.2:8000"] = b"[]"
        await stage.look(ASK_AGAIN_SECONDS)
        await stage.look(ASK_AGAIN_SECONDS)
        assert sum(stage.open) <= 100 and stage.open[0] == 0 and stage.open[4] == 30


async def test_few_sources_are_opened_at_a_time_and_other_work_goes_on_in_between() -> None:
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with following(*[naming(MOST_SOURCES)] * 3) as stage:
        task = asyncio.create_task(other_work())
        await stage.look()
        assert sum(stage.open) == OPENED_A_TURN and turns >= OPENED_A_TURN / 4
        await stage.look(1.0)
        await stage.look(1.0)
        assert stage.open == [MOST_SOURCES] * 3
        task.cancel()


async def test_when_one_socket_cannot_be_opened_those_made_before_are_closed_and_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, closed = [0], [0]
    open_one, close_one = Subscription._open, Subscription._hear_no_more

    def opens(self: Subscription) -> None:
        if opened[0] == 3:
            raise zmq.ZMQError(24)
        opened[0] += 1
        open_one(self)

    def closes(self: Subscription) -> None:
        closed[0] += 1
        close_one(self)

    monkeypatch.setattr(Subscription, "_open", opens)
    monkeypatch.setattr(Subscription, "_hear_no_more", closes)
    async with following(naming(8)) as stage:
        await stage.look()
        assert stage.open == [0] and (opened, closed) == ([3], [3])
        opened[0] = 100
        await stage.look(ASK_AGAIN_SECONDS)
        assert stage.open == [8]


@pytest.mark.parametrize(
    "answer", [b"[" * 100_000, b'[{"endpoint":"tcp://*:1","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}]", b"\xff", b'{"9":3}']
)
async def test_an_answer_that_cannot_be_read_costs_no_other_engine_its_events(answer: bytes) -> None:
    async with following(answer, naming(2)) as stage:
        await stage.look()
        assert stage.open == [0, 2]


@pytest.mark.parametrize("passes", [False, True])
async def test_an_engine_that_does_not_go_by_the_priorities_that_it_is_given_says_so(passes: bool) -> None:
    async with following(b'{"enable_priority_scheduling": false}') as stage:
        pool = stage.pools.get(CHAT)
        assert pool is not None
        pool.update(replace(pool.table, version=2, engine=replace(pool.table.engine, type="sglang", pass_priority=passes)), stage.now)
        await stage.look()
        assert (EngineTrouble.PRIORITY_NOT_FOLLOWED in stage.troubles("i0")) is passes
        stage.engines.answers["127.0.0.2:8000"] = b'{"enable_priority_scheduling": true}'
        await stage.look(SILENT_SECONDS)
        assert stage.troubles("i0") == {}


async def test_a_fault_of_ours_at_one_engine_costs_no_other_engine_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async with following(b"1", naming(2)) as stage:
        fetch = stage.engines.fetch

        async def fails(address: str, path: str, **named: Any) -> bytes:
            if address == "127.0.0.2:8000":
                raise ZeroDivisionError
            return await fetch(address, path, **named)

        monkeypatch.setattr(stage.engines, "fetch", fails)
        await stage.look()
        assert stage.open == [0, 2]


# ── one source ──


class Line:
    """A subscription whose clock a test sets."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:1", replay: str | None = "tcp://127.0.0.1:1") -> None:
        self.now = 1000.0
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.caches = EngineCaches()
        told = EventSource(rank=0, endpoint=endpoint, replay_endpoint=replay, topic="")
        self.subscription = Subscription(self.context, told, SOURCE, self.caches, lambda: self.now, SlicedReader(), lambda: None)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.subscription.check_replay()

    def hear(self, number: int, *events: object, stamp: float | None = None) -> None:
        payload = msgspec.msgpack.encode([float(number) if stamp is None else stamp, list(events), 0])
        self.subscription._take_published(number.to_bytes(8, "big"), payload)

    def apply(self) -> None:
        while self.subscription._unapplied:
            self.subscription._apply(self.subscription._unapplied.popleft())


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    made = Line()
    yield made
    made.subscription.close()
    made.context.destroy(linger=0)


def stored(number: int, **more: object) -> dict[str, object]:
    return {"type": "BlockStored", "block_hashes": [number], "parent_block_hash": None, "token_ids": [number] * 4, "block_size": 4, **more}


async def test_a_source_that_was_never_reached_rests_for_longer_and_longer_without_a_socket(line: Line) -> None:
    one = line.subscription
    rests: list[float] = []
    for _ in range(8):
        line.after(REST_AFTER_SECONDS)
        assert one.rests and one._live.closed and one._monitor.closed
        began = line.now
        while one.rests:
            line.after(1.0)
        rests.append(line.now - began)
        assert not one._live.closed
    assert rests[:4] == [FIRST_REST_SECONDS * 2**turn for turn in range(4)] and max(rests) == LONGEST_REST_SECONDS


async def test_a_source_whose_engine_is_back_is_woken_at_once(line: Line) -> None:
    line.after(REST_AFTER_SECONDS)
    line.subscription.wake()
    assert not line.subscription.rests and not line.subscription._live.closed
    line.subscription.wake()


async def test_a_source_that_can_be_reached_does_not_rest(line: Line) -> None:
    line.subscription.connected = True
    for _ in range(100):
        line.after(REST_AFTER_SECONDS)
    assert not line.subscription.rests


async def test_a_source_that_sends_more_than_can_be_taken_in_is_forgotten_and_rests(line: Line) -> None:
    line.subscription.connected = True
    line.hear(0, stored(1))
    line.apply()
    assert line.caches.index.blocks(SOURCE) == {"GPU": 1}
    payload = b"x" * MESSAGE_BYTES
    for _ in range(MOST_BYTES_A_SECOND // MESSAGE_BYTES + 1):
        line.subscription._take_published(bytes(8), payload)
    line.after(1.0)
    one = line.subscription
    assert one.rests and one._live.closed and one.floods == 1 and not one.is_settled
    assert sum(line.caches.index.blocks(SOURCE).values()) == 0


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_source_cannot_make_a_router_open_a_socket_for_each_of_its_messages(line: Line, *, restarts: bool) -> None:
    opened = [0]
    make = line.subscription._opened

    def counts(kind: int) -> "zmq.Socket[bytes]":
        opened[0] += 1
        return make(kind)

    line.subscription._opened = counts  # type: ignore[method-assign]
    for number in range(2_000):
        if restarts:
            line.hear(5, stamp=float(number))
        else:
            line.subscription._do(line.subscription._tracker.reconnected())
    assert opened[0] <= ASKS_AT_ONCE + 1
    line.after(1.0)
    assert opened[0] <= ASKS_AT_ONCE + 2


@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), -1e300])
async def test_a_batch_of_no_time_is_unreadable(line: Line, stamp: float) -> None:
    line.hear(0, stored(1), stamp=stamp)
    assert line.subscription.unreadable == 1 and line.subscription.lag_seconds is None


UNREADABLE: dict[str, Callable[[], dict[str, object]]] = {
    "a block of fewer tokens than none": lambda: stored(1, block_size=-1),
    "a block of fewer than no token": lambda: stored(1, block_size=-4),
    "a block of more tokens than any": lambda: stored(1, block_size=2**40),
    "a hash of a megabyte": lambda: stored(1, block_hashes=[b"x" * 2**20]),
    "a parent of a megabyte": lambda: stored(1, parent_block_hash=b"x" * 2**20),
    "a tier of a megabyte": lambda: stored(1, medium="x" * 2**20),
    "an adapter of a megabyte": lambda: stored(1, lora_name="x" * 2**20),
    "a salt of a megabyte": lambda: stored(1, cache_salt="x" * 2**20),
    "a removal of a megabyte": lambda: {"type": "BlockRemoved", "block_hashes": [b"x" * 2**20]},
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_an_event_that_no_engine_has_costs_its_batch_and_no_more(line: Line, name: str) -> None:
    line.hear(0, UNREADABLE[name]())
    assert line.subscription.unreadable == 1
    line.hear(0, stored(1))
    line.apply()
    assert line.caches.index.blocks(SOURCE) == {"GPU": 1}
    assert line.caches.index.block_size(SOURCE) == 4


async def test_deep_extra_keys_cost_their_batch_and_no_more(line: Line) -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    event = msgspec.msgpack.encode(stored(1, extra_keys=None)).replace(b"\xaaextra_keys\xc0", b"\xaaextra_keys" + deep)
    line.subscription._take_published(bytes(8), b"\x93\xcb" + bytes(8) + b"\x91" + event + b"\x00")
    assert line.subscription.unreadable == 1


async def test_blocks_in_memory_of_unknown_kinds_are_counted_and_not_kept() -> None:
    made = Line(replay=None)
    made.hear(0, *(stored(number, medium=f"tier-{number}") for number in range(500)))
    made.apply()
    assert dict(made.caches.index.blocks(SOURCE)) == {}
    assert made.caches.index.counts.unknown_medium == 500
    made.subscription.close()
    made.context.destroy(linger=0)


async def test_lost_batches_are_counted_up_to_a_number_that_json_can_carry() -> None:
    made = Line(replay=None)
    for turn in range(5):
        made.hear(0, stamp=turn * 10.0)
        made.hear(MOST_INTEGER, stamp=turn * 10.0 + 1.0)
    made.apply()
    assert made.subscription.counts.lost == MOST_INTEGER
    made.subscription.close()
    made.context.destroy(linger=0)


async def test_a_long_batch_is_taken_in_parts_in_its_order(line: Line) -> None:
    events = [*(stored(number) for number in range(2_000)), {"type": "AllBlocksCleared"}, stored(5)]
    line.hear(0, *events)
    parts = 1
    while line.subscription._unapplied:
        part = line.subscription._unapplied.popleft()
        assert not isinstance(part, WireBatch) or len(part.events) <= subscriptions.BLOCKS_AT_ONCE
        line.subscription._apply(part)
        parts += 1
    assert parts == 4 and line.subscription.events == len(events)
    assert line.caches.index.blocks(SOURCE)["GPU"] == 1
