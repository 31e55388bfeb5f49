"""The share of hits that a cache in engines' host memory would add to a pool, and whether a simulation confirms the
prediction.
"""

from dataclasses import dataclass

TOLERANCE = 0.03
"""Share of hits by which a prediction may differ from the simulation beyond its error. Only the simulation includes
running requests, which take room from GPUs, and prefixes held at several instances.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCache:
    """A cache of `tokens` in the host memory of each instance. `predicted` is the share of prompt tokens that the cache
    adds to the hits, within `error` in nineteen of twenty cases; `simulated` is the share that a simulation adds, None
    without a simulation.
    """

    tokens: int
    predicted: float
    error: float
    simulated: float | None = None

    @property
    def is_confirmed(self) -> bool:
        """Return whether the simulated share of hits differs from the predicted share by no more than its error."""
        return self.simulated is not None and abs(self.predicted - self.simulated) <= self.error + TOLERANCE

    def size_words(self, kv_bytes: float | None) -> str:
        """Return the cache's size in words. `kv_bytes` is the number of bytes that a token takes in the KV cache, None
        if unknown.
        """
        return f"{self.tokens:,} tokens" if kv_bytes is None else f"{self.tokens * kv_bytes / 1e9:,.0f} GB"
