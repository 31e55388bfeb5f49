"""The outcomes of all requests, and a tally of them that must add up to the number of requests sent."""

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

from fairlead_simulator.traces.descriptions import percentile


class ReplayVerdict(StrEnum):
    """How a request ended; every request has exactly one verdict."""

    SERVED = "served"
    REJECTED = "rejected"
    """The router refused the request on purpose, with the status 429 or 503."""
    FAILED = "failed"
    """There was no response, an incomplete response, or an error status other than 429 and 503."""
    CANCELLED = "cancelled"
    """The client ended the request before the response was complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """The outcome of one request. Times are in seconds of wall time. A field that does not apply to the request is
    None.
    """

    index: int
    session: str
    due_seconds: float
    """Time at which the request was due, in seconds from the start of the replay."""
    lag_seconds: float
    """Seconds by which the request was sent later than due."""
    verdict: ReplayVerdict
    reason: str = ""
    status: int = 0
    instance: str | None = None
    decode: str | None = None
    """The instance that generated the answer; None if the same instance also computed the prompt."""
    decision: str | None = None
    ttft_seconds: float | None = None
    e2e_seconds: float | None = None
    ended_seconds: float | None = None
    """Time at which the request ended, whatever its verdict, in seconds from the start of the replay; None if the
    replay was stopped before that.
    """
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    failovers: int = 0
    retries: int = 0

    @property
    def tpot_seconds(self) -> float | None:
        """Mean seconds per output token after the first; None if there are fewer than two output tokens or their times
        are unknown.
        """
        if self.e2e_seconds is None or self.ttft_seconds is None or self.completion_tokens is None or self.completion_tokens < 2:
            return None
        return (self.e2e_seconds - self.ttft_seconds) / (self.completion_tokens - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles in seconds; None if nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None

    @staticmethod
    def of(values: deque[float], scale: float) -> "Percentiles":
        if not values:
            return Percentiles(p50=None, p90=None, p99=None)
        ordered = sorted(values)
        return Percentiles(p50=percentile(ordered, 50) * scale, p90=percentile(ordered, 90) * scale, p99=percentile(ordered, 99) * scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of a whole replay. Latencies are in seconds of wall time, multiplied by the time scale that the user
    gave.
    """

    sent: int
    served: int
    rejected: int
    failed: int
    cancelled: int
    accounted: bool
    """Whether sent = served + rejected + failed + cancelled."""
    failovers: int
    retries: int
    wall_seconds: float
    requests_per_second: float
    largest_lag_seconds: float
    ttft: Percentiles
    tpot: Percentiles
    e2e: Percentiles
    slo_ttft_seconds: float
    slo_attainment: float | None
    """Share of all sent requests whose first token arrived within the TTFT SLO; rejected and failed requests count as
    missed.
    """
    token_hit_rate: float | None
    ideal_token_hit_rate: float | None
    """The hit rate that an unlimited cache shared by all instances would have reached with the same prompts."""
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    rejections: dict[str, int]
    failures: dict[str, int]
    instances: dict[str, int]


class Tally:
    """A counter of outcomes.

    The counts cover all requests. The percentiles cover only the latest `remembered` requests; None = all requests.
    """

    def __init__(self, slo_ttft_seconds: float, time_scale: float = 1.0, remembered: int | None = None) -> None:
        self.sent = 0
        self.verdicts: Counter[ReplayVerdict] = Counter()
        self.ttft: deque[float] = deque(maxlen=remembered)
        self._tpot: deque[float] = deque(maxlen=remembered)
        self._e2e: deque[float] = deque(maxlen=remembered)
        self._slo = slo_ttft_seconds
        self.time_scale = time_scale
        self._in_time = 0
        self._rejections: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._instances: Counter[str] = Counter()
        self._failovers = self._retries = 0
        self._prompt_tokens = self._cached_tokens = self._completion_tokens = 0
        self._largest_lag = 0.0

    @property
    def ended(self) -> int:
        return sum(self.verdicts.values())

    def send(self) -> None:
        """Count a request that was sent."""
        self.sent += 1

    def end(self, outcome: RequestOutcome) -> None:
        """Count a request that ended."""
        self.verdicts[outcome.verdict] += 1
        self._failovers += outcome.failovers
        self._retries += outcome.retries
        self._largest_lag = max(self._largest_lag, outcome.lag_seconds)
        if outcome.instance is not None:
            self._instances[outcome.instance] += 1
        if outcome.verdict is ReplayVerdict.REJECTED:
            self._rejections[outcome.reason] += 1
        elif outcome.verdict is ReplayVerdict.FAILED:
            self._failures[outcome.reason] += 1
            return
        if outcome.ttft_seconds is not None:
            self.ttft.append(outcome.ttft_seconds)
            self._in_time += outcome.ttft_seconds * self.time_scale < self._slo
        if outcome.verdict is not ReplayVerdict.SERVED:
            return
        if outcome.e2e_seconds is not None:
            self._e2e.append(outcome.e2e_seconds)
        if (tpot := outcome.tpot_seconds) is not None:
            self._tpot.append(tpot)
        self._prompt_tokens += outcome.prompt_tokens or 0
        self._cached_tokens += outcome.cached_tokens or 0
        self._completion_tokens += outcome.completion_tokens or 0

    def summary(self, wall_seconds: float, ideal_token_hit_rate: float | None) -> Summary:
        """Return the figures of all requests so far."""
        return Summary(
            sent=self.sent,
            served=self.verdicts[ReplayVerdict.SERVED],
            rejected=self.verdicts[ReplayVerdict.REJECTED],
            failed=self.verdicts[ReplayVerdict.FAILED],
            cancelled=self.verdicts[ReplayVerdict.CANCELLED],
            accounted=self.sent == self.ended,
            failovers=self._failovers,
            retries=self._retries,
            wall_seconds=wall_seconds,
            requests_per_second=self.sent / wall_seconds if wall_seconds > 0 else 0.0,
            largest_lag_seconds=self._largest_lag,
            ttft=Percentiles.of(self.ttft, self.time_scale),
            tpot=Percentiles.of(self._tpot, self.time_scale),
            e2e=Percentiles.of(self._e2e, self.time_scale),
            slo_ttft_seconds=self._slo,
            slo_attainment=self._in_time / self.sent if self.sent else None,
            token_hit_rate=self._cached_tokens / self._prompt_tokens if self._prompt_tokens else None,
            ideal_token_hit_rate=ideal_token_hit_rate,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            completion_tokens=self._completion_tokens,
            rejections=dict(self._rejections.most_common()),
            failures=dict(self._failures.most_common()),
            instances=dict(sorted(self._instances.items())),
        )
