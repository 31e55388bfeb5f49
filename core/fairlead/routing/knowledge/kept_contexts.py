"""Contexts worth keeping: the parts of each cache that belong to sessions whose next turn is likely.

While an agent's tool runs, the blocks of its session are not used, and other prompts on the same instance may evict
them. An eviction is costly if the session has another turn. The probability of another turn is estimated from the
pauses between turns in this pool (`next_turns`). The value of a context is its number of tokens times that probability,
or all its tokens while a turn runs. If a turn is placed on another instance, the context is counted there. If a turn
has a shorter prompt, the context shrinks. A context is forgotten when its instance has lost it. It needs no short time
limit, because its value falls while its session is silent for longer than the usual pauses.

The danger is work for sessions that never return. Therefore at most `MOST_CONTEXTS` contexts are followed, and they are
examined once a second.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.knowledge.next_turns import NextTurns

MOST_CONTEXTS = 20_000
"""Maximum number of contexts followed; beyond it, the context used longest ago is no longer followed."""
ENDED_SECONDS = 900.0
"""Seconds without a turn after which a session counts as ended in the statistics of pauses. Its context is then no
longer followed.
"""
LOOK_SECONDS = 1.0
"""Seconds between two examinations of all contexts."""


@dataclass(slots=True)
class _Context:
    """A session's context at the instance `home`: its number of tokens, the end of its last turn (`idle_since`), and
    the ids of running turns.
    """

    home: str
    tokens: int = 0
    idle_since: float = 0.0
    running: set[str] = field(default_factory=set)


class KeptContexts:
    """The contexts of a pool's sessions, by session name, as far as this router has observed their turns."""

    def __init__(self) -> None:
        self._turns = NextTurns()
        self._contexts: OrderedDict[str, _Context] = OrderedDict()
        self._kept: dict[str, float] = {}
        self._looked_at = 0.0

    def __len__(self) -> int:
        return len(self._contexts)

    def placed(self, session: str, request_id: str, instance: str, tokens: int, now: float) -> None:
        """Record that a turn with a prompt of this many tokens is sent to the instance. Call again if the turn is sent
        to another instance before it ends.
        """
        context = self._contexts.get(session)
        if context is None:
            context = self._contexts[session] = _Context(instance)
        else:
            if not context.running:
                self._turns.came(max(0.0, now - context.idle_since))
            self._add(context, -context.tokens * self._likelihood(context, now))
            self._contexts.move_to_end(session)
        context.home, context.tokens = instance, tokens
        context.running.add(request_id)
        self._add(context, tokens)
        if len(self._contexts) > MOST_CONTEXTS:
            self._contexts.popitem(last=False)

    def ended(self, session: str, request_id: str, answer_tokens: int, now: float) -> None:
        """Record that the turn ended with an answer of this many tokens; 0 if it got no answer. Unknown turns are
        ignored.
        """
        context = self._contexts.get(session)
        if context is None or request_id not in context.running:
            return
        context.running.remove(request_id)
        context.tokens += answer_tokens
        self._add(context, answer_tokens)
        context.idle_since = now

    def lost(self, instance: str) -> None:
        """Forget the contexts at an instance that is gone or that lost its cache."""
        for session in [session for session, context in self._contexts.items() if context.home == instance]:
            del self._contexts[session]
        self._kept.pop(instance, None)

    def tokens_at(self, instances: Sequence[str], now: float) -> FloatVector:
        """Return, for each instance, the sum of its contexts in tokens. Each context is multiplied by the likelihood
        that its session has another turn.
        """
        if now - self._looked_at >= LOOK_SECONDS:
            self._look(now)
        kept = self._kept
        return np.array([kept.get(instance, 0.0) for instance in instances])

    def _look(self, now: float) -> None:
        """Compute the weighted tokens of all contexts again with the present likelihoods, and stop following sessions
        that have ended.
        """
        self._looked_at = now
        self._kept = {}
        likelihoods: dict[int, float] = {}
        ended: list[str] = []
        for session, context in self._contexts.items():
            idle = now - context.idle_since
            if context.running:
                self._add(context, context.tokens)
            elif idle >= ENDED_SECONDS:
                ended.append(session)
            else:
                second = int(idle)
                if second not in likelihoods:
                    likelihoods[second] = self._turns.likelihood(max(0.0, idle))
                self._add(context, context.tokens * likelihoods[second])
        for session in ended:
            self._turns.ended(now - self._contexts.pop(session).idle_since)

    def _likelihood(self, context: _Context, now: float) -> float:
        return 1.0 if context.running else self._turns.likelihood(max(0.0, now - context.idle_since))

    def _add(self, context: _Context, tokens: float) -> None:
        self._kept[context.home] = max(0.0, self._kept.get(context.home, 0.0) + tokens)
