"""A router before two real vLLM engines: answers, cancelling, metrics, and an index equal to the engines' cache.

The engines run on this machine's processor with a tiny model of random weights. Their answers have no meaning, but
their caching, counting, publishing and eviction are vLLM's own.
"""

import asyncio
import random
import signal
from typing import Any

import httpx
import orjson
import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.engine_hashes import EngineHashing, recognise
from fairlead.kv_events.sources import Source
from fairlead.reports.engines import EngineTrouble
from fairlead_router.kv_events.metrics import Belief
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.running.vllm_engine import BLOCK_TOKENS, BLOCKS, MODEL, VllmEngine
from fairlead_testing.worlds.real_engines import COMPLETIONS, SECONDS, Live
from fairlead_testing.worlds.router_worlds import World, until

REQUESTS = 500
CHAT = "/v1/chat/completions"


def streamed(body: str) -> list[dict[str, Any]]:
    """Return the events of a stream, which must end completely."""
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_answers_are_the_engines_own_streamed_and_not(live: Live, path: str) -> None:
    text = "What does a router do with a prompt that two engines hold?"
    asked: dict[str, Any] = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    document = {"model": MODEL, "max_tokens": 24, "ignore_eos": True, "temperature": 0, **asked}

    def said(choice: dict[str, Any]) -> str:
        return str((choice.get("message") or choice.get("delta") or choice).get("content" if path == CHAT else "text") or "")

    async with httpx.AsyncClient(base_url=f"http://{live.engines['i0'].address}", timeout=SECONDS, trust_env=False) as client:
        direct = (await client.post(path, json=document)).json()
    answer = await live.running.client.post(path, json=document, timeout=SECONDS)
    assert answer.status_code == 200 and answer.headers["x-fairlead-instance"] in live.engines
    whole = answer.json()
    assert said(whole["choices"][0]) == said(direct["choices"][0]) != ""
    assert whole["usage"]["prompt_tokens"] == direct["usage"]["prompt_tokens"] and whole["usage"]["completion_tokens"] == 24

    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await live.running.client.post(path, json=document | options, timeout=SECONDS)
    events = streamed(stream.text)
    assert "".join(said(choice) for event in events for choice in event["choices"]) == said(whole["choices"][0])
    assert events[-1]["usage"]["completion_tokens"] == 24
    assert live.running.pool.counters.served == 2 and live.running.busy() == 0


