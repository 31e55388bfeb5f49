"""Engines that connect to the router to publish their KV events, over ZMQ, and are told apart by their topics."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import msgspec
import pytest
import zmq

from fairlead.kv_events.sources import Source
from fairlead.plausibility import LONGEST_TOPIC
from fairlead_router.kv_events.central import MOST_UNKNOWN_TOPICS
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, StartEngine, engine_starter
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until
from processkube.testing.ports import free_port

SECONDS = 120.0
IDS = ("i0", "i1")
SPEED = ("--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1", "--kv-cache-tokens", "8000")


@pytest.fixture(scope="module")
def start() -> Iterator[StartEngine]:
    with engine_starter() as starter:
        yield starter


@dataclass
class Central:
    """Two engines that connect to `port` of this machine, and routers."""

    world: World
    port: int
    engines: list[RunningEngine]

    async def router(self, name: str = "router-0") -> RunningRouter:
        """Return a router, which listens there if it is the first."""
        running = await self.world.start_router(name, kv_events_port=self.port)
        await until(lambda: bool(running.router.pools.all()), SECONDS)
        return running


def blocks(running: RunningRouter, instance: str) -> int:
    index = running.scheduler.caches.index
    return sum(index.blocks(Source(instance=instance)).values())


async def ask(running: RunningRouter, text: str) -> None:
    document = {"model": "m", "prompt": text, "max_tokens": 4}
    assert (await running.client.post("/v1/completions", json=document, timeout=SECONDS)).status_code == 200


async def asked_until(running: RunningRouter, condition: Callable[[], bool]) -> None:
    """Ask for one text after the other: ZMQ drops what engines publish before their connections stand."""
    async with asyncio.timeout(SECONDS):
        for number in count():
            await ask(running, f"document {number} " * 30)
            if condition():
                return
            await asyncio.sleep(0.02)


def central(world: World, start: StartEngine, *, replays: bool = True, topics: tuple[str, ...] = ("kv@i0@m", "kv@i1@m")) -> Central:
    port, engines = free_port(), []
    for topic in topics:
        replay = ("--kv-events-replay-endpoint", f"tcp://*:{free_port()}") if replays else ()
        engines.append(start("--kv-events-endpoint", f"tcp://localhost:{port}", "--kv-events-topic", topic, *replay, *SPEED))
    world.api.state.set_table(routing_table([f"127.0.0.1:{engine.port}" for engine in engines], model="m"))
    return Central(world, port, engines)


@pytest.mark.parametrize("replays", [True, False])
async def test_engines_that_connect_are_followed_and_told_apart_by_their_topics(world: World, start: StartEngine, *, replays: bool) -> None:
    running = await central(world, start, replays=replays).router()
    await asked_until(running, lambda: set(running.scheduler.caches.heard) == set(IDS) and all(blocks(running, one) for one in IDS))
    before = {one: blocks(running, one) for one in IDS}
    held = sum(before.values())
    await ask(running, "one document more " * 30)
    await until(lambda: sum(blocks(running, one) for one in IDS) > held, SECONDS)
    assert running.router.kv_events.central is not None
    assert not running.router.kv_events.central.unknown
    assert running.pool.engines.troubled() == ()


async def test_of_several_routers_those_that_no_engine_connects_to_ask_for_replays(world: World, start: StartEngine) -> None:
    made = central(world, start)
    first = await made.router()
    second = await made.router("router-1")
    assert (first.router.kv_events.central is None, second.router.kv_events.central is None) == (False, True)
    await asked_until(first, lambda: all(blocks(first, one) > 0 for one in IDS))
    await until(lambda: {one: blocks(second, one) for one in IDS} == {one: blocks(first, one) for one in IDS}, SECONDS)
    await until(lambda: set(second.scheduler.caches.heard) == set(IDS), SECONDS)
    assert all(row.restarts == row.batches_lost == 0 for rows in second.router.kv_events.readings().values() for row in rows)


async def test_an_engine_that_restarts_begins_anew_in_the_index(world: World, start: StartEngine) -> None:
    made = central(world, start)
    running = await made.router()
    await asked_until(running, lambda: blocks(running, "i0") > 0)
    held = blocks(running, "i0")
    old, port = made.engines[0], made.engines[0].port
    flags = [str(part) for part in old.process.args][3:]  # type: ignore[union-attr]  # started with a list
    old.process.kill()
    old.process.wait()
    start(*flags, "--port", str(port))
    await until(lambda: blocks(running, "i0") < held, SECONDS)
    await ask(running, "after that " * 40)


class Publisher:
    """An engine's socket alone, connected to the router."""

    def __init__(self, port: int, host: str = "127.0.0.1", **options: int) -> None:
        self._context = zmq.Context()
        self._context.set(zmq.IPV6, 1)
        self._socket = self._context.socket(zmq.PUB)
        self._socket.linger = 0
        for name, value in options.items():
            setattr(self._socket, name, value)
        self._socket.connect(f"tcp://{host}:{port}")

    def publish(self, topic: bytes, number: int) -> None:
        event = {"type": "BlockStored", "block_hashes": [number], "parent_block_hash": None, "token_ids": [number] * 16, "block_size": 16}
        self._socket.send_multipart((topic, number.to_bytes(8, "big"), msgspec.msgpack.encode([float(number), [event], 0])))

    def close(self) -> None:
        self._context.destroy(linger=0)


