"""Finds the keys of a prompt's KV blocks from the prompt's known tokens, and asks an engine to tokenize a prompt with
unknown tokens.

Only pools whose engines send KV events need these keys. No request waits for an engine to tokenize it: routing uses the
tokens that are known when the request arrives, and the router's own history for the rest of the prompt. Meanwhile an
engine tokenizes the prompt, so that the tokens are known for the next prompt with the same beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from fairlead.kv_events.block_keys import block_keys
from fairlead.values import value
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.engines.upstream_connections import UpstreamFailure
from fairlead_router.kv_events.known_prompts import NOTHING_KNOWN, KnownBeginning, KnownPrompts, PromptText
from fairlead_router.kv_events.prompt_questions import Asked, Disputed, PromptQuestions
from fairlead_router.kv_events.prompt_texts import CHAT, COMPLETIONS, RENDERINGS, Question, has_billing_line, question, questions, token_ids
from fairlead_router.pools.pool import Pool

KNOWN_ENOUGH = 0.95
"""Known share of a prompt's bytes from which the router does not ask an engine to tokenize the prompt. llm-d's prefix
store uses 0.8. An agent adds little text with each turn, so with 0.8 up to a fifth of the cached blocks would be
missing from the known part.
"""

AT_ONCE = 4
"""Maximum number of prompts of one pool that engines tokenize at the same time. Further prompts are not tokenized."""

MOST_DISPUTES, DISPUTED_SECONDS = 5, 60.0
"""The number of disputes in a row on a URL path after which no prompt of that path is tokenized, and the seconds for
which this lasts. A dispute: the number of tokens that an engine counts for a request differs from the tokenization.
"""

logger = logging.getLogger(__name__)


@value
class RoutedPrompt:
    """A prompt for routing: its number of tokens, and the keys of its known blocks."""

    prompt_tokens: int
    engine_blocks: tuple[int, ...] = ()


class _Asking:
    """The state of asking one pool's engines to tokenize prompts."""

    __slots__ = ("disputed_until", "disputes", "known", "rendering", "rendering_seen", "tasks")

    def __init__(self, block_tokens: int) -> None:
        self.known = KnownPrompts(block_tokens)
        self.tasks: dict[PromptText, asyncio.Task[None]] = {}
        self.rendering = RENDERINGS[0]
        self.rendering_seen = False
        """Whether an engine was observed to render prompts according to `rendering`. Before that, `rendering` is an
        assumption.
        """
        self.disputes: Counter[str] = Counter()
        """Number of disputes in a row, by URL path (see `dispute`)."""
        self.disputed_until: dict[str, float] = {}
        """By URL path: the Unix time until which no engine is asked to tokenize prompts of this path, because of
        disputes.
        """

    def dispute(self, path: str, now: float) -> None:
        """Record a dispute about a request of this path. After `MOST_DISPUTES` in a row, stop tokenizing prompts of the
        path for `DISPUTED_SECONDS`.
        """
        self.disputes[path] += 1
        if self.disputes[path] >= MOST_DISPUTES:
            self.disputes[path], self.disputed_until[path] = 0, now + DISPUTED_SECONDS


