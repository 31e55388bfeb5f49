"""How long engines take to load KV blocks from the tiers outside the GPU, as observed at first tokens.

    measured > declared > unknown

A first token whose prompt was held in slow tiers took the time to compute what was not held, and the time to load the
rest; computing is predicted by the measured prefill speed, so what remains is the load. The median over the last ones
counts, as one engine step that was held up would spoil a mean. While a tier is unknown its blocks count like the GPU's:
the engine loads them whatever a router thinks of it, and only requests that are sent to them show how long it takes.
"""

from collections import deque
from statistics import median

from fairlead.capabilities import Figure, Source, declared
from fairlead.kv_events.sources import SLOW, Tier, TierCounts

KEPT_LOADS = 64
"""Loads of each tier that its figure rests on."""
LEAST_LOADS = 3
"""Loads after which a tier's time counts as measured."""
LEAST_TOKENS = 256
"""Fewer loaded tokens say more about a step's fixed time than about the load."""
OF_ONE_TIER = 0.9
"""Share of the loaded tokens that must come from one tier for the time to be this tier's."""


class LoadTimes:
    """Seconds per token of each tier in `SLOW`, over all instances of a pool."""

    def __init__(self) -> None:
        self._seen: dict[Tier, deque[float]] = {tier: deque(maxlen=KEPT_LOADS) for tier in SLOW}
        self._newest: dict[Tier, float] = {}
        self._declared: dict[Tier, float | None] = dict.fromkeys(SLOW)
        self._per_token: list[float | None] = [None] * len(SLOW)

    def declare(self, tier: Tier, tokens_per_second: float | None) -> None:
        """The pool declares how fast a tier is loaded from; None takes that back."""
        self._declared[tier] = tokens_per_second
        self._go_by_best(tier)

    def seconds(self, tokens: TierCounts) -> float:
        """Predicted seconds to load this many tokens from each tier; nothing for those of unknown tiers."""
        return sum(count * per_token for count, per_token in zip(tokens, self._per_token, strict=True) if per_token)

    def knows(self, tokens: TierCounts) -> bool:
        """Whether the time of every tier that holds some of these is known."""
        return all(per_token is not None for count, per_token in zip(tokens, self._per_token, strict=True) if count)

    def observe(self, tokens: TierCounts, seconds: float, now: float) -> None:
        """This many tokens were loaded within `seconds`, what was computed left out. Too few tokens, and those of
        several tiers, say nothing.
        """
        loaded = sum(tokens)
        tier, most = max(zip(SLOW, tokens, strict=True), key=lambda one: one[1])
        if loaded < LEAST_TOKENS or most < OF_ONE_TIER * loaded:
            return
        self._seen[tier].append(max(0.0, seconds) / loaded)
        self._newest[tier] = now
        self._go_by_best(tier)

    def figure(self, tier: Tier, now: float) -> Figure:
        """Tokens per second that an engine loads from a tier; unknown too where loads are too short to be seen."""
        seen = self._seen[tier]
        per_token = median(seen) if len(seen) >= LEAST_LOADS else 0.0
        if per_token <= 0:
            return declared(self._declared[tier])
        return Figure(value=1 / per_token, source=Source.MEASURED, samples=len(seen), age_seconds=max(0.0, now - self._newest[tier]))

    def forget_older(self, before: float) -> None:
        """Forget the tiers that were loaded from last before then."""
        for tier in [tier for tier, newest in self._newest.items() if newest < before]:
            del self._newest[tier]
            self._seen[tier].clear()
            self._go_by_best(tier)

    def _go_by_best(self, tier: Tier) -> None:
        seen, speed = self._seen[tier], self._declared[tier]
        measured = median(seen) if len(seen) >= LEAST_LOADS else None
        self._per_token[SLOW.index(tier)] = measured if measured is not None or speed is None else 1 / speed
