"""Limits of tokens over real HTTP: they hold if clients leave, if many come at once, and whatever engines count."""

import asyncio
import json
from hashlib import sha256
from time import monotonic
from typing import Any

import httpx
import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead_router.protocols.rendered_chats import mark
from fairlead_testing.worlds.router_worlds import RunningRouter, World, until

SECRET = "flk_the-secret-of-a-team-0123456789"
SHOWN = {"authorization": f"Bearer {SECRET}"}
PER_MINUTE = 10_000
PROMPT_TOKENS = 2520
TEXT = "x" * (4 * PROMPT_TOKENS - len(mark("user")))
MESSAGES = [{"role": "user", "content": TEXT}]
PROTOCOLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 20},
    "/v1/responses": {"input": TEXT},
}


async def limited(world: World, **limits: Any) -> RunningRouter:
    await world.start_engines(2)
    key = GatewayKeyFacts(id="team", digest=sha256(SECRET.encode()).hexdigest(), **(limits or {"tokens_per_minute": PER_MINUTE}))
    world.api.state.set_gateway_keys(key)
    world.api.state.set_table(world.table())
    running = await world.start_router()
    await until(lambda: running.router.informing.synced)
    return running


async def post(running: RunningRouter, path: str, *, stream: bool, script: str) -> httpx.Response:
    document = {"model": "mock", "stream": stream, **PROTOCOLS[path]}
    return await running.client.post(path, json=document, headers={**SHOWN, "x-script": script})


def at_engines(world: World) -> int:
    return sum(len(engine.seen) for engine in world.engines)


