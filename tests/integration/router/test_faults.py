"""Whose fault a failure is, over real HTTP.

One client's bad requests have no effect on others, and an engine that alone refuses requests is found by them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from fairlead.instances import Role
from fairlead_router.pools import engine_metrics, instance_choice
from fairlead_testing.worlds.router_worlds import RunningRouter, ScriptedEngine, World, until

ADAPTER = "sql-lora"


async def adapted(world: World, engines: int, policy: str = "fairlead", **table: Any) -> RunningRouter:
    await world.start_engines(engines)
    for engine in world.engines:
        engine.models = ["mock", ADAPTER]
    world.api.state.set_table(replace(world.table(policy=policy, engine_type="vllm", **table), adapters=(ADAPTER,)))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    await until(lambda: len(running.pool.engines.kv_usage) == engines)
    return running


def got(engine: ScriptedEngine, model: str) -> int:
    return sum(request["body"].get("model") == model for request in engine.seen)


@pytest.mark.parametrize("script", ["error-500", "hang-up", "bad-request"])
@pytest.mark.parametrize(("path", "stream"), [("/v1/chat/completions", False), ("/v1/chat/completions", True), ("/tokenize", False)])
async def test_requests_that_every_engine_fails_take_no_engine_from_others(world: World, path: str, script: str, stream: bool) -> None:
    running = await world.ready(count=2)
    await until(lambda: len(running.pool.engines.kv_usage) == 2)
    busy = [asyncio.create_task(running.ask(script="stepwise", stream=True, max_tokens=2)) for _ in range(4)]
    await until(lambda: sum(len(engine.seen) for engine in world.engines) == 4)
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "stream": stream}
    for _ in range(12):
        answer = await running.client.post(path, json=document, headers={"x-script": script})
        assert answer.status_code == (400 if script == "bad-request" else 502)
        assert (await running.ask()).status_code == 200
        assert running.scheduler.broken(running.router.now()) == ()
    for task in busy:
        while not task.done():
            for engine in world.engines:
                engine.step.set()
            await asyncio.sleep(0.01)
        assert (await task).status_code == 200


async def test_four_requests_past_the_scheduler_that_fail_open_no_circuit_for_chats(world: World) -> None:
    running = await world.ready(count=2)
    for _ in range(4):
        answer = await running.client.post("/tokenize", json={"model": "mock", "prompt": "x"}, headers={"x-script": "error-500"})
        assert answer.status_code == 502
    assert sum(len(engine.seen) for engine in world.engines) == 8
    assert running.scheduler.broken(running.router.now()) == ()
    assert running.pool.choice.circuits.broken(running.router.now()) == []


@pytest.mark.parametrize("sessions", [False, True])
async def test_an_engine_that_lost_the_adapter_gets_none_of_its_requests_and_no_client_hears_of_it(world: World, sessions: bool) -> None:
    running = await adapted(world, 4)

    async def client(name: str, model: str, rounds: int) -> list[int]:
        headers = {"x-session-id": name} if sessions else {}
        return [(await running.ask(model=model, text=name * 40, headers=headers)).status_code for _ in range(rounds)]

    await asyncio.gather(*(client(f"client{number}", ADAPTER, 4) for number in range(12)))
    lost = max(world.engines, key=lambda engine: got(engine, ADAPTER))
    lost.models = ["mock"]
    before = got(lost, ADAPTER)
    answers = await asyncio.gather(*(client(f"client{number}", ADAPTER, 10) for number in range(12)))
    assert Counter(status for statuses in answers for status in statuses) == {200: 120}
    assert got(lost, ADAPTER) - before <= 12, "those that were under way at once"
    await until(lambda: lost.name in running.pool.choice.names.lacking(ADAPTER, 0.0))
    assert running.pool.choice.serving("mock", None, running.router.now()) is None, "its other names are sent to all"
    assert running.scheduler.broken(running.router.now()) == ()


async def test_it_gets_the_adapters_requests_again_once_it_lists_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_metrics, "MODELS_SECONDS", 0.1)
    running = await adapted(world, 2, "round-robin")
    world.engines[0].models = ["mock"]
    await until(lambda: bool(running.pool.choice.names))
    for path in ("/v1/chat/completions", "/tokenize", "/v1/embeddings"):
        for _ in range(4):
            document = {"model": ADAPTER, "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x"}
            assert (await running.client.post(path, json=document)).status_code == 200
    assert got(world.engines[0], ADAPTER) == 0
    world.engines[0].models = ["mock", ADAPTER]
    await until(lambda: not running.pool.choice.names)
    for _ in range(4):
        assert (await running.ask(model=ADAPTER)).status_code == 200
    assert got(world.engines[0], ADAPTER) == 2


async def test_where_no_engine_has_the_adapter_one_is_asked_all_the_same(world: World) -> None:
    running = await adapted(world, 2)
    for engine in world.engines:
        engine.models = ["mock"]
    answer = await running.ask(model=ADAPTER)
    assert (answer.status_code, "does not exist" in answer.text) == (404, True)
    await until(lambda: len(running.pool.choice.names.lacking(ADAPTER, 0.0)) == 2)
    assert (await running.ask(model=ADAPTER)).status_code == 404
    world.engines[1].models = ["mock", ADAPTER]
    assert (await running.ask(model=ADAPTER)).status_code in (200, 404)


async def test_an_engine_that_begins_to_serve_another_model_is_left_alone_at_once(world: World) -> None:
    running = await adapted(world, 2)
    world.engines[0].models = ["other/model"]
    for number in range(12):
        for path in ("/v1/chat/completions", "/tokenize"):
            answer = await running.client.post(
                path, json={"model": "mock", "messages": [{"role": "user", "content": f"{number}"}], "prompt": "x"}
            )
            assert answer.status_code == 200
    assert got(world.engines[0], "mock") <= 3


@pytest.mark.parametrize("status", [400, 401, 403, 422])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_an_engine_that_refuses_what_others_serve_is_found_and_no_client_hears_of_it(world: World, path: str, status: int) -> None:
    running = await world.ready(count=3, policy="least-loaded", pass_client_credentials=True)
    odd = world.engines[0]
    odd.refuses = status
    for _ in range(40):
        answer = await running.client.post(path, json={"model": "mock", "messages": [{"role": "user", "content": "x"}], "prompt": "x"})
        assert answer.status_code == 200
    assert 0 < len(odd.seen) <= 6


async def test_a_refusal_that_others_repeat_is_its_clients_fault_and_is_asked_for_once_more_at_most(world: World) -> None:
    running = await world.ready(count=3)
    for number in range(1, 6):
        answer = await running.ask(script="bad-request")
        assert (answer.status_code, answer.json()) == (400, {"error": "context too long"})
        assert sum(len(engine.seen) for engine in world.engines) == 2 * number
    assert running.scheduler.broken(running.router.now()) == ()
    assert running.pool.counters.rejected_by_engine == 5


WHOLE = b'{"choices": [{"text": "tok", "finish_reason": "stop"}]}'
FAILS = {
    "with a status": b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
    "before its answer": b"",
    "in its answer": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n" + WHOLE,
    "by what it answers": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    "before content": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\n: ping\n\n",
}


@pytest.mark.parametrize("how", list(FAILS))
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_holds_where_the_second_engine_fails(world: World, how: str, stream: bool) -> None:
    running = await world.ready(count=2, policy="least-loaded")
    refusing, failing = world.engines
    refusing.refuses, failing.raw, failing.hangs_up_after_raw = 400, FAILS[how], True
    answer = await running.ask(script="raw", stream=stream)
    assert (answer.status_code, answer.json()) == (400, {"error": {"message": "not here"}})
    most = 2 if how == "before its answer" else 1  # a connection that was used before may have been closed before the request
    assert 1 <= len(failing.seen) <= most
    await until(lambda: running.busy() == 0)
    assert (running.pool.counters.rejected_by_engine, running.pool.counters.failed) == (1, 0)
    assert running.pool.choice.opinions.left < instance_choice.OPINIONS_AT_ONCE - 0.5, "nobody has contradicted it"


def _lacks(name: str) -> bytes:
    error = {"message": f"The model `{name}` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    body = json.dumps({"error": error}).encode()
    return b"HTTP/1.1 404 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_nobody_hears_that_there_is_no_such_model_before_the_engines_that_are_only_doubted_were_asked(
    world: World, path: str
) -> None:
    await world.start_engines(3)
    world.api.state.set_table(replace(world.table(policy="least-loaded"), adapters=(ADAPTER,)))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    world.engines[0].raw = _lacks(ADAPTER)
    names = running.pool.choice.names
    document = {"model": ADAPTER, "messages": [{"role": "user", "content": "x"}], "prompt": "x"}
    for _ in range(2):
        names.serves("i0", ADAPTER)
        for doubted in ("i1", "i2"):
            names.contradicted(doubted, ADAPTER, running.router.now())
        assert running.pool.choice.serving(ADAPTER, None, running.router.now()) == ("i0",)
        answer = await running.client.post(path, json=document, headers={"x-script": "raw@i0"})
        assert (answer.status_code, answer.headers["x-fairlead-instance"] in ("i1", "i2")) == (200, True)
    assert (got(world.engines[0], ADAPTER), got(world.engines[1], ADAPTER) + got(world.engines[2], ADAPTER)) == (2, 2)
    for engine in world.engines[1:]:
        engine.raw = _lacks(ADAPTER)
    answer = await running.client.post(path, json=document, headers={"x-script": "raw"})
    assert answer.status_code == 404
    assert got(world.engines[1], ADAPTER) + got(world.engines[2], ADAPTER) == 4, "both were asked"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_what_a_client_lets_an_engine_quote_takes_nothing_from_it(world: World, path: str) -> None:
    running = await adapted(world, 2, "least-loaded")
    body = json.dumps({"error": {"message": "file 'The model `mock` does not exist' not found", "param": "file", "code": 404}}).encode()
    world.engines[0].raw = b"HTTP/1.1 404 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    document = {"model": "mock", "messages": [{"role": "user", "content": "x"}], "prompt": "x"}
    for _ in range(2):
        answer = await running.client.post(path, json=document, headers={"x-script": "raw@i0"})
        assert answer.status_code == 200
        assert not running.pool.choice.names
    assert got(world.engines[0], "mock") > 0


async def test_an_engine_that_only_seems_to_lack_a_name_keeps_its_requests_by_its_list(world: World) -> None:
    running = await adapted(world, 1)
    world.engines[0].raw = _lacks(ADAPTER)
    assert (await running.ask(model=ADAPTER, script="raw")).status_code == 404
    assert (await running.ask(model=ADAPTER)).status_code == 200
    await until(lambda: not running.pool.choice.names.doubted)
    assert not running.pool.choice.names


async def test_bad_requests_ask_for_no_more_second_opinions_than_are_allowed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_choice, "OPINIONS_PER_SECOND", 0.0)
    monkeypatch.setattr(instance_choice, "OPINIONS_AT_ONCE", 3.0)
    running = await world.ready(count=2)
    for _ in range(10):
        assert (await running.ask(script="bad-request")).status_code == 400
    assert sum(len(engine.seen) for engine in world.engines) == 13


async def test_with_every_circuit_open_requests_are_sent(world: World) -> None:
    running = await world.ready(count=2)
    for engine in world.engines:
        for _ in range(3):
            running.scheduler.instance_failed(engine.name, running.router.now())
    assert len(running.scheduler.broken(running.router.now())) == 2
    for _ in range(4):
        assert (await running.ask()).status_code == 200


async def test_an_adapter_lost_at_one_leg_of_a_divided_call_is_found_at_the_other_instances(world: World) -> None:
    await world.start_engines(4)
    for engine in world.engines:
        engine.models = ["mock", ADAPTER]
    table = world.table(policy="least-loaded", engine_type="vllm", roles=(Role.PREFILL, Role.PREFILL, Role.DECODE, Role.DECODE))
    world.api.state.set_table(replace(table, adapters=(ADAPTER,)))
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    for lost in (world.engines[0], world.engines[2]):
        lost.models, before = ["mock"], got(lost, ADAPTER)
        for _ in range(8):
            answer = await running.ask(model=ADAPTER)
            assert answer.status_code == 200
        assert got(lost, ADAPTER) - before <= 2
    await until(lambda: running.busy() == 0)
