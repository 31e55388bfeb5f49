"""Times that engines take to load KV blocks from cache tiers outside the GPU, as observed at first tokens.

    measured > declared > unknown

If a part of a prompt was in slow tiers, the time to its first token has two parts: loading that part, and computing the
tokens that were in no tier. The measured prefill speed predicts the time for computing; the remainder is the time for
loading. The figure is the median over the last loads, because one delayed engine step would distort a mean. While a
tier's time is unknown, its blocks count like blocks in the GPU. The engine loads them in any case, and only requests
that use them show the time for loading.
"""

from collections import deque
from statistics import median

from fairlead.capabilities import Figure, Source, declared
from fairlead.kv_events.sources import SLOW, Tier, TierCounts

KEPT_LOADS = 64
"""Number of loads kept for each tier. The tier's figure is their median."""
LEAST_LOADS = 3
"""Minimum number of observed loads for a tier's time to count as measured."""
LEAST_TOKENS = 256
"""Minimum number of loaded tokens. With fewer tokens, most of the measured time is the fixed time of an engine step."""
OF_ONE_TIER = 0.9
"""Minimum share (0-1) of the loaded tokens that must come from one tier. Otherwise the time is not recorded for this
tier.
"""


class LoadTimes:
    """Seconds per token to load from each tier in `SLOW`, over all instances of a pool."""

    def __init__(self) -> None:
        self._seen: dict[Tier, deque[float]] = {tier: deque(maxlen=KEPT_LOADS) for tier in SLOW}
        self._newest: dict[Tier, float] = {}
        self._declared: dict[Tier, float | None] = dict.fromkeys(SLOW)
        self._per_token: list[float | None] = [None] * len(SLOW)

    def declare(self, tier: Tier, tokens_per_second: float | None) -> None:
        """Set the declared speed at which a tier is loaded; None removes the declaration."""
        self._declared[tier] = tokens_per_second
        self._go_by_best(tier)

    def seconds(self, tokens: TierCounts) -> float:
        """Return the predicted seconds to load these numbers of tokens from their tiers. Tokens of tiers with an
        unknown time count as 0.
        """
        return sum(count * per_token for count, per_token in zip(tokens, self._per_token, strict=True) if per_token)

    def knows(self, tokens: TierCounts) -> bool:
        """Return whether the time is known for every tier that holds some of these tokens."""
        return all(per_token is not None for count, per_token in zip(tokens, self._per_token, strict=True) if count)

    def observe(self, tokens: TierCounts, seconds: float, now: float) -> None:
        """Record that these numbers of tokens were loaded in `seconds`; the time for computing is not included. The
        observation is ignored if the tokens are too few or come from several tiers.
        """
        loaded = sum(tokens)
        tier, most = max(zip(SLOW, tokens, strict=True), key=lambda one: one[1])
        if loaded < LEAST_TOKENS or most < OF_ONE_TIER * loaded:
            return
        self._seen[tier].append(max(0.0, seconds) / loaded)
        self._newest[tier] = now
        self._go_by_best(tier)

    def figure(self, tier: Tier, now: float) -> Figure:
        """Return the tokens per second that an engine loads from a tier. Unknown before enough loads, or if the loads
        are too short to measure.
        """
        seen = self._seen[tier]
        per_token = median(seen) if len(seen) >= LEAST_LOADS else 0.0
        if per_token <= 0:
            return declared(self._declared[tier])
        return Figure(value=1 / per_token, source=Source.MEASURED, samples=len(seen), age_seconds=max(0.0, now - self._newest[tier]))

    def forget_older(self, before: float) -> None:
        """Forget the times of tiers whose last load was before this time."""
        for tier in [tier for tier, newest in self._newest.items() if newest < before]:
            del self._newest[tier]
            self._seen[tier].clear()
            self._go_by_best(tier)

    def _go_by_best(self, tier: Tier) -> None:
        seen, speed = self._seen[tier], self._declared[tier]
        measured = median(seen) if len(seen) >= LEAST_LOADS else None
        self._per_token[SLOW.index(tier)] = measured if measured is not None or speed is None else 1 / speed