def tells(world: World, usage: dict[str, Any], **more: Any) -> None:
    """Let every engine answer `raw` with this usage."""
    body = json.dumps(
        {"id": "resp_a", "choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage, **more}
    ).encode()
    for engine in world.engines:
        engine.raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def charged(world: World, running: RunningRouter) -> tuple[int, int, int, int]:
    """Return the reported requests, prompt and output tokens, and refused requests."""
    await until(lambda: running.busy() == 0)
    await world.stop_router(running)
    uses = world.api.state.stored("key_use")
    served = [one for one in uses if one.refusal is None]
    refused = sum(one.requests for one in uses if one.refusal == "rejected-key-tokens")
    return sum(one.requests for one in served), sum(one.prompt_tokens for one in uses), sum(one.output_tokens for one in uses), refused


@pytest.mark.parametrize("path", PROTOCOLS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("waits", [True, False])
async def test_25_prompts_that_hang_up_are_charged_and_refused_as_25_that_wait(world: World, path: str, stream: bool, waits: bool) -> None:
    running = await limited(world)
    tells(world, {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 5})
    begun, refused = monotonic(), 0
    for number in range(25):
        before = at_engines(world)
        task = asyncio.create_task(post(running, path, stream=stream and not waits, script="raw" if waits else "silent"))
        if not waits:
            await until(lambda before=before, task=task: task.done() or at_engines(world) > before)  # type: ignore[misc]
        if waits or task.done():
            answer = await task
            refused += answer.status_code == 429
            assert answer.status_code in (200, 429), number
            assert answer.status_code == 200 or "rejected-key-tokens" in answer.text
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: running.busy() == 0)
    passed = 25 - refused
    allowed = (PER_MINUTE + PER_MINUTE / 60 * (monotonic() - begun)) / PROMPT_TOKENS + 1
    assert 3 <= passed <= allowed
    assert at_engines(world) == passed
    requests, prompt, output, counted = await charged(world, running)
    assert (requests, counted) == (passed, refused)
    if not waits or path == "/v1/chat/completions":  # how Messages tell their prompt is another matter
        assert prompt == passed * PROMPT_TOKENS
    assert output == (5 * passed if waits else 0)


async def test_any_number_of_requests_at_once_pass_no_more_than_one_by_one(world: World) -> None:
    running = await limited(world)
    begun = monotonic()
    tasks = [asyncio.create_task(post(running, "/v1/chat/completions", stream=False, script="silent")) for _ in range(25)]
    await until(lambda: at_engines(world) + sum(task.done() for task in tasks) == 25)
    allowed = (PER_MINUTE + PER_MINUTE / 60 * (monotonic() - begun)) / PROMPT_TOKENS + 1
    assert 3 <= at_engines(world) <= allowed
    assert {(await task).status_code for task in tasks if task.done()} == {429}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (await charged(world, running))[1] == at_engines(world) * PROMPT_TOKENS


async def test_what_an_engine_cannot_have_counted_locks_no_key_for_years(world: World) -> None:
    running = await limited(world)
    tells(world, {"prompt_tokens": 10**9, "completion_tokens": 10**9})
    assert (await post(running, "/v1/chat/completions", stream=False, script="raw")).status_code == 200
    tells(world, {"prompt_tokens": 10_000_000, "completion_tokens": 10_000_000})
    while (answer := await post(running, "/v1/chat/completions", stream=False, script="raw")).status_code == 200:
        pass
    assert int(answer.headers["retry-after"]) < 24 * 3600
    await until(lambda: running.busy() == 0)
    assert running.pool.counters.implausible_usages >= 4
    most = running.pool.most_tokens(len(json.dumps({"model": "mock", "stream": False, "messages": MESSAGES})))
    _, prompt, output, _ = await charged(world, running)
    assert prompt <= PROMPT_TOKENS + most
    assert output <= most


async def test_an_answer_that_is_given_later_is_charged_once_when_it_is_seen_to_the_key_that_asked(world: World) -> None:
    running = await limited(world, tokens_per_minute=10**6)
    tells(world, None, status="queued")  # type: ignore[arg-type]
    body = {"model": "mock", "input": TEXT, "background": True}
    made = await running.client.post("/v1/responses", json=body, headers={**SHOWN, "x-script": "raw"})
    assert made.json()["status"] == "queued"
    holder = made.headers["x-fairlead-instance"]
    engine = next(engine for engine in world.engines if engine.name == holder)
    engine.held = {"id": "resp_a", "status": "in_progress", "usage": None}
    assert (await running.client.get("/v1/responses/resp_a")).json()["status"] == "in_progress"
    usage = {"input_tokens": PROMPT_TOKENS + 30, "output_tokens": 700, "input_tokens_details": {"cached_tokens": 0}}
    engine.held = {"id": "resp_a", "status": "completed", "output": ["words " * 5000], "usage": usage}
    for _ in range(3):
        assert (await running.client.get("/v1/responses/resp_a")).json()["status"] == "completed"
    _, prompt, output, _ = await charged(world, running)
    assert (prompt, output) == (PROMPT_TOKENS + 30, 700)


async def test_a_request_that_its_key_does_not_open_takes_nothing_from_the_limit(world: World) -> None:
    running = await limited(world, requests_per_minute=2)
    key = GatewayKeyFacts(
        id="team",
        digest=sha256(SECRET.encode()).hexdigest(),
        requests_per_minute=2,
        pools=("default/nowhere", "default/chat"),
        models=("mock",),
    )
    world.api.state.set_gateway_keys(key)
    world.api.state.set_table(world.table(version=2, model="other"))
    await until(lambda: all(pool.table.version == 2 for pool in running.router.pools.all()))
    await until(lambda: any(one.facts.pools for one in running.router.keys._by_digest.values()))
    for _ in range(5):
        assert (await running.ask(headers=SHOWN, model="other")).status_code == 404
    world.api.state.set_table(world.table(version=3))
    await until(lambda: all(pool.table.version == 3 for pool in running.router.pools.all()))
    assert [(await running.ask(headers=SHOWN)).status_code for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 100}),
        ("/v1/completions", {"prompt": ["x"] * 50, "n": 2}),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "x"}]] * 100}),
    ],
)
async def test_a_hundred_answers_at_once_reserve_the_tokens_of_a_hundred(world: World, path: str, document: dict[str, Any]) -> None:
    running = await limited(world, tokens_per_minute=10**6)
    body = {"model": "mock", "max_tokens": 1000, **document}
    task = asyncio.create_task(running.client.post(path, json=body, headers={**SHOWN, "x-script": "silent"}))
    await until(lambda: at_engines(world) == 1)
    (ticket,) = running.pool.account.tickets.values()
    assert ticket.charge is not None
    assert ticket.charge.taken == ticket.request.prompt_tokens + 100_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_several_answers_cost_may_exceed_what_one_can_have(world: World) -> None:
    running = await limited(world)
    cache = running.pool.engines.cache_tokens or running.pool.table.engine.kv_cache_tokens
    tells(world, {"prompt_tokens": 100, "completion_tokens": cache * 3})
    body = {"model": "mock", "max_tokens": cache, "n": 4, "messages": [{"role": "user", "content": "x"}]}
    answer = await running.client.post("/v1/chat/completions", json=body, headers={**SHOWN, "x-script": "raw"})
    assert answer.status_code == 200
    assert (await charged(world, running))[:3] == (1, 100, cache * 3)


@pytest.mark.parametrize("reason", ["null", '"stop"'])
async def test_who_leaves_before_the_usage_pays_what_events_held_before(world: World, reason: str) -> None:
    running = await limited(world, tokens_per_minute=10**6)
    told = {"choices": [], "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 200}}
    chunks = ['data: {"choices": [{"index": 0, "delta": {"content": "ten tokens "}, "finish_reason": null}]}\n\n'] * 19
    chunks.append(chunks[0].replace("null", reason))
    for engine in world.engines:
        engine.events = ["".join(chunks), f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n"]
    assert (await post(running, "/v1/chat/completions", stream=True, script="")).status_code == 200
    for engine in world.engines:
        engine.stepwise_events = True
    document = {"model": "mock", "stream": True, "messages": MESSAGES}
    async with running.client.stream("POST", "/v1/chat/completions", json=document, headers=SHOWN) as answer:
        await anext(answer.aiter_bytes())
    await until(lambda: running.busy() == 0)
    for engine in world.engines:
        engine.step.set()
    assert (await charged(world, running))[1:3] == (2 * PROMPT_TOKENS, 400)
