"""What an engine can do, and how well that is known: the one home of speeds, sizes and start times.

    measured > fitted > declared > unknown

A figure of a better source replaces one of a worse source. Only what was observed, on this pool's own instances or by
a fit to its own requests, may refuse a request, move a session or scale a pool. A declared figure, or a guess in place
of an unknown one, may order choices, which costs little where it is wrong and teaches the right figure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite


class Source(StrEnum):
    """Where a figure comes from, the best first."""

    MEASURED = "measured"
    """Observed on the pool's own instances, of late."""
    FITTED = "fitted"
    """By an engine model whose constants were fitted to recorded requests."""
    DECLARED = "declared"
    """The pool's spec says so."""
    UNKNOWN = "unknown"


_RANKS = {source: rank for rank, source in enumerate(Source)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quantiles of what was observed, in the figure's unit."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of an engine. `value` is None exactly when its source is unknown.

    `samples` observations made it, the newest of them `age_seconds` ago; 0 and None where nothing was observed.
    """

    value: float | None = None
    source: Source = Source.UNKNOWN
    spread: Spread | None = None
    samples: int = 0
    age_seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.source is Source.UNKNOWN):
            raise ValueError(f"a figure of source {self.source} has the value {self.value}")

    @property
    def is_observed(self) -> bool:
        """Whether it may refuse, move or scale."""
        return self.source in (Source.MEASURED, Source.FITTED)

    @property
    def observed(self) -> float | None:
        """The value, if it was observed."""
        return self.value if self.is_observed else None


UNKNOWN = Figure()


def declared(value: float | None) -> Figure:
    """What the spec says; unknown where it says nothing."""
    return UNKNOWN if value is None else Figure(value=value, source=Source.DECLARED)


def best(*figures: Figure) -> Figure:
    """The figure of the best source; of equal sources the first. Unknown where there is none."""
    return min(figures, key=lambda figure: _RANKS[figure.source], default=UNKNOWN)


def spread_of(weighed: Iterable[tuple[float, float]]) -> Spread | None:
    """The quantiles of values, each with its weight; None without a finite value of positive weight.

    For example, prefill seconds per token weighed by tokens: half of all tokens took at most `p50` each.
    """
    kept = sorted((value, weight) for value, weight in weighed if isfinite(value) and weight > 0)
    if not kept:
        return None
    total = sum(weight for _, weight in kept)
    return Spread(p10=_quantile(kept, 0.1 * total), p50=_quantile(kept, 0.5 * total), p90=_quantile(kept, 0.9 * total))


def _quantile(ordered: list[tuple[float, float]], below: float) -> float:
    summed = 0.0
    for value, weight in ordered:
        summed += weight
        if summed >= below:
            return value
    return ordered[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapability:
    """What one instance can do. Figures are of the pool's instances together, or of one of them."""

    prefill_tokens_per_second: Figure = UNKNOWN
    """Uncached prompt tokens that an instance computes per second while it computes any."""
    decode_step_seconds: Figure = UNKNOWN
    """An output token after the first, as one request gets it."""
    bytes_per_token: Figure = UNKNOWN
    """Of prompt text."""
    kv_cache_tokens: Figure = UNKNOWN
    start_seconds: Figure = UNKNOWN
    """From the creation of an instance until it serves."""
