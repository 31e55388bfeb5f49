"""A router asks engines for the tokens of prompts and uses their answers."""

import asyncio
import json
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.gateway.prompt_tokens import DISPUTED_SECONDS, MOST_DISPUTES, PromptTokens
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_testing.builders.recorded_clients import RecordedClient, RecordedRequest, recorded_clients
from fairlead_testing.builders.routing_tables import CHAT, routing_table
from fairlead_testing.waiting import PATIENCE_SECONDS

BLOCK = 16
TEXT = "abcd" * 200
TOKENS = [*range(200)]


class Engine(UpstreamPool):
    """Tokens of four letters, by their ids; `texts` is the text that it gives for each when asked for it."""

    def __init__(self, texts: list[str] | None) -> None:
        super().__init__(lambda: 0.0, connect_seconds=1.0)
        self.texts = texts
        self.asked: list[tuple[str, object]] = []

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        assert body is not None
        self.asked.append((path, json.loads(body)))
        if path == "/tokenize":
            return json.dumps({"tokens": TOKENS, "count": len(TOKENS), "max_model_len": 4096}).encode()
        if self.texts is None:
            raise UpstreamFailure("status", "404")
        return json.dumps({"text": self.texts}).encode()


def following_pool(engine_type: str = "vllm") -> Pool:
    """Return a pool whose only instance publishes KV events."""
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), RouterMetrics(), lambda: 0.0)
    pools.apply(routing_table(["127.0.0.1:1"], engine_type=engine_type))
    pool = pools.get(CHAT)
    assert pool is not None
    assert pool.scheduler.caches.takes_size(BLOCK)
    pool.scheduler.caches.hear("i0", Source(instance="i0"), complete=True)
    return pool


async def learnt(engine: Engine, engine_type: str) -> tuple[dict[str, int], tuple[int, ...]]:
    """Return the way in which a prompt's tokens were found, and the known blocks of another prompt with the same
    beginning.
    """
    pool = following_pool(engine_type)
    prompts = PromptTokens(engine, lambda: 0.0)
    prompts.of(pool, "/v1/completions", {"prompt": TEXT}, 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not sum(pool.counters.tokenizing.values()):
            await asyncio.sleep(0)
    found = prompts.of(pool, "/v1/completions", {"prompt": TEXT + "other words " * 8}, 1)
    await asyncio.sleep(0)
    return {name: count for name, count in pool.counters.tokenizing.items() if count}, found.engine_blocks


async def test_sglang_is_asked_for_the_text_of_each_token_and_longer_prompts_are_known_in_part() -> None:
    engine = Engine(["abcd"] * 200)
    outcome, blocks = await learnt(engine, "sglang")
    assert outcome == {"learnt": 1}
    assert engine.asked[1] == ("/detokenize", {"model": "mock", "tokens": [[token] for token in TOKENS], "skip_special_tokens": False})
    assert 0 < len(blocks) < len(TOKENS) // BLOCK and blocks == block_keys(TOKENS, BLOCK)[: len(blocks)]


async def test_an_adapters_prompt_has_the_keys_of_its_own_blocks_and_its_own_tokenizer_is_asked() -> None:
    engine = Engine(["abcd"] * 200)
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), RouterMetrics(), lambda: 0.0)
    pools.apply(replace(routing_table(["127.0.0.1:1"], engine_type="vllm"), adapters=("sql",)))
    pool = pools.get(CHAT)
    assert pool is not None
    assert pool.scheduler.caches.takes_size(BLOCK)
    pool.scheduler.caches.hear("i0", Source(instance="i0"), complete=True)
    prompts = PromptTokens(engine, lambda: 0.0)
    ids = {"prompt": TOKENS}
    of_model, of_adapter = (prompts.of(pool, "/v1/completions", ids, 1, name).engine_blocks for name in (None, "sql"))
    assert (
        of_model == block_keys(TOKENS, BLOCK)[: len(of_model)] and of_adapter == block_keys(TOKENS, BLOCK, lora_name="sql")[: len(of_model)]
    )
    assert not set(of_model) & set(of_adapter)
    for name, model in ((None, "mock"), ("sql", "sql")):
        before = sum(pool.counters.tokenizing.values())
        prompts.of(pool, "/v1/completions", {"prompt": TEXT}, 1, name)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(pool.counters.tokenizing.values()) == before:
                await asyncio.sleep(0)
        assert isinstance(engine.asked[-1][1], dict) and engine.asked[-1][1]["model"] == model
        blocks = prompts.of(pool, "/v1/completions", {"prompt": TEXT}, 1, name).engine_blocks
        assert blocks == block_keys(TOKENS, BLOCK, lora_name=name)[: len(blocks)] and blocks


