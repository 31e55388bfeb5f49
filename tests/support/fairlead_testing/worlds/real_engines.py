"""Real vLLM engines with a router in front of them, and the contents of their caches as the engines report them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import zmq
from prometheus_client.parser import text_string_to_metric_families

from fairlead.kv_events.block_index import BlockIndex
from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.events import BlockHash, EventKind
from fairlead.kv_events.sources import Source
from fairlead_router.kv_events.wire import WireEvent, decode
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import BLOCK_TOKENS, MODEL, VllmEngine
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

COMPLETIONS = "/v1/completions"
SECONDS = 600.0
"""The time limit for work that takes seconds on a quiet machine."""
SILENT_MILLISECONDS = 10_000
"""The longest pause of an engine within a replay of its events, before the replay is requested again."""

SOURCE = Source(instance="engine")


@dataclass
class Published:
    """The events that an engine has published since its start."""

    batches: int = 0
    removed: int = 0
    hashes: set[BlockHash] = field(default_factory=set)
    """The hashes of all blocks that were ever stored."""
    index: BlockIndex = field(default_factory=BlockIndex)

    def take(self, events: Sequence[WireEvent]) -> None:
        self.batches += 1
        self.index.apply(SOURCE, events)
        for event in events:
            if event.kind is EventKind.STORED:
                self.hashes.update(event.block_hashes)
            elif event.kind is EventKind.REMOVED:
                self.removed += len(event.block_hashes)


@dataclass
class Live:
    """The engines, and a router in front of them."""

    running: RunningRouter
    engines: dict[str, VllmEngine]
    truths: defaultdict[str, Published] = field(default_factory=lambda: defaultdict(Published))

    @property
    def index(self) -> BlockIndex:
        return self.running.scheduler.caches.index

    async def ask(self, prompt: str | Sequence[int], *, max_tokens: int = 4, **more: Any) -> httpx.Response:
        document = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, **more}
        return await self.running.client.post(COMPLETIONS, json=document, timeout=SECONDS)

    async def cached(self, prompt: Sequence[int], **more: Any) -> tuple[str, int]:
        """Send a prompt. Return the instance that answered, and how many tokens of the prompt it had cached."""
        answer = await self.ask(prompt, **more)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-fairlead-instance"], int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    def hear_out(self, instance: str) -> None:
        """Read from the engine's replay socket the events that it has published since the last call.

        The socket drops messages that a busy reader does not take in time, and may drop the last message too. Dropped
        events are requested again.
        """
        with zmq.Context() as context:
            while not self._all_taken(context, instance):
                pass

    def _all_taken(self, context: zmq.Context[Any], instance: str) -> bool:
        """Request the missing events once, at a new socket. Return whether no message of the answer was dropped."""
        truth, complete = self.truths[instance], True
        with context.socket(zmq.DEALER) as asking:
            asking.linger, asking.rcvtimeo, asking.rcvhwm = 0, SILENT_MILLISECONDS, 0
            asking.connect(self.engines[instance].replay_endpoint)
            asking.send_multipart((b"", truth.batches.to_bytes(8, "big")))
            try:
                while (frames := asking.recv_multipart())[-2] != b"\xff" * 8:
                    complete = complete and int.from_bytes(frames[-2], "big") == truth.batches
                    if complete:
                        truth.take(decode(frames[-1]).events)
            except zmq.Again:
                return False
        return complete

    async def agrees(self, instance: str) -> BlockIndex:
        """Wait until the router's index has as many blocks as the engine reports, and return the engine's report as an
        index.
        """
        await asyncio.to_thread(self.hear_out, instance)
        truth = self.truths[instance].index
        await until(lambda: self.index.blocks(Source(instance=instance)) == truth.blocks(SOURCE), SECONDS)
        return truth

    async def agrees_about(self, instance: str, asked: Sequence[Sequence[int]]) -> None:
        """Wait until both indexes have as many blocks, and assert that they match the same blocks of each prompt."""
        truth = await self.agrees(instance)
        for prompt in asked:
            keys = block_keys(prompt, BLOCK_TOKENS)
            assert self.index.match(Source(instance=instance), keys) == truth.match(SOURCE, keys)

    async def metric(self, instance: str, name: str) -> float:
        """Return the sum of an engine's samples of the metric `name`."""
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(f"http://{self.engines[instance].address}/metrics", timeout=SECONDS)).text
        return sum(sample.value for family in text_string_to_metric_families(page) for sample in family.samples if sample.name == name)


async def live_before(world: World, engines: dict[str, VllmEngine]) -> Live:
    """Return a router that follows the KV events of these engines."""
    addresses = [engine.address for engine in engines.values()]
    world.api.state.set_table(routing_table(addresses, model=MODEL, engine_type="vllm", policy="least-request", continue_answers="Enabled"))
    running = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=SECONDS, idle=SECONDS, total=SECONDS, shutdown=5.0))
    made = Live(running=running, engines=engines)
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: set(running.scheduler.caches.heard) == set(engines), SECONDS)
    return made
