"""Batches of KV events that a hostile engine sends to a router's process, over real ZeroMQ and bare TCP: its memory
stays bounded, the other engine's events are heard, and clients are served.
"""

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import msgspec
import pytest
import zmq
import zmq.asyncio
from prometheus_client.parser import text_string_to_metric_families

from fairlead.plausibility import MESSAGE_BYTES
from fairlead_router.kv_events.zmtp import OPENING
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World
from fairlead_testing.worlds.small_routers import MEBIBYTE, Ports, small_router
from processkube.testing.ports import free_port

MOST_MORE = 256
"""The most MiB of a router above its use at rest; each attack sends 200 to 400."""
CHAT = {"model": "mock", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
LARGE = MESSAGE_BYTES - 100

Numbered = Iterator[tuple[int, bytes]]


def stored(first: int, count: int = 1) -> bytes:
    """Return a batch of one event with this many blocks of 16 tokens."""
    hashes, tokens = list(range(first, first + count)), [7] * 16 * count
    event = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": tokens, "block_size": 16}
    return msgspec.msgpack.encode([1.0, [event], 0])


def _same(payload: bytes, times: int) -> Numbered:
    yield from ((number, payload) for number in range(times))


def _gaps() -> Numbered:
    """Return batches of 50,000 blocks whose numbers are 1000 apart."""
    payload = stored(0, 50_000)
    yield from ((number * 1000, payload) for number in range(1, 200))


ATTACKS: dict[str, Callable[[], Numbered]] = {
    "as many blocks as fit": lambda: _same(stored(0, 180_000), 80),
    "more than a message may have": lambda: _same(bytes(MESSAGE_BYTES + MEBIBYTE), 40),
    "nested": lambda: _same(b"\x91" * LARGE, 80),
    "nested maps": lambda: _same(b"\x93\xcb\x3f\xf0" + bytes(6) + b"\x91" + b"\x81\xa1x" * (LARGE // 3), 80),
    "a count that lies": lambda: _same(b"\x93\xcb\x3f\xf0" + bytes(6) + b"\xdd\xff\xff\xff\xff" + b"\xc0" * 100_000, 2_000),
    "a length that lies": lambda: _same(b"\x93\xcb\x3f\xf0" + bytes(6) + b"\xc6\xff\xff\xff\xff" + bytes(100_000), 2_000),
    "many events": lambda: _same(msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}] * 150_000, 0]), 80),
    "gaps": _gaps,
    "without end": lambda: _same(stored(0), 300_000),
}


class Engines:
    """The publishers of two engines: `hostile` is instance i0's, `good` i1's. Those that connect have one port."""

    def __init__(self, ports: tuple[int, int], *, connects: bool) -> None:
        self._context = zmq.asyncio.Context()
        self.good, self.hostile = (self._context.socket(zmq.PUB) for _ in ports)
        for socket, port in zip((self.hostile, self.good), ports, strict=True):
            socket.linger, socket.sndhwm = 0, 50
            if connects:
                socket.connect(f"tcp://127.0.0.1:{port}")
            else:
                socket.bind(f"tcp://127.0.0.1:{port}")
        self.published = 0

    async def publish_one(self) -> None:
        """Publish a further block of the good engine."""
        await self.good.send_multipart((b"kv@i1@m", self.published.to_bytes(8, "big"), stored(1 + self.published)))
        self.published += 1

    async def attack(self, messages: Numbered) -> None:
        for number, payload in messages:
            await self.hostile.send_multipart((b"kv@i0@m", number.to_bytes(8, "big"), payload))
            await asyncio.sleep(0)

    def close(self) -> None:
        self._context.destroy(linger=0)


async def _blocks(client: httpx.AsyncClient, ports: Ports) -> float:
    """Return the router's number of blocks of the good engine."""
    page = (await client.get(f"http://127.0.0.1:{ports.operators}/metrics")).text
    samples = [one for family in text_string_to_metric_families(page) for one in family.samples if one.name == "fairlead_router_kv_blocks"]
    return sum(one.value for one in samples if one.labels["instance"] == "i1")


async def _heard(client: httpx.AsyncClient, ports: Ports, engines: Engines) -> None:
    """Publish until a block of the good engine is known; blocks sent before its connection stood are lost."""
    before = await _blocks(client, ports)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _blocks(client, ports) <= before:
            await engines.publish_one()
            await asyncio.sleep(0.05)


async def _endless_frames(port: int) -> None:
    """Run publishers on bare TCP: messages that do not end, and messages that never begin."""
    opened = []
    for end in (b"\x01\x00" * 30, b"\x03" + (MESSAGE_BYTES - 1).to_bytes(8, "big"), b"") * 30:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        writer.write(OPENING.replace(b"SUB", b"PUB") + end + bytes(MEBIBYTE) * (len(end) == 9))
    await asyncio.sleep(1.0)
    for writer in opened:
        writer.close()


@pytest.mark.parametrize("connects", [True, False], ids=["connecting", "binding"])
async def test_batches_of_a_hostile_engine_cost_neither_memory_nor_the_other_engine(world: World, *, connects: bool) -> None:
    await world.start_engines(2)
    central = free_port()
    own = (central, central) if connects else (free_port(), free_port())
    for engine, port in zip(world.engines, own, strict=True):
        host = "localhost" if connects else "*"
        told = {"endpoint": f"tcp://{host}:{port}", "topic": f"kv@{engine.name}@m", "data_parallel_rank": 0}
        engine.pages["/kv_event_sources"] = json.dumps([told]).encode()
    engines = Engines(own, connects=connects)
    limits = {"FAIRLEAD_KV_EVENTS_PORT": str(central), "FAIRLEAD_BODY_MEMORY_BYTES": str(64 * MEBIBYTE)}
    async with small_router(world, 500, **limits) as ports, httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        await _heard(client, ports, engines)
        before = ports.memory()
        for name, messages in ATTACKS.items():
            attack = asyncio.create_task(engines.attack(messages()))
            while not attack.done():
                answer = await client.post(f"http://127.0.0.1:{ports.clients}/v1/chat/completions", json=CHAT)
                assert answer.status_code == 200, name
                await asyncio.sleep(0.05)
            await _heard(client, ports, engines)
            assert ports.most_memory() - before < MOST_MORE, name
        if connects:
            await _endless_frames(central)
            await _heard(client, ports, engines)
            assert ports.most_memory() - before < MOST_MORE, "messages that do not end"
    engines.close()
