"""What a router learns of prompts' tokens from engines that tell ids alone."""

import asyncio
import json
from dataclasses import replace

import pytest

from fairlead.kv_events.block_keys import block_keys
from fairlead.kv_events.sources import Source
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pools import Pools
from fairlead_router.prompt_tokens import PromptTokens
from fairlead_router.upstream import UpstreamPool
from fairlead_router.upstream_connections import UpstreamFailure
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


async def learnt(engine: Engine, engine_type: str) -> tuple[dict[str, int], tuple[int, ...]]:
    """How a prompt was learnt, and then the known blocks of another that begins alike."""
    metrics = RouterMetrics()
    pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), metrics, lambda: 0.0)
    pools.apply(routing_table(["127.0.0.1:1"], engine_type=engine_type))
    pool = pools.get(CHAT)
    assert pool is not None
    caches = pool.scheduler.caches
    assert caches.takes_size(BLOCK)
    caches.hear("i0", [Source(instance="i0")], complete=True)
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
    pool.scheduler.caches.hear("i0", [Source(instance="i0")], complete=True)
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
