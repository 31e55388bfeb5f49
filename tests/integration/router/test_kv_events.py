"""A router follows the KV events of engine processes over ZMQ: its index of their caches survives restarts and
pauses.
"""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import httpx
import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.sources import Source
from fairlead.tables import RoutingTable
from fairlead_router.kv_events.instances import EventReading
from fairlead_router.kv_events.wire import decode
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.engine import RunningEngine, StartEngine, engine_starter
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until
from processkube.testing.ports import free_port

SECONDS = 120.0
"""Patience for steps that usually take milliseconds, as the machine may be busy."""

SPEED = ("--prefill-tokens-per-second", "1000000", "--decode-step-ms", "1", "--kv-cache-tokens", "1600")
IDS = ("i0", "i1")


@dataclass
class Engines:
    """Two engines that publish, on ports that a restarted one takes again."""

    start: StartEngine
    running: dict[str, RunningEngine] = field(default_factory=dict)
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def begin(self, instance: str, port: int = 0, *more: str) -> None:
        """Start an engine, or restart it, which empties its cache."""
        if instance in self.running:
            self.running[instance].process.kill()
            self.running[instance].process.wait()
        self.running[instance] = self.start(*self.flags[instance], "--port", str(port), *more)

    def table(self, *more: RunningEngine, version: int = 1) -> RoutingTable:
        return routing_table([f"127.0.0.1:{engine.port}" for engine in (*self.running.values(), *more)], model="m", version=version)


@dataclass
class Live:
    """The engines and a router."""

    world: World
    running: RunningRouter
    engines: Engines

    def reading(self, instance: str) -> EventReading | None:
        rows = self.running.router.kv_events.readings().get(("default/chat", instance))
        return rows[0] if rows else None  # it has none before the engine has named its sources

    def state(self, instance: str) -> str:
        reading = self.reading(instance)
        return "none" if reading is None else reading.state

    async def ask(self, text: str) -> httpx.Response:
        document = {"model": "m", "prompt": text, "max_tokens": 4}
        return await self.running.client.post("/v1/completions", json=document, timeout=SECONDS)

    def truth(self, instance: str) -> BlockIndex:
        """Return an index of all that the engine has published, from its replay socket."""
        source = httpx.get(f"{self.engines.running[instance].url}/kv_event_sources", timeout=SECONDS).json()["0"]
        index = BlockIndex()
        with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
            asking.linger, asking.rcvtimeo = 0, int(SECONDS * 1000)
            asking.connect(source["replay_endpoint"].replace("*", "127.0.0.1"))
            asking.send_multipart((b"", bytes(8)))
            while (frames := asking.recv_multipart())[-2] != b"\xff" * 8:
                index.apply(Source(instance=instance), decode(frames[-1]).events)
        return index

    async def agrees(self, instance: str) -> None:
        """Wait until the router's index equals the engine's published blocks."""
        index = self.running.scheduler.caches.index
        truth = self.truth(instance)
        source = Source(instance=instance)
        await until(lambda: index.blocks(source) == truth.blocks(source), SECONDS)

    def restart(self, instance: str, *more: str) -> None:
        """Kill the engine and start it on the same ports."""
        self.engines.begin(instance, self.engines.running[instance].port, *more)


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with engine_starter() as start:
        made = Engines(start=start)
        for name in IDS:
            ports = f"tcp://*:{free_port()}", f"tcp://*:{free_port()}"
            made.flags[name] = (
                "--kv-events-endpoint",
                ports[0],
                "--kv-events-replay-endpoint",
                ports[1],
                "--kv-events-topic",
                name,
                *SPEED,
            )
            made.begin(name)
        yield made


@pytest.fixture
async def live(world: World, engines: Engines) -> Live:
    world.api.state.set_table(engines.table())
    running = await world.start_router()
    live = Live(world=world, running=running, engines=engines)
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: set(running.scheduler.caches.heard) == set(IDS), SECONDS)
    return live


async def test_the_index_holds_what_each_engine_says_it_holds(live: Live) -> None:
    """100 blocks of KV memory, and prompts of which no two engines could keep all: blocks are evicted."""
    for number in range(40):
        assert (await live.ask(f"document {number} " * 30)).status_code == 200
    for name in IDS:
        await live.agrees(name)
        reading = live.reading(name)
        assert reading is not None
        assert reading.state == "current" and 50 < reading.blocks <= 100 and reading.events > 20
        assert (reading.gaps, reading.restarts, reading.batches_lost, reading.unreadable) == (0, 0, 0, 0)
    assert set(live.running.scheduler.caches.heard) == set(IDS)
    assert live.running.scheduler.caches.block_tokens == 16

    page = (await live.running.admin.get("/metrics")).text
    samples = {(sample.name, sample.labels.get("instance"), sample.labels.get("state")): sample.value
               for family in text_string_to_metric_families(page) for sample in family.samples}  # fmt: skip
    assert samples["fairlead_router_kv_event_state", "i0", "current"] == 1
    assert samples["fairlead_router_kv_event_state", "i0", "replaying"] == 0
    assert samples["fairlead_router_kv_blocks", "i0", None] > 50
    assert samples["fairlead_router_kv_events_total", "i1", None] > 20
    assert 0 <= samples["fairlead_router_kv_event_lag_seconds", "i1", None] < SECONDS


