"""One source over real sockets: bytes that are no batch cost no more than a batch."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec
import pytest
import zmq

from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.sequences import SourceState
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.reading import SlicedReader
from fairlead_router.kv_events.sources import EventSource
from fairlead_router.kv_events.subscriptions import Subscription
from fairlead_testing.waiting import PATIENCE_SECONDS

SOURCE = Source(instance="i0")


@dataclass
class Line:
    """A publisher without replays, and a subscription to it."""

    publisher: "zmq.Socket[bytes]"
    subscription: Subscription
    caches: EngineCaches

    def batch(self, number: int) -> tuple[bytes, bytes, bytes]:
        """Return the frames of a batch that stores one block of its own."""
        event = {"type": "BlockStored", "block_hashes": [number], "parent_block_hash": None, "token_ids": [number] * 4, "block_size": 4}
        return b"topic", number.to_bytes(8, "big"), msgspec.msgpack.encode([float(number), [event], 0])

    async def holds(self, blocks: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.caches.index.blocks(SOURCE).get("GPU", 0) != blocks:
                await asyncio.sleep(0.002)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = context.socket(zmq.PUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    told = EventSource(rank=0, endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=None, topic="")
    caches, reader = EngineCaches(), SlicedReader()
    subscription = Subscription(context, told, SOURCE, caches, time.time, reader, lambda: None)
    made = Line(publisher, subscription, caches)
    async with asyncio.timeout(PATIENCE_SECONDS):
        number = 0
        while not subscription.counts.applied:  # a subscription stands some time after its connection
            publisher.send_multipart(made.batch(number))
            await asyncio.sleep(0.01)
    yield made
    subscription.close()
    publisher.close(linger=0)
    context.destroy(linger=0)


async def test_batches_in_order_are_held_and_counted(line: Line) -> None:
    for number in range(1, 50):
        line.publisher.send_multipart(line.batch(number))
    await line.holds(50)
    assert line.subscription.state is SourceState.CURRENT
    assert (line.subscription.events, line.subscription.unreadable) == (50, 0)


@pytest.mark.parametrize("odd", [(b"topic", b"12345678", b"not msgpack"), (b"topic", b"short", b""), (b"a", b"b", b"c", b"d", b"e")])
async def test_a_message_that_is_no_batch_is_counted_and_passed_over(line: Line, odd: tuple[bytes, ...]) -> None:
    line.publisher.send_multipart(odd)
    line.publisher.send_multipart(line.batch(1))
    await line.holds(2)
    assert line.subscription.unreadable == 1 and line.subscription.counts.lost == 0


@pytest.mark.parametrize("odd", [(b"alone",), (b"topic", b"12345678")])
async def test_a_message_that_is_too_short_costs_one_batch_at_most(line: Line, odd: tuple[bytes, ...]) -> None:
    line.publisher.send_multipart(odd)
    for number in range(1, 4):
        line.publisher.send_multipart(line.batch(number))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while line.subscription.counts.applied + line.subscription.counts.lost < 4:
            await asyncio.sleep(0.002)
    assert line.subscription.unreadable >= 1 and line.subscription.counts.lost <= 1
