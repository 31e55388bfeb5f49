"""The simulated engine sleeps as vLLM does; `tests/vllm/test_sleeping_engines.py` asks a real one the same
questions.
"""

import asyncio
from typing import Any

import httpx
import pytest

from fairlead.reconciling.observed import EngineSleep
from fairlead_operator.sleepers import HttpEngines
from fairlead_testing.running.engine import StartEngine
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

COMPLETIONS = "/v1/completions"
PROMPT = "word " * 100


def gauges(page: str) -> dict[str, float]:
    """Return, for each state, whether the engine says that it is in it."""
    lines = [line for line in page.splitlines() if line.startswith("vllm:engine_sleep_state{")]
    return {line.split('sleep_state="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


def waiting(page: str) -> float:
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith("vllm:num_requests_waiting{"))


def completion(tokens: int, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": PROMPT, "max_tokens": tokens, **fields}


def cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture
async def client(start_engine: StartEngine) -> Any:
    engine = start_engine("--enable-sleep-mode", "--sleep-seconds", "0", "--wake-seconds", "0")
    async with httpx.AsyncClient(base_url=engine.url, timeout=PATIENCE_SECONDS, trust_env=False) as made:
        yield made


async def is_sleeping(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/is_sleeping")).json()["is_sleeping"])


async def test_a_sleeping_engine_looks_healthy_and_keeps_requests_until_it_is_awake(client: httpx.AsyncClient) -> None:
    assert (await client.post("/sleep")).json() == {"status": "sleeping", "level": 1}
    assert await is_sleeping(client)
    assert (await client.get("/health")).status_code == 200
    assert gauges((await client.get("/metrics")).text) == {"awake": 0, "weights_offloaded": 1, "discard_all": 0}
    asked = asyncio.create_task(client.post(COMPLETIONS, json=completion(4)))
    for _ in range(20):
        assert await is_sleeping(client)
    assert not asked.done()
    assert waiting((await client.get("/metrics")).text) == 0, "no gauge warns of it"
    assert (await client.post("/wake_up")).json() == {"status": "awake", "tags": None}
    assert (await asked).json()["usage"]["completion_tokens"] == 4
    assert not await is_sleeping(client)
    assert gauges((await client.get("/metrics")).text) == {"awake": 1, "weights_offloaded": 0, "discard_all": 0}


@pytest.mark.parametrize(("level", "kept"), [(0, True), (1, False), (2, False)])
async def test_every_level_but_0_loses_the_cache(client: httpx.AsyncClient, level: int, kept: bool) -> None:
    await client.post(COMPLETIONS, json=completion(1))
    assert cached(await client.post(COMPLETIONS, json=completion(1))) > 0
    await client.post("/sleep", params={"level": level})
    await client.post("/wake_up")
    assert (cached(await client.post(COMPLETIONS, json=completion(1))) > 0) is kept


async def test_what_runs_is_aborted_or_waited_for(client: httpx.AsyncClient) -> None:
    running = 'num_requests_running{engine="0",model_name="m"} 1'
    for mode, reason in (("abort", "abort"), ("wait", "length")):
        asked = asyncio.create_task(client.post(COMPLETIONS, json=completion(40)))
        while running not in (await client.get("/metrics")).text:
            pass
        await client.post("/sleep", params={"mode": mode})
        assert (await asked).json()["choices"][0]["finish_reason"] == reason
        await client.post("/wake_up")


async def test_sleeping_and_waking_may_be_repeated_and_done_in_parts(client: httpx.AsyncClient) -> None:
    assert (await client.post("/wake_up")).json()["status"] == "awake"
    for _ in range(2):
        assert (await client.post("/sleep?level=1")).status_code == 200
    assert (await client.post("/wake_up?tags=weights")).json() == {"status": "sleeping", "tags": ["weights"]}
    assert await is_sleeping(client)
    assert (await client.post("/wake_up?tags=kv_cache")).json() == {"status": "awake", "tags": ["kv_cache"]}
    assert not await is_sleeping(client)


async def test_a_level_or_mode_that_does_not_exist_is_refused(client: httpx.AsyncClient) -> None:
    for query in ("level=3", "level=deep", "mode=nonsense"):
        assert (await client.post(f"/sleep?{query}")).status_code == 400
    assert not await is_sleeping(client)


def test_without_the_flag_there_is_nothing_to_sleep_by(start_engine: StartEngine) -> None:
    url = start_engine().url
    assert httpx.get(f"{url}/is_sleeping", timeout=PATIENCE_SECONDS).status_code == 404
    assert httpx.post(f"{url}/sleep", timeout=PATIENCE_SECONDS).status_code == 404


async def test_the_operators_calls_put_it_to_sleep_wake_it_and_see_what_cannot(start_engine: StartEngine) -> None:
    able = start_engine("--enable-sleep-mode", "--sleep-seconds", "0", "--wake-seconds", "0").url.removeprefix("http://")
    unable = start_engine().url.removeprefix("http://")
    engines = HttpEngines()
    try:
        assert await engines.is_sleeping(able) is EngineSleep.AWAKE
        assert await engines.sleep(able)
        assert await engines.is_sleeping(able) is EngineSleep.ASLEEP
        assert await engines.wake(able)
        assert await engines.is_sleeping(able) is EngineSleep.AWAKE
        assert await engines.is_sleeping(unable) is EngineSleep.UNABLE
        assert not await engines.sleep(unable)
        assert await engines.is_sleeping(f"127.0.0.1:{free_port()}") is EngineSleep.SILENT
        assert await engines.sleep(f"127.0.0.1:{free_port()}"), "no answer is not a refusal: the next round asks again"
    finally:
        await engines.close()
