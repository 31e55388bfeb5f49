"""A real Envoy, configured as docs/gateway-api.md says, asks a router where each request goes and sends it there."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fairlead_process.starting import bind
from fairlead_testing.running.envoy import running_envoy
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

CHAT = "/v1/chat/completions"


@pytest.fixture
async def running(world: World) -> RunningRouter:
    return await world.ready(3)


async def picking(running: RunningRouter) -> int:
    """Let the router pick, and return the port of its picker."""
    listener = bind("picker", "127.0.0.1", 0)
    await running.router.picker.listen(listener)
    port: int = listener.getsockname()[1]
    return port


@pytest.fixture
async def envoy(world: World, running: RunningRouter, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with running_envoy(tmp_path, await picking(running), [engine.port for engine in world.engines]) as client:
        yield client


def asked(text: str, **more: object) -> dict[str, object]:
    return {"model": "mock", "messages": [{"role": "user", "content": text}], "max_tokens": 3, **more}


async def test_requests_reach_the_instances_that_the_router_picked(world: World, running: RunningRouter, envoy: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(envoy.post(CHAT, json=asked(f"text {number}")) for number in range(48)))
    assert {answer.status_code for answer in answers} == {200}
    told = [answer.headers["x-fairlead-instance"] for answer in answers]
    assert {engine.name: len(engine.seen) for engine in world.engines} == {engine.name: told.count(engine.name) for engine in world.engines}
    assert all("choices" in answer.json() for answer in answers)
    await until(lambda: running.busy() == 0 and not running.router.picker.active)
    assert running.pool.counters.served == 48


async def test_a_stream_comes_whole_and_its_usage_is_known(running: RunningRouter, envoy: httpx.AsyncClient) -> None:
    async with envoy.stream("POST", CHAT, json=asked("hello", stream=True)) as answer:
        assert answer.status_code == 200
        lines = [line async for line in answer.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.served == 1


async def test_a_client_cannot_choose_an_address_itself(world: World, envoy: httpx.AsyncClient) -> None:
    mine = {"x-gateway-destination-endpoint": "127.0.0.1:1", "x-prefiller-host-port": "127.0.0.1:1"}
    answer = await envoy.post(CHAT, json=asked("hello"), headers=mine)
    assert answer.status_code == 200
    (request,) = [request for engine in world.engines for request in engine.seen]
    assert "x-prefiller-host-port" not in json.dumps(request, default=str)


async def test_a_refusal_is_the_gateways_own_answer(world: World, running: RunningRouter, envoy: httpx.AsyncClient) -> None:
    unknown = await envoy.post(CHAT, json=asked("hello") | {"model": "nobody"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    strange = await envoy.post("/sleep")
    assert strange.status_code == 404
    assert not any(engine.seen for engine in world.engines)


async def test_long_prompts_pass_whole(world: World, envoy: httpx.AsyncClient) -> None:
    answer = await envoy.post(CHAT, json=asked("long " * 200_000))
    assert answer.status_code == 200
    assert sum(len(engine.seen) for engine in world.engines) == 1


async def test_an_instance_that_takes_no_connection_is_passed_over(world: World, envoy: httpx.AsyncClient) -> None:
    await world.engines[0].stop()
    answers = [await envoy.post(CHAT, json=asked(f"text {number}")) for number in range(9)]
    assert {answer.status_code for answer in answers} == {200}


async def test_a_cluster_that_takes_one_address_serves_when_routers_name_one(world: World, tmp_path: Path) -> None:
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    running = await world.start_router(picker_fallbacks=0)
    await until(lambda: running.router.informing.synced)
    async with running_envoy(tmp_path, await picking(running), []) as envoy:
        answers = await asyncio.gather(*(envoy.post(CHAT, json=asked(f"text {number}")) for number in range(8)))
    assert {answer.status_code for answer in answers} == {200}


async def test_without_a_router_requests_are_refused(running: RunningRouter, envoy: httpx.AsyncClient) -> None:
    assert (await envoy.post(CHAT, json=asked("hello"))).status_code == 200
    running.router.picker.close()
    answer = await envoy.post(CHAT, json=asked("hello"))
    assert answer.status_code in {500, 503}
