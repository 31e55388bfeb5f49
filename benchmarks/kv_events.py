"""Measures the cost of following KV events for a router: ingest, memory, and decisions while events arrive.

    .venv/bin/python -m benchmarks.kv_events [ingest] [memory] [decisions] [--batches N]

- `ingest`: events per second of this process's CPU time. A publisher in another process sends events, and the router's
  own subscription puts them into the index. The CPU time covers both threads, also the thread of ZMQ that receives. In
  `decode`, an event stores one block of 16 tokens or removes one. In `prefill`, an event stores 16 blocks of 16 tokens,
  and 16 events remove them.
- `memory`: bytes of a million blocks in the index, held by one instance.
- `decisions`: CPU time of one `submit` for a prompt of 500 known blocks, at 64 instances that hold parts of 400
  prompts. It is measured first without events, then while 50,000 events a second are read on the same event loop. A
  request also waits until the loop has read some events, for at most 0.5 ms; this time is not included.
"""

import argparse
import asyncio
import gc
import multiprocessing
import random
import time
import tracemalloc
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import uvloop
import zmq
from benchmarks.command_line import count

from fairlead.instances import InstanceState
from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.engine_caches import EngineCaches
from fairlead.kv_events.events import EventKind
from fairlead.kv_events.sources import Source
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import EarlyRejectionFacts, EngineFacts, InstanceEntry, PoolKey, RoutingFacts, RoutingTable, SessionFacts, SloFacts
from fairlead_router.kv_events.reading import SlicedReader
from fairlead_router.kv_events.sources import EventSource
from fairlead_router.kv_events.subscriptions import Subscription
from fairlead_router.kv_events.wire import decode

PARTS = ("ingest", "memory", "decisions")
BLOCK_TOKENS = 16
VOCABULARY = 150_000
EVENTS_A_BATCH = 8
KEPT_BLOCKS = 20_000
RATE = 50_000
INSTANCES = 64


def payloads(count: int, blocks_at_once: int, seed: int) -> list[bytes]:
    """Return an engine's batches of events that store blocks, and remove blocks while more than KEPT_BLOCKS are
    held.
    """
    chance = random.Random(seed)
    held: list[int] = []
    waiting: list[dict[str, Any]] = []
    made: list[bytes] = []
    while len(made) < count:
        hashes = [chance.getrandbits(64) for _ in range(blocks_at_once)]
        waiting.append(stored(hashes, chance.choices(range(VOCABULARY), k=BLOCK_TOKENS * blocks_at_once)))
        held += hashes
        while len(held) > KEPT_BLOCKS:
            place = chance.randrange(len(held))
            held[place], held[-1] = held[-1], held[place]
            waiting.append({"type": "BlockRemoved", "block_hashes": [held.pop()], "medium": "GPU", "group_idx": 0})
        while len(waiting) >= EVENTS_A_BATCH:
            made.append(msgspec.msgpack.encode([1e9 + len(made), waiting[:EVENTS_A_BATCH], 0]))
            del waiting[:EVENTS_A_BATCH]
    return made[:count]


def stored(hashes: list[int], token_ids: list[int]) -> dict[str, Any]:
    """Return a BlockStored event in the form of vLLM 0.32."""
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": token_ids, "block_size": BLOCK_TOKENS,
        "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": [None] * len(hashes), "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }  # fmt: skip


def publish(told: Connection, count: int, blocks_at_once: int, rate: float | None) -> None:
    """Send the publisher's port through `told`, and wait for a message. Then publish `count` batches, all at once or at
    `rate` events per second. End at the next message.

    It runs in a separate process.
    """
    made = payloads(count, blocks_at_once, 1)
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.sndhwm = 0
        told.send(socket.bind_to_random_port("tcp://127.0.0.1"))
        told.recv()
        began = time.monotonic()
        for number, payload in enumerate(made):
            if rate is not None and (ahead := number * EVENTS_A_BATCH / rate - (time.monotonic() - began)) > 0:
                time.sleep(ahead)
            socket.send_multipart((b"", number.to_bytes(8, "big"), payload))
        told.recv()


class Ingest:
    """A publisher in another process, and the router's subscription to it on this event loop."""

    def __init__(self, count: int, blocks_at_once: int, rate: float | None, caches: EngineCaches) -> None:
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=publish, args=(theirs, count, blocks_at_once, rate), daemon=True)
        self.process.start()
        port = self.ours.recv()
        told = EventSource(rank=0, endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=None, topic="")
        self.wanted = count * EVENTS_A_BATCH
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.reader = SlicedReader()
        self.subscription = Subscription(self.context, told, Source(instance="i0"), caches, time.time, self.reader, lambda: None)

    async def begin(self) -> None:
        """Let the publisher begin to publish, once the subscription is connected."""
        while not self.subscription.connected:  # noqa: ASYNC110  # what changes it is the code that is measured
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        self.ours.send(None)

    @property
    def is_done(self) -> bool:
        return self.subscription.events >= self.wanted or not self.process.is_alive()

    def end(self) -> None:
        counts = self.subscription.counts
        assert counts.lost == counts.gaps == 0, "batches were lost on the way"
        self.ours.send(None)
        self.process.join()
        self.subscription.close()
        self.context.destroy(linger=0)