@pytest.mark.parametrize("texts", [None, ["bcd"] * 200, ["abcd"]])
async def test_where_the_texts_of_tokens_do_not_fit_only_the_very_prompt_is_known(texts: list[str] | None) -> None:
    assert await learnt(Engine(texts), "sglang") == ({"unaligned": 1}, ())


async def test_another_engine_is_not_asked_for_texts() -> None:
    engine = Engine(["abcd"] * 200)
    outcome, _ = await learnt(engine, "vllm")
    assert outcome == {"unaligned": 1} and [path for path, _ in engine.asked[:2]] == ["/tokenize", "/tokenize"]


class Counting(UpstreamPool):
    """Gives each prompt the number of tokens that vLLM counted, all of equal length over the rendered text."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0, connect_seconds=1.0)
        self.count = 0
        self.disputes = False

    async def fetch(
        self, address: str, path: str, *, seconds: float, limit: int = 0, headers: bytes = b"", body: bytes | None = None
    ) -> bytes:
        if path == "/v1/messages/count_tokens":
            return json.dumps({"input_tokens": self.count + self.disputes}).encode()
        if path != "/tokenize":
            raise UpstreamFailure("status", "answered 403", 403)
        asked = json.loads(body or b"")
        if any(message["role"] == "system" for message in asked["messages"][1:]):
            raise UpstreamFailure("status", "answered 400", 400)
        whole = json.dumps(asked.get("tools", "")) + "".join(map(rendered, asked["messages"]))
        width = max(1, len(whole) // self.count)
        strings = [whole[at : at + width] for at in range(0, width * (self.count - 1), width)] + [whole[width * (self.count - 1) :]]
        return json.dumps({"tokens": [crc32(each.encode()) for each in strings], "token_strs": strings}).encode()


def rendered(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    words = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return json.dumps({field: given for field, given in message.items() if field != "content"}) + words


async def asked_once(prompts: PromptTokens, pool: Pool, request: RecordedRequest) -> int:
    """Ask for a request's tokens and return the number that was estimated before."""
    believed = prompts.of(pool, request.route, request.body, 1).prompt_tokens
    async with asyncio.timeout(PATIENCE_SECONDS):
        while prompts.asks(pool):
            await asyncio.sleep(0)
    return believed


AGENTS = [client for client in recorded_clients() if client.turns[0].prompt_tokens > 10_000]
"""Requests whose last turn is a small part of the prompt."""


@pytest.mark.parametrize("client", recorded_clients(), ids=lambda client: client.name)
async def test_of_recorded_clients_all_tokens_are_known_once_their_engine_was_asked(client: RecordedClient) -> None:
    engine, pool = Counting(), following_pool()
    prompts = PromptTokens(engine, lambda: 0.0)
    for request in client.requests:
        before, engine.count = pool.counters.tokenizing.total(), request.prompt_tokens
        await asked_once(prompts, pool, request)
        if pool.counters.tokenizing.total() > before:
            assert prompts.of(pool, request.route, request.body, 1).prompt_tokens == request.prompt_tokens
    assert set(pool.counters.tokenizing) == {"learnt"} and "unaskable" not in pool.counters.known_prompts


@pytest.mark.parametrize("client", AGENTS, ids=lambda client: client.name)
async def test_of_an_agents_later_turns_the_tokens_are_known_within_two_percent_before_anybody_is_asked(client: RecordedClient) -> None:
    engine, pool = Counting(), following_pool()
    prompts = PromptTokens(engine, lambda: 0.0)
    first, *later = (request for request in client.turns if request.body["tools"] == client.turns[0].body["tools"])
    engine.count = first.prompt_tokens
    await asked_once(prompts, pool, first)
    for request in later:
        believed = prompts.of(pool, request.route, request.body, 1)
        assert abs(believed.prompt_tokens - request.prompt_tokens) <= 0.02 * request.prompt_tokens
        assert len(believed.engine_blocks) * BLOCK >= 0.98 * first.prompt_tokens
    assert pool.counters.tokenizing == {"learnt": 1}


async def test_an_engine_that_makes_other_tokens_of_requests_is_left_alone_for_a_while_and_nothing_is_learnt_of_it() -> None:
    engine, pool, now = Counting(), following_pool(), [0.0]
    engine.disputes = True
    prompts = PromptTokens(engine, lambda: now[0])
    (request,) = (client.turns[0] for client in recorded_clients() if client.name == "anthropic-python")
    engine.count = request.prompt_tokens
    for _ in range(MOST_DISPUTES + 3):
        assert await asked_once(prompts, pool, request) == 1
    assert pool.counters.tokenizing == {"disputed": MOST_DISPUTES}
    engine.disputes = False
    assert await asked_once(prompts, pool, request) == 1
    now[0] = DISPUTED_SECONDS + 1.0
    await asked_once(prompts, pool, request)
    assert prompts.of(pool, request.route, request.body, 1).prompt_tokens == request.prompt_tokens
