"""Which blocks of its engine's a prompt has: what is known of its tokens, and the asking for what is not.

Only pools whose engines send KV events have a use for it. Nothing waits for it: a request is routed by what is known
when it comes, and by the router's own history for the rest. The engine's own tokenizer is asked meanwhile, so that the
next prompt that begins like this one is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from fairlead.kv_events.block_keys import block_keys
from fairlead.values import value
from fairlead_router.kv_events.known_prompts import NOTHING_KNOWN, KnownBeginning, KnownPrompts, PromptText
from fairlead_router.kv_events.prompt_texts import detokenizing, prompt_text, question, token_ids
from fairlead_router.pool import Pool
from fairlead_router.upstream import UpstreamPool
from fairlead_router.upstream_connections import UpstreamFailure

KNOWN_ENOUGH = 0.8
"""A prompt of which this share is known is not asked for; so much overlap is enough for llm-d's prefix store, too."""

AT_ONCE = 4
"""Questions to the engines of one pool; more prompts are left unknown."""

TIMEOUT_SECONDS = 10.0
MOST_ANSWER_BYTES = 32 * 1024 * 1024

logger = logging.getLogger(__name__)


@value
class RoutedPrompt:
    """What routing is told of a prompt."""

    prompt_tokens: int
    engine_blocks: tuple[int, ...] = ()


class _Answer(msgspec.Struct):
    tokens: list[int]
    token_strs: list[str] | None = None


class _Texts(msgspec.Struct):
    text: list[str]


_ANSWER = msgspec.json.Decoder(_Answer)
_TEXTS = msgspec.json.Decoder(_Texts)


class _Asking:
    """What is asked of one pool's engines."""

    __slots__ = ("known", "tasks")

    def __init__(self, block_tokens: int) -> None:
        self.known = KnownPrompts(block_tokens)
        self.tasks: dict[PromptText, asyncio.Task[None]] = {}


class PromptTokens:
    """The known tokens of prompts, for all pools. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, now: Callable[[], float]) -> None:
        self._upstream = upstream
        self._now = now
        self._asking: WeakKeyDictionary[Pool, _Asking] = WeakKeyDictionary()

    def of(self, pool: Pool, path: str, document: Mapping[str, Any], estimated_tokens: int, adapter: str | None = None) -> RoutedPrompt:
        """What is known now of the prompt of a request for the model or an `adapter`. Asks an engine for the rest, and
        does not wait for it.
        """
        caches = pool.scheduler.caches
        if not caches.heard or not caches.block_tokens:
            return RoutedPrompt(prompt_tokens=estimated_tokens)
        ids = token_ids(path, document)
        if ids is not None:
            return self._of_ids(pool, ids, document.get("cache_salt"), estimated_tokens, adapter)
        prompt = prompt_text(path, document, adapter)
        if prompt is None:
            pool.counters.known_prompts["unaskable"] += 1
            return RoutedPrompt(prompt_tokens=estimated_tokens)
        asking = self._of_pool(pool)
        found = asking.known.find(prompt)
        if not found.whole and found.size < KNOWN_ENOUGH * prompt.size:
            self._ask(pool, asking, prompt, path, document)
        pool.counters.known_prompts["whole" if found.whole else "partly" if found.blocks else "unknown"] += 1
        return _routed(found, prompt.size, estimated_tokens, caches.block_tokens)

    def _of_ids(self, pool: Pool, ids: Any, salt: object, estimated_tokens: int, adapter: str | None) -> RoutedPrompt:
        block_tokens = pool.scheduler.caches.block_tokens
        try:
            keys = block_keys(ids, block_tokens, lora_name=adapter, cache_salt=salt if isinstance(salt, str) else None)
        except (OverflowError, TypeError):
            return RoutedPrompt(prompt_tokens=estimated_tokens)  # the engine will refuse it
        pool.counters.known_prompts["whole"] += 1
        return RoutedPrompt(prompt_tokens=len(ids), engine_blocks=keys[: (len(ids) - 1) // block_tokens])

    def _of_pool(self, pool: Pool) -> _Asking:
        asking = self._asking.get(pool)
        if asking is None or asking.known.block_tokens != pool.scheduler.caches.block_tokens:
            asking = self._asking[pool] = _Asking(pool.scheduler.caches.block_tokens)
        return asking

    def _ask(self, pool: Pool, asking: _Asking, prompt: PromptText, path: str, document: Mapping[str, Any]) -> None:
        instance = pool.choice.least_loaded((), self._now())
        if prompt in asking.tasks or instance is None:
            return
        if len(asking.tasks) >= AT_ONCE:
            pool.counters.tokenizing["crowded-out"] += 1
            return
        body = question(path, document, prompt.adapter or pool.table.model)
        task = asyncio.get_running_loop().create_task(self._learn(pool, asking.known, prompt, pool.addresses[instance], body))
        asking.tasks[prompt] = task
        task.add_done_callback(lambda _: asking.tasks.pop(prompt, None))

    async def _learn(self, pool: Pool, known: KnownPrompts, prompt: PromptText, address: str, body: bytes) -> None:
        outcome = "failed"
        try:
            answer = await self._upstream.fetch(address, "/tokenize", seconds=TIMEOUT_SECONDS, limit=MOST_ANSWER_BYTES, body=body)
            told = _ANSWER.decode(answer)
            strings = told.token_strs
            if strings is None and pool.table.engine.type == "sglang":
                strings = await self._texts(pool, address, told.tokens)
            await asyncio.sleep(0)
            outcome = "learnt" if known.learn(prompt, told.tokens, strings or ()) else "unaligned"
        except (UpstreamFailure, msgspec.MsgspecError, OverflowError) as failure:
            logger.debug("prompt not tokenized", extra={"pool": str(pool.key), "address": address, "error": str(failure)})
        finally:
            pool.counters.tokenizing[outcome] += 1

    async def _texts(self, pool: Pool, address: str, tokens: list[int]) -> list[str]:
        """The text of each token, from an engine whose `/tokenize` tells ids alone; none if it does not tell."""
        body = detokenizing(tokens, pool.table.model)
        try:
            answer = await self._upstream.fetch(address, "/detokenize", seconds=TIMEOUT_SECONDS, limit=MOST_ANSWER_BYTES, body=body)
            return _TEXTS.decode(answer).text
        except (UpstreamFailure, msgspec.MsgspecError):
            return []


def _routed(found: KnownBeginning, size: int, estimated_tokens: int, block_tokens: int) -> RoutedPrompt:
    """A prompt known in part has, for the rest, as many tokens a byte as its beginning."""
    if found is NOTHING_KNOWN or not found.tokens:
        return RoutedPrompt(prompt_tokens=estimated_tokens)
    tokens = found.tokens if found.whole or not found.size else max(found.tokens + 1, round(size * found.tokens / found.size))
    return RoutedPrompt(prompt_tokens=tokens, engine_blocks=found.blocks[: (tokens - 1) // block_tokens])