async def ingest(count: int, blocks_at_once: int) -> tuple[float, float]:
    """Return the number of events, and of blocks stored or removed, per second of CPU."""
    caches = EngineCaches()
    following = Ingest(count, blocks_at_once, None, caches)
    gc.collect()
    gc.freeze()
    gc.disable()
    before = time.process_time()
    await following.begin()
    while not following.is_done:  # noqa: ASYNC110  # likewise
        await asyncio.sleep(0.05)
    seconds = time.process_time() - before
    gc.enable()
    following.end()
    told = (event for payload in payloads(count, blocks_at_once, 1) for event in decode(payload).events)
    blocks = sum(len(event.block_hashes) for event in told if event.kind is not EventKind.CLEARED)
    return following.wanted / seconds, blocks / seconds


def memory() -> int:
    """Return the bytes of a million blocks in the index that one instance holds."""
    gc.collect()
    tracemalloc.start()
    index = BlockIndex()
    for begin in range(0, 1_000_000, 500):
        tokens = [begin, *range(500 * BLOCK_TOKENS - 1)]
        batch = decode(msgspec.msgpack.encode([1.0, [stored(list(range(begin, begin + 500)), tokens)], 0]))
        index.apply(Source(instance="i0"), batch.events)
    assert len(index) == 1_000_000
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size


def scheduler(policy: str) -> tuple[PoolScheduler, list[tuple[int, ...]]]:
    """Return a scheduler and the keys of 400 prompts.

    INSTANCES instances hold the 200,000 blocks of these prompts. Each prompt is held by a few instances.
    """
    table = RoutingTable(
        pool=PoolKey(namespace="default", name="chat"),
        uid="u",
        version=1,
        generation=1,
        model="m",
        engine=EngineFacts(),
        routing=RoutingFacts(policy=policy, prefills_in_flight=0),
        session=SessionFacts(),
        slo=SloFacts(),
        early_rejection=EarlyRejectionFacts(),
        instances=tuple(InstanceEntry(id=f"i{number}", address="127.0.0.1:1", state=InstanceState.SERVING) for number in range(INSTANCES)),
    )
    made = PoolScheduler(table, "r", 1, sample_rate=0.0, policies=BUILT_IN)
    chance = random.Random(2)
    prompts: list[tuple[int, ...]] = []
    made.caches.takes_size(BLOCK_TOKENS)
    for number in range(400):
        tokens = chance.choices(range(VOCABULARY), k=500 * BLOCK_TOKENS)
        prompts.append(block_keys(tokens, BLOCK_TOKENS))
        for instance in chance.sample(range(INSTANCES), k=chance.randint(1, 8)):
            source = Source(instance=f"i{instance}")
            for place, key in enumerate(prompts[-1][: chance.randint(1, 500)]):
                made.caches.index.hold(source, (number << 32) + place, key)
    for instance in range(INSTANCES):
        made.caches.hear(f"i{instance}", Source(instance=f"i{instance}"), complete=True)
    return made, prompts


async def decisions(policy: str, requests: int, rate: float | None) -> list[float]:
    """Return the CPU seconds of each `submit`, at a rate of at most 500 requests a second."""
    made, prompts = scheduler(policy)
    following = None
    if rate is not None:
        following = Ingest(int(rate * (requests / 500 + 4) / EVENTS_A_BATCH), 1, rate, made.caches)
        await following.begin()
        await asyncio.sleep(0.5)
    gc.collect()
    gc.freeze()
    gc.disable()
    taken: list[float] = []
    for number in range(requests):
        await asyncio.sleep(0.002)
        keys = prompts[number % len(prompts)]
        request = RoutingRequest(
            id=f"q{number}",
            arrived_at=float(number),
            prompt_tokens=500 * BLOCK_TOKENS + 9,
            blocks=(),
            first_bytes_hash=keys[0],
            engine_blocks=keys,
        )
        began = time.thread_time()
        made.submit(request, float(number))
        taken.append(time.thread_time() - began)
        made.cancel(request.id, float(number))
    gc.enable()
    gc.unfreeze()
    if following is not None and rate is not None:
        assert following.subscription.events > rate * requests / 1000, "the publisher was too slow, so nothing was measured"
        following.process.kill()
        following.process.join()
        following.subscription.close()
        following.context.destroy(linger=0)
    return taken


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def main() -> None:
    """Print the requested parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"all without it: {', '.join(PARTS)}")
    parser.add_argument("--batches", type=count, default=40_000, help=f"of {EVENTS_A_BATCH} events, to ingest")
    parser.add_argument("--requests", type=count, default=2_000, help="to decide")
    given = parser.parse_args()
    unknown = set(given.what) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")

    def asked(name: str) -> bool:
        return not given.what or name in given.what

    if asked("ingest"):
        for name, blocks_at_once in (("decode", 1), ("prefill", 16)):
            events, blocks = uvloop.run(ingest(given.batches, blocks_at_once))
            print(f"ingest {name:8} {events:12,.0f} events/s {blocks:12,.0f} blocks/s per core")
    if asked("memory"):
        print(f"memory of a million blocks: {memory() / 1e6:,.0f} MB")
    if asked("decisions"):
        for policy in ("fairlead", "min-ttft"):
            for name, rate in (("quiet", None), (f"{RATE:,} events/s", float(RATE))):
                taken = uvloop.run(decisions(policy, given.requests, rate))
                figures = " ".join(f"{1e6 * percentile(taken, share):6.0f}" for share in (0.5, 0.99))
                print(f"decisions {policy:10} {name:16} CPU p50 p99 {figures} us")


if __name__ == "__main__":
    main()
