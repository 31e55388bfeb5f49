"""LoRA adapters at a real vLLM: requested by name, cached separately, and told apart in its KV events."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import BLOCK_TOKENS, MODEL, VllmEngine
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SECONDS = 600.0
ADAPTERS = ("sql", "fr")
PROMPT = [random.Random(1).randrange(10, 1990) for _ in range(10 * BLOCK_TOKENS + 5)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    tools = os.environ.get("FAIRLEAD_TEST_VLLM")
    if not tools:
        pytest.skip("needs a real vLLM: make test-vllm")
    modules = [f"{name}={Path(tools) / 'tiny-qwen/adapters' / name}" for name in ADAPTERS]
    flags = ("--enable-lora", "--max-loras", "2", "--max-lora-rank", "8", "--lora-modules", *modules)
    made = VllmEngine(tools=Path(tools), log=tmp_path_factory.mktemp("vllm") / "i0.log", name="i0", flags=flags)
    try:
        made.start()
        made.wait_ready()
        yield made
    finally:
        made.kill()


async def routed(world: World, engine: VllmEngine) -> RunningRouter:
    table = routing_table([engine.address], model=MODEL, engine_type="vllm", policy="least-request")
    world.api.state.set_table(replace(table, adapters=ADAPTERS))
    running = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=SECONDS, idle=SECONDS, total=SECONDS, shutdown=5.0))
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: set(running.scheduler.caches.heard) == {"i0"}, SECONDS)
    return running


async def answer(client: httpx.AsyncClient, model: str) -> tuple[str, int]:
    """Return the answer to the prompt, and the number of its tokens that were cached."""
    document: dict[str, Any] = {"model": model, "prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    answered = await client.post("/v1/completions", json=document, timeout=SECONDS)
    assert answered.status_code == 200, answered.text
    found = answered.json()
    assert found["model"] == model
    return found["choices"][0]["text"], int(found["usage"]["prompt_tokens_details"]["cached_tokens"])


async def test_each_adapter_answers_under_its_name_and_has_blocks_of_its_own_in_the_engine_and_in_the_index(
    world: World, engine: VllmEngine
) -> None:
    running = await routed(world, engine)
    index, source = running.scheduler.caches.index, Source(instance="i0")
    said = {}
    for name in (MODEL, *ADAPTERS):
        adapter = None if name == MODEL else name
        own = block_keys(PROMPT, BLOCK_TOKENS, lora_name=adapter)
        assert index.match(source, own) == 0, "another one's blocks are of no use to it"
        said[name], cached = await answer(running.client, name)
        assert cached == 0, "nor does the engine use them"
        await until(lambda own=own: index.match(source, own) == 10, SECONDS)  # type: ignore[misc]  # the default binds it
        assert await answer(running.client, name) == (said[name], 10 * BLOCK_TOKENS)
    assert len(set(said.values())) == 3, "the adapters are real"
    async with httpx.AsyncClient(base_url=f"http://{engine.address}", trust_env=False) as direct:
        assert {name: (await answer(direct, name))[0] for name in said} == said
    believed = running.pool.counters.beliefs["i0", "events"]
    assert believed.requests == believed.exact == 5, "all but the first, before which the engine had published nothing"
    assert running.pool.engines.troubled() == ()