class PromptTokens:
    """Remembers the tokens of tokenized prompts of all pools. `now` is the router's clock in Unix seconds."""

    def __init__(self, upstream: UpstreamPool, now: Callable[[], float]) -> None:
        self._questions = PromptQuestions(upstream, now)
        self._now = now
        self._asking: WeakKeyDictionary[Pool, _Asking] = WeakKeyDictionary()

    def of(self, pool: Pool, path: str, document: Mapping[str, Any], estimated_tokens: int, adapter: str | None = None) -> RoutedPrompt:
        """Return the prompt with its tokens that are known now, for the pool's model or an `adapter`. If too few of
        them are known, it asks an engine to tokenize the prompt, and does not wait for the result.
        """
        caches = pool.scheduler.caches
        if not caches.heard or not caches.block_tokens:
            return RoutedPrompt(prompt_tokens=estimated_tokens)
        ids = token_ids(path, document)
        if ids is not None:
            return self._of_ids(pool, ids, document.get("cache_salt"), estimated_tokens, adapter)
        asking = self._of_pool(pool)
        asked = question(path, document, adapter, asking.rendering) if _is_askable(pool, path, document) else None
        if asked is None:
            pool.counters.known_prompts["unaskable"] += 1
            return RoutedPrompt(prompt_tokens=estimated_tokens)
        prompt = asked.prompt
        found = asking.known.find(prompt)
        if not found.whole and found.size < KNOWN_ENOUGH * prompt.size:
            self._ask(pool, asking, asked, path, document)
        pool.counters.known_prompts["whole" if found.whole else "partly" if found.blocks else "unknown"] += 1
        return _routed(found, prompt.size, estimated_tokens, caches.block_tokens, asking.known.tail_tokens)

    def asks(self, pool: Pool) -> int:
        """Return the number of the pool's prompts that are being tokenized."""
        return len(self._of_pool(pool).tasks)

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

    def _ask(self, pool: Pool, asking: _Asking, asked: Question, path: str, document: Mapping[str, Any]) -> None:
        now, prompt = self._now(), asked.prompt
        instance = pool.choice.least_loaded((), now)
        if prompt in asking.tasks or instance is None or now < asking.disputed_until.get(path, 0.0):
            return
        if len(asking.tasks) >= AT_ONCE:
            pool.counters.tokenizing["crowded-out"] += 1
            return
        request = Asked(
            address=pool.addresses[instance],
            engine_type=pool.table.engine.type,
            model=prompt.adapter or pool.table.model,
            path=path,
            document=document,
        )
        task = asyncio.get_running_loop().create_task(self._learn(pool, asking, request, prompt.adapter))
        asking.tasks[prompt] = task
        task.add_done_callback(lambda _: asking.tasks.pop(prompt, None))

    async def _learn(self, pool: Pool, asking: _Asking, request: Asked, adapter: str | None) -> None:
        outcome = "failed"
        try:
            possible = questions(request.path, request.document, adapter, asking.rendering)
            answer = await self._questions.answer(request, possible, first_is_usual=asking.rendering_seen)
            await asyncio.sleep(0)
            asking.disputes[request.path] = 0
            if len(possible) > 1:
                asking.rendering, asking.rendering_seen = answer.question.rendering, True
            outcome = "learnt" if asking.known.learn(answer.question.prompt, answer.tokens, answer.strings) else "unaligned"
        except Disputed as dispute:
            outcome = "disputed"
            asking.dispute(request.path, self._now())
            logger.warning("prompt not tokenized", extra={"pool": str(pool.key), "path": request.path, "error": str(dispute)})
        except (UpstreamFailure, msgspec.MsgspecError, OverflowError) as failure:
            logger.debug("prompt not tokenized", extra={"pool": str(pool.key), "address": request.address, "error": str(failure)})
        finally:
            pool.counters.tokenizing[outcome] += 1


def _is_askable(pool: Pool, path: str, document: Mapping[str, Any]) -> bool:
    """Return whether the pool's engines render the request in the way that `question` assumes. For SGLang this is known
    only for requests that can be rendered in a single way.
    """
    if pool.table.engine.type != "sglang" or path == COMPLETIONS:
        return True
    given = any(document.get(field) is not None for field in ("reasoning_effort", "documents"))
    return path == CHAT and not given and not has_billing_line(document)


def _routed(found: KnownBeginning, size: int, estimated_tokens: int, block_tokens: int, tail_tokens: int) -> RoutedPrompt:
    """Return the prompt for routing. Its unknown part is assumed to have as many tokens per byte as its known
    beginning. The tokens that the template adds at the end of every prompt are included.
    """
    if found is NOTHING_KNOWN or not found.tokens:
        return RoutedPrompt(prompt_tokens=estimated_tokens)
    tokens = found.tokens if found.whole or not found.size else round(size * found.tokens / found.size) + max(1, tail_tokens)
    return RoutedPrompt(prompt_tokens=tokens, engine_blocks=found.blocks[: (tokens - 1) // block_tokens])
