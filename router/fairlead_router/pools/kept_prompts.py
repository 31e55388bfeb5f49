"""The last prompt of each session, as its client sent it, to be computed elsewhere when its instance leaves.

They are in this process's memory and nowhere else, at most `most_bytes` of them, the longest unused ones go first. What
a pool does not hand over (`spec.routing.handOverBudget: 0`) is not kept.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator
from itertools import islice

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.knowledge.next_turns import Leaving, NextTurns, Worth, ranked
from fairlead.tables import PoolKey
from fairlead_router.protocols.dialects import Dialect

IDLE_SECONDS = 3600.0
"""A session without a turn for this time is given up."""
_OVERHEAD_BYTES = 2048
"""Memory that a prompt takes beside its body, without its blocks."""
MOST_RANKED = 500
"""Sessions that are compared at once, those used last: all of a full memory would take a tenth of a second."""
_BLOCK_BYTES = 56
"""Memory of the key of a block, a whole number of 64 bits, and of its place in a tuple."""


class KeptPrompt:
    """A session's last request: what its engine got, and the target that computed it."""

    __slots__ = ("at", "body", "dialect", "given_up", "head", "instance", "key", "model", "request")

    def __init__(self, request: RoutingRequest, head: bytes, body: bytes, dialect: Dialect, model: str, instance: str, at: float) -> None:
        self.request = request
        self.head = head
        self.body = body
        self.dialect = dialect
        self.model = model
        self.instance = instance
        self.at = at
        self.given_up = False
        """Whether no other instance computed it when it was asked to."""
        self.key = request.session or f"\0{request.blocks[-1]:x}"
        """The session's name, or else its prompt: the next turn begins with it."""

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        blocks = len(self.request.blocks) + len(self.request.engine_blocks)
        return len(self.body) + len(self.head) + _BLOCK_BYTES * blocks + _OVERHEAD_BYTES


class _Sessions:
    """Those of one pool, the longest unused first."""

    def __init__(self) -> None:
        self.prompts: OrderedDict[str, KeptPrompt] = OrderedDict()
        self.turns = NextTurns()

    def before(self, prompt: KeptPrompt) -> KeptPrompt | None:
        """The turn before this one; taken out."""
        if prompt.request.session is not None:
            return self.prompts.pop(prompt.key, None)
        for block in reversed(prompt.request.blocks):
            found = self.prompts.pop(f"\0{block:x}", None)
            if found is not None:
                return found
        return None


class KeptPrompts:
    """Of all pools, at most `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._pools: defaultdict[PoolKey, _Sessions] = defaultdict(_Sessions)
        self.bytes = 0

    def keep(self, pool: PoolKey, prompt: KeptPrompt) -> None:
        """A turn was served: it takes the place of the one before."""
        sessions = self._pools[pool]
        before = sessions.before(prompt)
        if before is not None:
            self.bytes -= before.bytes
            sessions.turns.came(max(0.0, prompt.at - before.at))
        if prompt.bytes > self._most:
            return
        sessions.prompts[prompt.key] = prompt
        self.bytes += prompt.bytes
        while self.bytes > self._most:
            oldest = min((one for one in self._pools.values() if one.prompts), key=lambda one: next(iter(one.prompts.values())).at)
            self._end(oldest, prompt.at)

    def expire(self, now: float) -> None:
        """Give up sessions that are idle for too long."""
        for sessions in self._pools.values():
            while sessions.prompts and now - next(iter(sessions.prompts.values())).at >= IDLE_SECONDS:
                self._end(sessions, now)

    def _end(self, sessions: _Sessions, now: float) -> None:
        _, prompt = sessions.prompts.popitem(last=False)
        self.bytes -= prompt.bytes
        sessions.turns.ended(max(0.0, now - prompt.at))

    def keep_only(self, pools: Collection[PoolKey]) -> None:
        """Keep nothing of others, which are deleted."""
        for pool in self._pools.keys() - set(pools):
            self.forget(pool)

    def forget(self, pool: PoolKey) -> None:
        """Keep nothing of this pool any more."""
        sessions = self._pools.pop(pool, None)
        if sessions is not None:
            self.bytes -= sum(prompt.bytes for prompt in sessions.prompts.values())

    def of(self, pool: PoolKey) -> Iterator[KeptPrompt]:
        """The pool's prompts."""
        return iter(self._pools[pool].prompts.values() if pool in self._pools else ())

    def worths(self, pool: PoolKey, instances: Collection[str], now: float, *, fetched: bool = False) -> list[tuple[Worth, KeptPrompt]]:
        """The sessions at these targets that were used last, those first whose prompts spare the most for what they
        cost, which is the same for all that are `fetched`.
        """
        newest = reversed(self._pools[pool].prompts.values() if pool in self._pools else ())
        found_here = (prompt for prompt in newest if prompt.instance in instances and not prompt.given_up)
        here = {prompt.key: prompt for prompt in islice(found_here, MOST_RANKED)}
        found = (Leaving(name=key, tokens=one.request.prompt_tokens, idle_seconds=now - one.at) for key, one in here.items())
        return [(worth, here[worth.session.name]) for worth in ranked(found, self._pools[pool].turns, fetched=fetched)] if here else []