async def test_a_client_that_leaves_ends_its_request_in_the_engine(live: Live) -> None:
    before = [await live.metric(name, "vllm:generation_tokens_total") for name in live.engines]
    document = {"model": MODEL, "prompt": "Go on. " * 20, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    async with live.running.client.stream("POST", COMPLETIONS, json=document, timeout=SECONDS) as answer:
        instance = answer.headers["x-fairlead-instance"]
        lines = answer.aiter_lines()
        await anext(lines)
        await until(lambda: live.running.pool.engines.kv_usage.get(instance, 0.0) > 0.0, SECONDS)
    await until(lambda: live.running.busy() == 0, SECONDS)
    assert live.running.pool.counters.cancelled == 1
    async with asyncio.timeout(SECONDS):
        while await live.metric(instance, "vllm:num_requests_running"):
            await asyncio.sleep(0.1)
    after = [await live.metric(name, "vllm:generation_tokens_total") for name in live.engines]
    assert 0 < sum(after) - sum(before) < 2900, "vLLM counts an abort nowhere but in the tokens that it did not make"


async def test_what_engines_say_of_themselves_is_read(live: Live) -> None:
    """Metrics, the size of their caches, the size of their blocks and their models are read, and faults reported."""
    pool = live.running.pool
    await until(lambda: set(pool.engines.pages) == set(live.engines), SECONDS)
    for page in pool.engines.pages.values():
        assert page.kv_cache_tokens == BLOCKS * BLOCK_TOKENS and page.running is not None and page.waiting is not None
    assert live.running.scheduler.table.engine.kv_cache_tokens == BLOCKS * BLOCK_TOKENS
    assert (await live.ask("one block of tokens at least, so that its size is told " * 8)).status_code == 200
    await until(lambda: live.running.scheduler.caches.block_tokens == BLOCK_TOKENS, SECONDS)
    assert pool.engines.troubled() == ()


async def test_an_engine_that_serves_another_model_is_told(world: World, engines: dict[str, VllmEngine]) -> None:
    addresses = [engine.address for engine in engines.values()]
    world.api.state.set_table(routing_table(addresses, model="another", engine_type="vllm"))
    running = await world.start_router()
    await until(lambda: bool(running.router.pools.all()), SECONDS)
    await until(lambda: len(running.pool.engines.troubled()) == len(engines), SECONDS)
    words = f"it serves {MODEL}, not another; correct spec.model or --served-model-name"
    assert {(one.trouble, one.words) for one in running.pool.engines.troubled()} == {(EngineTrouble.MODEL_NOT_SERVED, words)}


def prompts(count: int, seed: int) -> list[list[int]]:
    """Return prompts with shared beginnings and continued conversations, with far more tokens than both engines can
    cache.
    """
    chance = random.Random(seed)

    def tokens(least: int, most: int) -> list[int]:
        return [chance.randrange(10, 1990) for _ in range(chance.randint(least, most))]

    beginnings = [tokens(90, 420) for _ in range(12)]
    made: list[list[int]] = []
    for _ in range(count):
        begins_with = chance.choice(made[-12:] if made and chance.random() < 0.35 else beginnings)
        made.append((begins_with + tokens(5, 120))[:600])
    return made


async def test_what_the_index_says_is_cached_is_what_the_engines_count(live: Live) -> None:
    """500 requests, two at a time, with evictions; afterwards prompts and blocks are compared one by one.

    Each question waits for the events of the answers before, as a busy engine publishes up to a second late.
    """
    asked = prompts(REQUESTS, seed=5)
    left = iter(asked)
    reported: list[int] = []

    async def client() -> None:
        for prompt in left:
            instance, cached = await live.cached(prompt, max_tokens=(1, 4, 16)[len(prompt) % 3])
            reported.append(cached)
            keys = block_keys(prompt, BLOCK_TOKENS)
            await until(lambda: live.index.match(Source(instance=instance), keys) == len(keys), SECONDS)  # noqa: B023  # awaited here

    counters = live.running.pool.counters
    await asyncio.gather(client(), client())
    believed = [belief for (_, basis), belief in counters.beliefs.items() if basis == "events"]
    total = Belief()
    for belief in believed:
        total.requests += belief.requests
        total.exact += belief.exact
        total.predicted_tokens += belief.predicted_tokens
        total.reported_tokens += belief.reported_tokens
        total.difference_tokens += belief.difference_tokens
    print(f"\n{total.requests} requests: predicted {total.predicted_tokens}, reported {total.reported_tokens}, exact {total.exact}, "
          f"difference request by request {total.difference_tokens}")  # fmt: skip
    # of an engine that nobody has asked before, the size of its blocks is not known when its first request comes
    assert total.requests >= REQUESTS - len(live.engines) and total.reported_tokens == sum(reported) > 20_000
    assert abs(total.predicted_tokens - total.reported_tokens) <= 0.005 * total.reported_tokens
    assert total.exact >= 0.98 * total.requests

    for name in live.engines:
        await live.agrees_about(name, asked)
        told = live.truths[name]
        assert told.removed > 300 and sum(live.index.blocks(Source(instance=name)).values()) <= BLOCKS
        assert recognise(asked, BLOCK_TOKENS, told.hashes, ["0"]) == EngineHashing(algorithm="sha256_cbor", seed="0")

    for prompt in asked[-40:]:
        for name in live.engines:
            await live.agrees(name)
        held = {name: live.index.match(Source(instance=name), block_keys(prompt, BLOCK_TOKENS)) for name in live.engines}
        instance, cached = await live.cached(prompt)
        assert cached == min(held[instance], (len(prompt) - 1) // BLOCK_TOKENS) * BLOCK_TOKENS


@pytest.mark.parametrize("form", ["prompt", "messages"])
async def test_texts_are_known_by_the_engines_own_tokens(live: Live, form: str) -> None:
    """Each text is asked once. After the engine has returned its tokens, belief is exact, also for texts that begin
    alike.
    """
    counters, path = live.running.pool.counters, COMPLETIONS if form == "prompt" else CHAT

    async def ask(text: str) -> None:
        given: Any = text if form == "prompt" else [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": text}]
        document = {"model": MODEL, form: given, "max_tokens": 4, "ignore_eos": True}
        answer = await live.running.client.post(path, json=document, timeout=SECONDS)
        assert answer.status_code == 200, answer.text
        for name in live.engines:
            await live.agrees(name)

    texts = [f"{form}: naïve café {number % 2}, " * 20 + f"question {number}. " * 40 for number in range(4)]
    for text in texts:
        await ask(text)
    await until(lambda: counters.tokenizing["learnt"] == len(texts), SECONDS)
    counters.beliefs.clear()
    counters.known_prompts.clear()
    for text in (*texts, *reversed(texts)):
        await ask(text)
    believed = [belief for (_, basis), belief in counters.beliefs.items() if basis == "events"]
    assert counters.known_prompts == {"whole": 8}
    assert sum(belief.requests for belief in believed) == sum(belief.exact for belief in believed) == 8
    assert sum(belief.reported_tokens for belief in believed) > 1000


async def load(live: Live, until_set: asyncio.Event, clients: int, seed: int, seen: list[tuple[str, int]]) -> None:
    """Send requests, this many at a time, until stopped; `seen` gets the engine and the answer of each."""
    left = iter(prompts(100_000, seed)[:20_000])

    async def client() -> None:
        while not until_set.is_set():
            answer = await live.ask(next(left), max_tokens=8)
            seen.append((answer.headers.get("x-fairlead-instance", ""), answer.status_code))

    await asyncio.gather(*(client() for _ in range(clients)))


async def test_a_restarted_engine_costs_what_was_in_flight_there_and_its_index_begins_anew(live: Live) -> None:
    stop, seen = asyncio.Event(), list[tuple[str, int]]()
    loading = asyncio.create_task(load(live, stop, 4, 7, seen))
    await until(lambda: live.running.pool.counters.served >= 20, SECONDS)
    engine, scheduler = live.engines["i0"], live.running.scheduler
    in_flight = {row.instance: row.in_flight for row in scheduler.in_flight()}.get("i0", 0)
    engine.kill()
    await until(lambda: live.running.pool.counters.served >= 60, SECONDS)
    engine.start()
    await asyncio.to_thread(engine.wait_ready)
    await until(lambda: set(scheduler.caches.heard) == set(live.engines), SECONDS)
    reading = live.running.router.kv_events.readings()["default/chat", "i0"][0]
    back = len(seen)
    await until(lambda: sum(instance == "i0" for instance, _ in seen[back:]) >= 20, SECONDS)  # once its circuit closes
    stop.set()
    await loading
    failed = [status for _, status in seen if status != 200]
    print(f"\n{len(seen)} requests, {len(failed)} failed, {in_flight} were in flight at the engine that was killed; then {reading.state}")
    assert len(failed) <= in_flight
    for name in live.engines:
        await live.agrees_about(name, prompts(100, 7))
    assert 0 < sum(live.index.blocks(Source(instance="i0")).values()) <= BLOCKS


async def test_a_paused_engine_delays_its_own_requests_and_fails_none(live: Live) -> None:
    stop, seen = asyncio.Event(), list[tuple[str, int]]()
    loading = asyncio.create_task(load(live, stop, 6, 9, seen))
    counters = live.running.pool.counters
    await until(lambda: counters.served >= 20, SECONDS)
    live.engines["i1"].signal(signal.SIGSTOP)
    try:
        served = counters.served
        await until(lambda: counters.served >= served + 40, SECONDS)
    finally:
        live.engines["i1"].signal(signal.SIGCONT)
    served = counters.served
    await until(lambda: counters.served >= served + 40, SECONDS)
    stop.set()
    await loading
    assert {status for _, status in seen} == {200} and counters.failed == 0
    assert {instance for instance, _ in seen[-30:]} == {"i0", "i1"}
    for name in live.engines:
        await live.agrees_about(name, prompts(100, 9))
