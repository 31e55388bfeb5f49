"""Prefixes that many sessions share are copied to instances that lack them, where the scheduler finds that this pays
(`fairlead.routing.scheduling.copying`).

The kept prompt of a session carries its prefix: its holder names the blocks, the target fetches them, as when a session
moves (`cache_moves`), and neither is asked for more. Nobody waits for it, and nothing is computed if it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fairlead.routing.contracts.copies import PrefixCopy
from fairlead_router.pools.kept_prompts import KeptPrompt, KeptPrompts
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.relaying.cache_moves import CacheMoves, prompt_to_move
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.heirs import call_again

LOOK_SECONDS = 1.0


class PrefixCopies:
    """Makes the copies that are due, one at a time for each pool. `now` is the router's clock in Unix seconds."""

    def __init__(
        self, pools: Pools, calls: Calls, moves: CacheMoves, prompts: KeptPrompts, is_ending: Callable[[], bool], now: Callable[[], float]
    ) -> None:
        self._pools = pools
        self._calls = calls
        self._moves = moves
        self._prompts = prompts
        self._is_ending = is_ending
        self._now = now
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """By the copy's id."""

    async def look(self) -> None:
        """Begin what is due; runs every LOOK_SECONDS."""
        for name in [name for name, task in self._under_way.items() if task.done()]:
            self._under_way.pop(name).result()
        for pool in self._pools.all():
            if pool.table.engine.copies_prefixes and not self._is_ending():
                self._look(pool)

    def _look(self, pool: Pool) -> None:
        copy = pool.scheduler.copy_due(self._prompts.newest(pool.key), self._now())
        if copy is not None:
            kept = next(one for one in self._prompts.newest(pool.key) if one.request.id == copy.request.id)
            self._under_way[copy.id] = asyncio.create_task(self._copy(pool, copy, kept), name=copy.id)

    async def _copy(self, pool: Pool, copy: PrefixCopy, kept: KeptPrompt) -> None:
        prompt = prompt_to_move(call_again(self._calls, kept, self._now(), pool))
        found = await self._moves.move(pool, prompt, copy.source, copy.target, copy.longest_seconds)
        tokens = min(found.tokens, copy.source_tokens - copy.target_tokens)
        size = pool.engines.kv_bytes_per_token
        transfer = replace(found, tokens=tokens, bytes=round(tokens * size) if tokens and size else None)
        pool.scheduler.copied(copy, transfer, self._now())
        pool.judge_handovers(copy.source)
