"""A real vLLM sleeps as the simulated engine does (`tests/integration/simulator/test_sleeping_engines.py`).

On a processor it frees no memory (`CPUWorker.sleep` does nothing), so the time of waking has no meaning here.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead.reconciling.observed import EngineSleep
from fairlead_operator.sleepers import HttpEngines
from fairlead_router.engines.engine_pages import read_page
from fairlead_testing.running.vllm_engine import MODEL, VllmEngine

SECONDS = 600.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    tools = os.environ.get("FAIRLEAD_TEST_VLLM")
    if not tools:
        pytest.skip("needs a real vLLM: make test-vllm")
    log = tmp_path_factory.mktemp("vllm") / "sleeps.log"
    made = VllmEngine(tools=Path(tools), log=log, name="sleeps", environment={"VLLM_SERVER_DEV_MODE": "1"})
    try:
        made.start()
        made.wait_ready()
        yield made
    finally:
        made.kill()


@pytest.fixture
async def client(engine: VllmEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{engine.address}", timeout=SECONDS, trust_env=False) as made:
        yield made
        await made.post("/wake_up")


def completion(tokens: int) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "word " * 400, "max_tokens": tokens, "ignore_eos": True}


async def cached(client: httpx.AsyncClient) -> int:
    usage = (await client.post("/v1/completions", json=completion(1))).json()["usage"]
    return int((usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0)


async def seen_asleep(client: httpx.AsyncClient) -> bool:
    return read_page((await client.get("/metrics")).content, "vllm", "vllm:kv_cache_usage_perc").asleep


async def test_the_operators_calls_put_it_to_sleep_and_wake_it(engine: VllmEngine, client: httpx.AsyncClient) -> None:
    engines = HttpEngines()
    try:
        assert await engines.is_sleeping(engine.address) is EngineSleep.AWAKE
        assert await engines.sleep(engine.address)
        assert await engines.is_sleeping(engine.address) is EngineSleep.ASLEEP
        assert await seen_asleep(client), "a router sees it too"
        assert await engines.wake(engine.address)
        assert await engines.is_sleeping(engine.address) is EngineSleep.AWAKE
        assert not await seen_asleep(client)
    finally:
        await engines.close()


async def test_a_sleeping_engine_looks_healthy_and_keeps_requests_until_it_is_awake(client: httpx.AsyncClient) -> None:
    assert (await client.post("/sleep")).json() == {"status": "sleeping", "level": 1}
    assert (await client.get("/health")).status_code == 200
    asked = asyncio.create_task(client.post("/v1/completions", json=completion(4)))
    for _ in range(20):
        assert (await client.get("/is_sleeping")).json() == {"is_sleeping": True}
    assert not asked.done()
    assert (await client.post("/wake_up")).json() == {"status": "awake", "tags": None}
    assert (await asked).json()["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
async def test_every_level_but_0_loses_the_cache(client: httpx.AsyncClient, level: int, kept: bool) -> None:
    await cached(client)
    assert await cached(client) > 0
    assert (await client.post("/sleep", params={"level": level})).status_code == 200
    await client.post("/wake_up")
    assert (await cached(client) > 0) is kept


async def test_what_runs_is_aborted(client: httpx.AsyncClient) -> None:
    asked = asyncio.create_task(client.post("/v1/completions", json=completion(3000)))
    while b'vllm:num_requests_running{engine="0",model_name="tiny/qwen"} 1' not in (await client.get("/metrics")).content:
        assert not asked.done()
    await client.post("/sleep")
    assert (await asked).json()["choices"][0]["finish_reason"] == "abort"


async def test_parts_are_woken_and_nonsense_is_refused(client: httpx.AsyncClient) -> None:
    for query in ("level=3", "mode=nonsense"):
        assert (await client.post(f"/sleep?{query}")).status_code == 400
    await client.post("/sleep")
    assert (await client.post("/wake_up?tags=weights")).json() == {"status": "sleeping", "tags": ["weights"]}
    assert (await client.post("/wake_up?tags=kv_cache")).json() == {"status": "awake", "tags": ["kv_cache"]}
