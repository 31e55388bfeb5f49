"""A router before a real vLLM with two data-parallel ranks.

Each turn is computed by the rank that holds its beginning, and requests leave a rank that hangs while the other works.
"""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.knowledge.progress import LEAST_SECONDS, Life
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import MODEL, VllmEngine
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SECONDS = 600.0
RANKS = 2
FOUND_SECONDS = 15.0
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    tools = os.environ.get("FAIRLEAD_TEST_VLLM")
    if not tools:
        pytest.skip("needs a real vLLM: make test-vllm")
    flags = ("--data-parallel-size", str(RANKS))
    made = VllmEngine(tools=Path(tools), log=tmp_path_factory.mktemp("vllm") / "ranks.log", name="i0", flags=flags)
    made.start()
    try:
        made.wait_ready()
        yield made
    finally:
        made.kill()


@pytest.fixture
async def running(world: World, engine: VllmEngine) -> AsyncIterator[RunningRouter]:
    world.api.state.set_table(routing_table([engine.address], model=MODEL, engine_type="vllm", policy="sticky"))
    made = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=300.0, idle=300.0, total=1800.0, shutdown=5.0))
    await until(lambda: bool(made.router.pools.all()) and made.pool.ranks("i0") == tuple(range(RANKS)), SECONDS)
    await until(lambda: set(made.scheduler.caches.heard) == {"i0#0", "i0#1"}, SECONDS)
    yield made
    engine.signal_core(signal.SIGCONT)


async def ask(running: RunningRouter, session: str, prompt: str, tokens: int, *, stream: bool = False) -> httpx.Response:
    document = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    return await running.client.post(COMPLETIONS, json=document, headers={"x-session-id": session}, timeout=SECONDS)


async def by_rank(engine: VllmEngine, metric: str) -> dict[str, float]:
    """Return the samples of a metric of the engine itself."""
    async with httpx.AsyncClient(trust_env=False) as client:
        page = (await client.get(f"http://{engine.address}/metrics", timeout=SECONDS)).text
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return {sample.labels["engine"]: sample.value for sample in samples if sample.name == metric}


async def test_each_turn_is_computed_by_the_rank_that_holds_its_beginning(running: RunningRouter, engine: VllmEngine) -> None:
    ranks: defaultdict[str, set[str]] = defaultdict(set)
    told: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for turn in range(1, 5):
        for session in range(8):
            answer = await ask(running, f"user-{session}", f"conversation {session}: " + f"a turn of number {session} " * 30 * turn, 4)
            assert answer.status_code == 200
            ranks[f"user-{session}"].add(answer.headers["x-fairlead-rank"])
            told[answer.headers["x-fairlead-rank"]].append(answer.json()["usage"])
    assert [len(each) for each in ranks.values()] == [1] * 8
    assert {rank for each in ranks.values() for rank in each} == {"0", "1"}
    cached = {rank: sum(one["prompt_tokens_details"]["cached_tokens"] for one in each) for rank, each in told.items()}
    total = sum(one["prompt_tokens"] for each in told.values() for one in each)
    assert sum(cached.values()) > total / 2, "three of four turns begin with what their rank holds"
    assert await by_rank(engine, "vllm:prefix_cache_hits_total") == cached, "vLLM counts them at the ranks that were asked"


async def test_one_rank_that_hangs_is_found_and_left_while_the_other_goes_on(running: RunningRouter, engine: VllmEngine) -> None:
    homes = {session: int((await ask(running, session, f"{session} begins", 16)).headers["x-fairlead-rank"]) for session in "abcdefgh"}
    hung = homes["a"]
    other = next(session for session, rank in homes.items() if rank != hung)

    def life(rank: int) -> Life:
        found: Life = running.pool.engines.lives[f"i0#{rank}"].life
        return found

    answering = asyncio.create_task(ask(running, "a", "a long answer", 3500, stream=True))
    await until(lambda: life(hung) is Life.ACTIVE, SECONDS)
    engine.signal_core(signal.SIGSTOP, hung)
    stopped_at = time.monotonic()
    waiting = [asyncio.create_task(ask(running, "a", "a turn that waits", 16)) for _ in range(3)]
    going_on = asyncio.create_task(ask(running, other, "an answer that goes on", 1500))
    await until(lambda: life(hung) is Life.STALLED, SECONDS)
    found_after = time.monotonic() - stopped_at
    assert life(1 - hung) is not Life.STALLED
    broken, served, whole = await answering, await asyncio.gather(*waiting), await going_on
    print(f"found after {found_after:.1f} s")
    allowed = running.pool.engines.lives[f"i0#{hung}"].allowed_seconds - LEAST_SECONDS
    assert found_after <= FOUND_SECONDS + allowed
    assert f"data-parallel rank {hung}" in broken.text
    assert [(answer.status_code, answer.headers["x-fairlead-rank"]) for answer in (*served, whole)] == [(200, str(1 - hung))] * 4
    assert [(one.trouble, one.ranks) for one in running.pool.engines.troubled()] == [(EngineTrouble.ENGINE_STALLED, (hung,))]
    binding = running.scheduler.binding("a")
    assert binding is not None
    assert (binding.instance, binding.reason) == (f"i0#{1 - hung}", BindingReason.ENGINE_STALLED)
    engine.signal_core(signal.SIGCONT, hung)
    await until(lambda: life(hung) is Life.IDLE, SECONDS)
    assert running.pool.engines.troubled() == ()