@pytest.mark.parametrize("form", ["prompt", "messages"])
async def test_what_is_believed_to_be_cached_is_what_the_engine_counts(live: Live, form: str) -> None:
    """Prompts that share beginnings, each asked again once the engine has returned its tokens."""
    path = "/v1/completions" if form == "prompt" else "/v1/chat/completions"
    counters = live.running.pool.counters

    async def ask(text: str) -> int:
        """Return the cached prompt tokens by the engine's count."""
        given = text if form == "prompt" else [{"role": "system", "content": "Be brief. " * 5}, {"role": "user", "content": text}]
        answer = await live.running.client.post(path, json={"model": "m", form: given, "max_tokens": 4}, timeout=SECONDS)
        await live.agrees(answer.headers["x-fairlead-instance"])
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    texts = [f"{form}: document {number % 2} " * 12 + f"question {number}. " * 25 for number in range(4)]
    for text in texts:
        await ask(text)
    await until(lambda: counters.tokenizing["learnt"] == len(texts), SECONDS)
    counters.beliefs.clear()
    cached = [await ask(text) for text in (*texts, *reversed(texts))]
    believed = [belief for (_, basis), belief in counters.beliefs.items() if basis == "events"]
    assert sum(belief.requests for belief in believed) == len(cached)
    assert sum(belief.predicted_tokens for belief in believed) == sum(cached) > 500
    assert sum(belief.exact for belief in believed) == len(cached)
    assert counters.known_prompts["whole"] == len(cached)


async def test_a_router_that_starts_later_hears_what_was_published_before(live: Live) -> None:
    for number in range(10):
        await live.ask(f"document {number} " * 30)
    later = await live.world.start_router("router-1", seed=2)
    live.running = later
    await until(lambda: all(live.state(name) == "current" for name in IDS), SECONDS)
    for name in IDS:
        await live.agrees(name)


async def test_the_index_of_a_restarted_engine_begins_anew(live: Live) -> None:
    for number in range(10):
        await live.ask(f"document {number} " * 30)
    for name in IDS:
        await live.agrees(name)
    kept = live.running.scheduler.caches.index.blocks(Source(instance="i1"))
    live.restart("i0")
    index = live.running.scheduler.caches.index
    await until(lambda: not sum(index.blocks(Source(instance="i0")).values()), SECONDS)
    assert index.blocks(Source(instance="i1")) == kept
    assert (await live.ask("document 1 " * 30)).status_code == 200
    assert (await live.ask("document 2 " * 30)).status_code == 200
    await live.agrees("i0")
    await until(lambda: live.state("i0") == "current", SECONDS)


async def test_a_paused_engine_costs_only_its_own_requests(live: Live) -> None:
    """Requests to the other engine are answered while the first is stopped; then its events are followed again."""
    await live.ask("warm " * 30)
    paused = live.engines.running["i0"].process
    paused.send_signal(signal.SIGSTOP)
    try:
        asked = [asyncio.create_task(live.ask(f"document {number} " * 30)) for number in range(10)]
        await until(lambda: sum(task.done() for task in asked) >= 5, SECONDS)
        assert all(task.result().headers["x-fairlead-instance"] == "i1" for task in asked if task.done())
    finally:
        paused.send_signal(signal.SIGCONT)
    answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * 10
    for name in IDS:
        await live.agrees(name)


async def test_engines_come_and_go(live: Live, engines: Engines) -> None:
    """For an engine that does not publish, the router uses its own history; it stops following one that leaves the
    table.
    """
    plain = engines.start(*SPEED)
    live.world.api.state.set_table(engines.table(plain, version=2))
    await until(lambda: live.running.pool.table.version == 2, SECONDS)
    answers = [await live.ask(f"document {number} " * 30) for number in range(6)]
    assert {answer.headers["x-fairlead-instance"] for answer in answers} == {"i0", "i1", "i2"}
    assert live.reading("i2") is None and set(live.running.scheduler.caches.heard) == set(IDS)

    only = routing_table([f"127.0.0.1:{engines.running['i0'].port}"], model="m", version=3)
    live.world.api.state.set_table(only)
    await until(lambda: live.reading("i1") is None, SECONDS)
    assert set(live.running.scheduler.caches.heard) == {"i0"}
    assert list(live.running.scheduler.caches.index.sources) == [Source(instance="i0")]


async def test_an_engine_of_another_block_size_is_not_believed(live: Live) -> None:
    await live.agrees("i0")
    live.restart("i1", "--block-size", "32")
    async with asyncio.timeout(SECONDS):
        for number in count():  # one prompt would stay where it is cached, and never come to i1
            if live.state("i1") == "wrong-block-size":
                break
            await live.ask(f"{number} document " * 30)
    assert set(live.running.scheduler.caches.heard) == {"i0"}
