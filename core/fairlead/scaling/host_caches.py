"""What a cache in engines' host memory would add to a pool's hits, and whether a simulation finds as much."""

from dataclasses import dataclass

TOLERANCE = 0.03
"""Share of hits by which a prediction may miss the simulation beyond its error: running requests, which take room from
GPUs, and prefixes at several instances are in the simulation only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCache:
    """A cache of `tokens` in the host memory of each instance. `predicted` is the share of prompt tokens that it adds
    to the hits, in nineteen of twenty cases within `error`; `simulated` what a simulation adds, None if there was none.
    """

    tokens: int
    predicted: float
    error: float
    simulated: float | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether the simulation finds as much, within the error."""
        return self.simulated is not None and abs(self.predicted - self.simulated) <= self.error + TOLERANCE

    def size_words(self, kv_bytes: float | None) -> str:
        """Its size; `kv_bytes` are those of a token in the KV cache, None if unknown."""
        return f"{self.tokens:,} tokens" if kv_bytes is None else f"{self.tokens * kv_bytes / 1e9:,.0f} GB"
