"""Counters of a served engine as plain numbers. The engine's metrics publish them under vLLM's names."""

from bisect import bisect_left
from dataclasses import dataclass, field

from fairlead_simulator.engine_server.requests import Generation

TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
TRANSFER_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
TRANSFER_BYTES_BUCKETS = tuple(2.0 ** (10 + exponent) for exponent in range(1, 25, 2))
INTER_TOKEN_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TIME_PER_TOKEN_BUCKETS = (*INTER_TOKEN_BUCKETS[2:], 20.0, 40.0, 80.0)
TOKEN_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
REQUEST_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)


class Histogram:
    """The numbers of observed values (seconds or tokens) by bucket. A bucket includes its upper bound. The last bucket
    has the values above all bounds.
    """

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
    """Totals of an engine since its start. The engine model updates them by calling this observer. Histograms are over
    tokens, bytes or seconds.

    `wall_seconds` is the real duration in seconds of one second of engine time. It makes the metrics of a sped-up
    engine show the times that clients observe.
    """

    wall_seconds: float = 1.0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    """Number of the `prompt_tokens` that were cached in this engine or fetched from another engine."""
    prompt_tokens_external: int = 0
    """The number of prompt tokens whose blocks were fetched from another engine."""
    transfers_failed: int = 0
    transfers_expired: int = 0
    """Number of prompts whose held blocks were not fetched in time."""
    transfer_time: Histogram = field(default_factory=lambda: Histogram(TRANSFER_BUCKETS))
    transfer_bytes: Histogram = field(default_factory=lambda: Histogram(TRANSFER_BYTES_BUCKETS))
    generation_tokens: int = 0
    preemptions: int = 0
    ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0))
    refused: int = 0
    time_to_first_token: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    inter_token_latency: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN_BUCKETS))
    end_to_end: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    queue_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    prefill_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    decode_time: Histogram = field(default_factory=lambda: Histogram(REQUEST_BUCKETS))
    time_per_output_token: Histogram = field(default_factory=lambda: Histogram(TIME_PER_TOKEN_BUCKETS))
    """Histogram over requests of the mean time between the request's tokens."""
    request_prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))
    request_generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_BUCKETS))

    _fresh: dict[Generation, None] = field(default_factory=dict)
    """Decoding requests that have no decoded token yet, so that their last token is from their prefill. Used as an
    ordered set.
    """
    _last_decode_at: float = 0.0

    def admitted(self, request: Generation, now: float) -> None:
        """Record that the prompt was looked up in the cache, and that the request no longer waits in the queue."""
        self.prefix_queries_tokens += request.context_tokens
        self.prefix_hits_tokens += request.hit_tokens - request.external_tokens
        self._observe(self.queue_time, now - request.arrived_at)

    def transferred(self, seconds: float, size: int) -> None:
        """Record a transfer of KV blocks from another engine to this one: its duration in seconds and its size in
        bytes.
        """
        self._observe(self.transfer_time, seconds)
        self.transfer_bytes.observe(size)

    def prefilled(self, request: Generation, now: float) -> None:
        """Record that a prefill produced the request's first token or, after a preemption, its next token."""
        self.generation_tokens += not request.pooled
        if request.first_token_at < 0:
            self.prompt_tokens += request.input_tokens
            self.prompt_tokens_cached += request.hit_tokens
            self.prompt_tokens_external += request.external_tokens
            self._observe(self.time_to_first_token, now - request.arrived_at)
            self._observe(self.prefill_time, now - request.admitted_at)
        else:
            self._observe(self.inter_token_latency, now - request.last_token_at)
        request.last_token_at = now
        if request.generated < request.output_tokens:
            self._fresh[request] = None

    def decoded(self, sequences: int, steps: int, first_end: float, last_end: float) -> None:
        """Record the times between tokens in a run of decode steps. The time before the run's first step may include
        prefills. The times of all later steps are recorded as their mean.
        """
        self.generation_tokens += steps * sequences
        for request in self._fresh:
            self._observe(self.inter_token_latency, first_end - request.last_token_at)
        older = sequences - len(self._fresh)
        if older:
            self._observe(self.inter_token_latency, first_end - self._last_decode_at, older)
        if steps > 1:
            self._observe(self.inter_token_latency, (last_end - first_end) / (steps - 1), (steps - 1) * sequences)
        self._fresh.clear()
        self._last_decode_at = last_end

    def stopped_decoding(self, request: Generation) -> None:
        """Record that the request leaves the decode batch, and store the time of its last token in the request."""
        if request in self._fresh:
            del self._fresh[request]
        else:
            request.last_token_at = self._last_decode_at

    def preempted(self, request: Generation) -> None:
        """Record that the request was preempted."""
        self.preemptions += 1

    def finished(self, request: Generation, now: float) -> None:
        """Record that the request has all its tokens."""
        self.ended[request.finish_reason] += 1
        self._observe(self.end_to_end, now - request.arrived_at)
        decoded = now - request.first_token_at
        self._observe(self.decode_time, decoded)
        if request.generated > 1:
            self._observe(self.time_per_output_token, decoded / (request.generated - 1))
        self.request_prompt_tokens.observe(request.input_tokens)
        self.request_generation_tokens.observe(0 if request.pooled else request.generated)

    def aborted(self, request: Generation) -> None:
        """Record that the request was aborted."""
        self.ended["abort"] += 1

    def _observe(self, histogram: Histogram, seconds: float, times: int = 1) -> None:
        histogram.observe(seconds * self.wall_seconds, times)