async def _published(publisher: Publisher, topic: bytes, running: RunningRouter, number: int = 0) -> int:
    """Publish until a batch has arrived, as ZMQ drops batches sent before the connection stands; return the next
    number.
    """
    found = running.router.kv_events.central
    assert found is not None
    while not found.unknown[topic]:
        publisher.publish(topic, number)
        number += 1
        await asyncio.sleep(0.02)
    return number


@pytest.mark.parametrize("pod", ["i0", "127.0.0.1", "address"])
async def test_an_engine_that_tells_no_source_is_known_by_the_pod_of_its_topic(world: World, pod: str) -> None:
    port = free_port()
    await world.start_engines(1)  # answers 404 when asked for its sources
    world.api.state.set_table(world.table())
    running = await world.start_router(kv_events_port=port)
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    publisher = Publisher(port)
    topic = f"kv@{world.engines[0].address if pod == 'address' else pod}@mock".encode()
    number = await _published(publisher, topic, running)
    for followed in running.router.kv_events._followed.values():
        followed.ask_at = 0.0
    await running.router.kv_events.follow()
    publisher.publish(topic, number)
    await until(lambda: blocks(running, "i0") > 0, SECONDS)
    (rows,) = running.router.kv_events.readings().values()
    assert rows[0].state == "incomplete", "its first batches came before it was known"
    publisher.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_the_port_is_there_at_both_kinds_of_addresses_and_answers_heartbeats(world: World, host: str) -> None:
    port = free_port()
    running = await world.start_router(kv_events_port=port)
    publisher = Publisher(port, host, heartbeat_ivl=50, heartbeat_timeout=2_000)
    number = await _published(publisher, b"kv@pod@m", running)
    await asyncio.sleep(2.5)
    found = running.router.kv_events.central
    assert found is not None
    before = found.unknown[b"kv@pod@m"]
    publisher.publish(b"kv@pod@m", number)
    await until(lambda: found.unknown[b"kv@pod@m"] == before + 1)
    publisher.close()


async def test_unknown_topics_take_little_memory_and_new_ones_are_noted_however_many_there_were(world: World) -> None:
    running = await world.start_router(kv_events_port=free_port())
    found = running.router.kv_events.central
    assert found is not None
    for number in range(MOST_UNKNOWN_TOPICS + 5):
        found.take([b"kv@pod-%d@m" % number + b"x" * 100_000, b"", b""])
    found.take([b"kv@i0@m", b"", b""])
    assert len(found.unknown) == MOST_UNKNOWN_TOPICS
    assert sum(map(len, found.unknown)) <= MOST_UNKNOWN_TOPICS * LONGEST_TOPIC
    assert found.topic_of("i0", "10.0.0.1:8000") == "kv@i0@m"


async def test_events_of_unknown_pods_are_counted_and_named_where_an_instance_misses_its_own(world: World, start: StartEngine) -> None:
    made = central(world, start, replays=False, topics=("kv@i0@m",))
    made.engines[0].process.kill()
    engine = start("--kv-events-endpoint", "tcp://192.0.2.1:5557", "--kv-events-topic", "kv@i0@m", *SPEED)
    world.api.state.set_table(routing_table([f"127.0.0.1:{engine.port}"], model="m"))
    running = await made.router()
    follower = running.router.kv_events
    await until(lambda: any(follower.readings().values()), SECONDS)
    publisher = Publisher(made.port)
    await _published(publisher, b"kv@somebody@m", running)
    (followed,) = follower._followed.values()
    followed.since = 0.0
    running.pool.engines.kv_usage["i0"] = 0.5
    follower._check(followed)
    (trouble,) = running.pool.engines.troubled()
    assert trouble.trouble == "EventsNotHeard"
    assert "tcp://192.0.2.1:5557" in trouble.words
    assert "kv@somebody@m" in trouble.words
    page = (await running.admin.get("/metrics")).text
    assert "fairlead_router_kv_events_of_unknown_pods" in page
    publisher.close()


async def test_without_the_setting_an_engine_that_connects_elsewhere_is_reported_with_the_remedy(world: World, start: StartEngine) -> None:
    engine = start("--kv-events-endpoint", "tcp://192.0.2.1:5557", "--kv-events-topic", "kv@i0@m", *SPEED)
    world.api.state.set_table(routing_table([f"127.0.0.1:{engine.port}"], model="m"))
    running = await world.start_router()
    follower = running.router.kv_events
    await until(lambda: any(follower.readings().values()), SECONDS)
    (followed,) = follower._followed.values()
    followed.since = 0.0
    running.pool.engines.kv_usage["i0"] = 0.5
    follower._check(followed)
    (trouble,) = running.pool.engines.troubled()
    assert "FAIRLEAD_KV_EVENTS_PORT" in trouble.words
