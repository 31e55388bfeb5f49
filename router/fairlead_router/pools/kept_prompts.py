"""Keeps the last prompt of each session as its engine got it, so that another instance can compute the prompt in
advance when the session's instance leaves.

Prompts are kept only in this process's memory, at most `most_bytes` in total; the least recently used prompts are
dropped first. No prompt is kept for a pool without hand-over (`spec.routing.handOverBudget: 0`).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.next_turns import Leaving, NextTurns, Worth, ranked
from fairlead.tables import PoolKey
from fairlead_router.protocols.dialects import Dialect

IDLE_SECONDS = 3600.0
"""Seconds without a turn after which a session's prompt is dropped."""
_OVERHEAD_BYTES = 2048
"""Bytes of memory that a kept prompt takes in addition to its body and its block keys."""
MOST_RANKED = 500
"""Maximum number of sessions that `worths` ranks at once; the most recently used sessions are taken. Ranking all
sessions of a full memory would take a tenth of a second.
"""
_BLOCK_BYTES = 56
"""Bytes of memory for each block of a prompt: its key (64 bits) and its entry in a tuple."""


class KeptPrompt:
    """The last request of a session as its engine got it, and the target that computed it (`instance`)."""

    __slots__ = ("at", "began", "body", "bytes", "dialect", "given_up", "head", "instance", "is_fetchable", "key", "model", "request")

    def __init__(self, request: RoutingRequest, head: bytes, body: bytes, dialect: Dialect, model: str, instance: str, at: float) -> None:
        self.request = request
        self.head = head
        self.body = body
        self.dialect = dialect
        self.model = model
        self.instance = instance
        self.at = at
        self.began = at
        """The time at which the first kept turn of the session was served."""
        self.given_up = False
        """Whether the prompt is no longer offered to other instances."""
        self.is_fetchable = True
        """Whether another instance may try to fetch the prompt's KV blocks from `instance`; False after a failed
        attempt.
        """
        self.key = request.session or f"\0{request.blocks[-1]:x}"
        """The session's name. A session without a name gets one from the prompt's last block, because its next turn
        begins with the same prompt.
        """
        blocks = len(request.blocks) + len(request.engine_blocks)
        self.bytes = len(body) + len(head) + _BLOCK_BYTES * blocks + _OVERHEAD_BYTES
        """Bytes of memory that the kept prompt takes."""


class _Sessions:
    """The kept prompts of one pool by session. The least recently used prompt comes first."""

    def __init__(self) -> None:
        self.prompts: OrderedDict[str, KeptPrompt] = OrderedDict()
        self.turns = NextTurns()

    def before(self, prompt: KeptPrompt) -> KeptPrompt | None:
        """Remove and return the kept prompt of the previous turn of this prompt's session; None if there is none."""
        if prompt.request.session is not None:
            return self.prompts.pop(prompt.key, None)
        for block in reversed(prompt.request.blocks):
            found = self.prompts.pop(f"\0{block:x}", None)
            if found is not None:
                return found
        return None


class KeptPrompts:
    """The kept prompts of all pools, at most `most_bytes` of memory in total."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._pools: defaultdict[PoolKey, _Sessions] = defaultdict(_Sessions)
        self.bytes = 0

    def keep(self, pool: PoolKey, prompt: KeptPrompt) -> None:
        """Keep the prompt of a served turn in place of the prompt of the same session's previous turn."""
        sessions = self._pools[pool]
        before = sessions.before(prompt)
        if before is not None:
            self.bytes -= before.bytes
            sessions.turns.came(max(0.0, prompt.at - before.at))
            prompt.began = before.began
        if prompt.bytes > self._most:
            return
        sessions.prompts[prompt.key] = prompt
        self.bytes += prompt.bytes
        while self.bytes > self._most:
            oldest = min((one for one in self._pools.values() if one.prompts), key=lambda one: next(iter(one.prompts.values())).at)
            self._end(oldest, prompt.at)

    def expire(self, now: float) -> None:
        """Drop the prompts of sessions that have had no turn for IDLE_SECONDS."""
        for sessions in self._pools.values():
            while sessions.prompts and now - next(iter(sessions.prompts.values())).at >= IDLE_SECONDS:
                self._end(sessions, now)

    def _end(self, sessions: _Sessions, now: float) -> None:
        _, prompt = sessions.prompts.popitem(last=False)
        self.bytes -= prompt.bytes
        sessions.turns.ended(max(0.0, now - prompt.at))

    def keep_only(self, pools: Collection[PoolKey]) -> None:
        """Drop the prompts of all pools that are not among `pools`, because they were deleted."""
        for pool in self._pools.keys() - set(pools):
            self.forget(pool)

    def forget(self, pool: PoolKey) -> None:
        """Drop all prompts of this pool."""
        sessions = self._pools.pop(pool, None)
        if sessions is not None:
            self.bytes -= sum(prompt.bytes for prompt in sessions.prompts.values())

    def of(self, pool: PoolKey) -> Iterator[KeptPrompt]:
        """Yield the pool's prompts, the least recently used first."""
        return iter(self._pools[pool].prompts.values() if pool in self._pools else ())

    def newest(self, pool: PoolKey) -> Iterator[KeptPrompt]:
        """Yield the pool's prompts, the most recently used first."""
        return reversed(self._pools[pool].prompts.values() if pool in self._pools else ())

    def worths(
        self,
        pool: PoolKey,
        instances: Collection[str],
        now: float,
        is_next: Callable[[KeptPrompt], bool] = lambda prompt: True,
        *,
        fetched: bool = False,
    ) -> list[tuple[Worth, KeptPrompt]]:
        """Return the most recently used prompts of sessions at these targets for which `is_next` holds, with their
        worth, in the order of their worth.

        The worth is the computation that a copy of the prompt saves, relative to the cost of the copy. `fetched`:
        whether the copy is fetched, so that its cost is the same for all prompts.
        """
        at = (prompt for prompt in self.newest(pool) if prompt.instance in instances and not prompt.given_up)
        found_here = filter(is_next, at)
        here = {prompt.key: prompt for prompt in islice(found_here, MOST_RANKED)}
        found = (Leaving(name=key, tokens=one.request.prompt_tokens, idle_seconds=now - one.at) for key, one in here.items())
        return [(worth, here[worth.session.name]) for worth in ranked(found, self._pools[pool].turns, fetched=fetched)] if here else []
