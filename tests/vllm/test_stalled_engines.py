"""A real vLLM whose engine process stops while its HTTP server answers is found; one that only computes is not.

`FAIRLEAD_TEST_VLLM_MINUTES` says for how long two saturated engines must raise no alarm.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from fairlead.reports.bindings import BindingReason
from fairlead.reports.engines import EngineTrouble
from fairlead.routing.knowledge.progress import LEAST_SECONDS, Life
from fairlead_router.settings import Timeouts
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import MODEL, VllmEngine
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SECONDS = 600.0
MINUTES = float(os.environ.get("FAIRLEAD_TEST_VLLM_MINUTES", "3"))
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
FOUND_SECONDS = 15.0


@pytest.fixture
async def running(world: World, engines: dict[str, VllmEngine]) -> AsyncIterator[RunningRouter]:
    addresses = [engine.address for engine in engines.values()]
    world.api.state.set_table(routing_table(addresses, model=MODEL, engine_type="vllm", policy="sticky"))
    made = await world.start_router(timeouts=Timeouts(connect=5.0, first_byte=300.0, idle=300.0, total=1800.0, shutdown=5.0))
    await until(lambda: bool(made.router.pools.all()), SECONDS)
    yield made
    for engine in engines.values():
        engine.signal_core(signal.SIGCONT)


async def ask(running: RunningRouter, session: str, prompt: str, tokens: int, *, stream: bool = True) -> tuple[str, str]:
    """Send one request of a session; return the engine that answered it, and the answer."""
    document = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": stream, "user": session}
    answer = await running.client.post(COMPLETIONS, json=document, headers={"x-session-id": session}, timeout=SECONDS)
    return answer.headers.get("x-fairlead-instance", ""), answer.text


def life(running: RunningRouter, instance: str) -> Life:
    found = running.pool.engines.lives.get(instance)
    return Life.UNKNOWN if found is None else found.life


async def test_an_engine_process_that_stops_is_found_and_its_requests_end_or_move(
    running: RunningRouter, engines: dict[str, VllmEngine]
) -> None:
    home, _ = await ask(running, "s", "a first turn", 16, stream=False)
    answering = asyncio.create_task(ask(running, "s", "a long answer", 3500))
    await until(lambda: life(running, home) is Life.ACTIVE, SECONDS)
    engines[home].signal_core(signal.SIGSTOP)
    stopped_at = time.monotonic()
    waiting = [asyncio.create_task(ask(running, "s", "a turn that waits", 16, stream=number % 2 == 0)) for number in range(3)]
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://{engines[home].address}/health", timeout=SECONDS)).status_code == 200
    await until(lambda: life(running, home) is Life.STALLED, SECONDS)
    found_after = time.monotonic() - stopped_at
    _, broken = await answering
    ended_after = time.monotonic() - stopped_at
    served = await asyncio.gather(*waiting)
    print(f"found after {found_after:.1f} s, the answer under way ended after {ended_after:.1f} s")
    allowed = running.pool.engines.lives[home].allowed_seconds - LEAST_SECONDS  # more than nothing where its own steps were so long
    assert found_after <= FOUND_SECONDS + allowed
    assert "makes no progress" in broken
    assert {instance for instance, _ in served} == set(engines) - {home}
    assert [one.trouble for one in running.pool.engines.troubled() if one.instance == home] == [EngineTrouble.ENGINE_STALLED]
    binding = running.scheduler.binding("s")
    assert binding is not None
    assert binding.reason is BindingReason.ENGINE_STALLED
    engines[home].signal_core(signal.SIGCONT)
    await until(lambda: life(running, home) is Life.IDLE, SECONDS)
    assert running.pool.engines.troubled() == ()


@pytest.mark.timeout(60 * MINUTES + SECONDS)
async def test_saturated_engines_with_long_prompts_and_held_back_tools_raise_no_alarm(running: RunningRouter) -> None:
    words = random.Random(1)
    until_at, seen = time.monotonic() + 60 * MINUTES, set[Life]()

    async def client(number: int) -> None:
        while time.monotonic() < until_at:
            length = words.choice((20, 200, 600))
            prompt = " ".join(str(words.randrange(1000)) for _ in range(length))
            await ask(running, f"s{number}-{words.randrange(5)}", prompt, words.choice((1, 50, 600)), stream=number % 2 == 0)

    async def watch() -> None:
        while time.monotonic() < until_at:
            seen.update(life(running, instance) for instance in running.pool.engines.lives)
            await asyncio.sleep(0.2)

    await asyncio.gather(watch(), *(client(number) for number in range(40)))
    assert Life.STALLED not in seen
    assert running.pool.counters.engine_stalls == 0
    assert running.pool.counters.upstream_errors.get("stalled", 0) == 0
