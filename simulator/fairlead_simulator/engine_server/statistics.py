"""What a simulated engine counts about itself: counters and histograms, all in engine time, as plain numbers.

The engine server shows them under vLLM's metric names; the offline simulator reads them directly.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
INTER_TOKEN_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TIME_PER_TOKEN_BUCKETS = (*INTER_TOKEN_BUCKETS[2:], 20.0, 40.0, 80.0)
TOKEN_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
REQUEST_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)


class Histogram:
    """Counts of observed seconds (or tokens) by upper bound (inclusive); the last count is of those above every bound."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times


@dataclass(slots=True, kw_only=True)
class EngineStatistics:
    """Totals since the engine started. Histograms hold seconds or tokens; `seconds_per_nanosecond` lets a sped-up engine show wall seconds."""

    seconds_per_nanosecond: float = 1e-9
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    """Those of `prompt_tokens` that the cache had."""
    generation_tokens: int = 0
    preemptions: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0))
    refused: int = 0
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    inter_token_latency: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN_BUCKETS))
    end_to_end: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    prefill_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    decode_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    time_per_output_token: Histogram = field(default_factory=lambda: Histogram(TIME_PER_TOKEN_BUCKETS))
    """Of each request the mean time between its tokens."""
    request_prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))
    request_generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))

    def observe(self, histogram: Histogram, nanoseconds: int, times: int = 1) -> None:
        """Count a duration of engine time."""
        histogram.observe(nanoseconds * self.seconds_per_nanosecond, times)
