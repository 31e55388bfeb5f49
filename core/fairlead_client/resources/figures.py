"""The figures over a range of time: the outcomes of the requests of a pool, or of all pools, and the moves."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFigures:
    """All figures that are shown for one range, from one set of records.

    They cover the requests that ended from `start` to `end`: the requested range, widened to whole steps of the
    records. The charts of the range draw the same steps. `judged` counts finished requests: `ttft_in_time` of them met
    TTFT, and `in_time` of them met both targets. `tpot_judged` of the finished requests had a time per output token,
    and `tpot_in_time` of these met TPOT. `refused` and `failed` requests are counted separately. `sent` counts the
    times that a request was sent to an instance, so a request that is sent again counts again. Of these, `failed_sends`
    failed on the instance, even if another instance then served the request, `completed_sends` were completed by the
    instance, and `cancelled_sends` were cancelled by the client.

    Latencies are in seconds, interpolated within a step of the histogram. A step is a tenth of the latency, so only two
    digits are significant. `ttft_seconds` is the TTFT at the SLO's `percentile` (for all pools together: 95).
    `seconds_won` is the TTFT predicted for staying minus the actual TTFT, summed over the `compared` migrations.

    Requests that ended after `complete_until` are not counted yet, because the roll-ups lag; None = nothing is missing.
    """

    start: datetime
    end: datetime
    judged: int = 0
    in_time: int = 0
    ttft_in_time: int = 0
    tpot_judged: int = 0
    tpot_in_time: int = 0
    refused: int = 0
    failed: int = 0
    sent: int = 0
    failed_sends: int = 0
    completed_sends: int = 0
    cancelled_sends: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    percentile: float = 95.0
    ttft_seconds: float | None = None
    ttft_p50_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    migrations: int = 0
    reroutes: int = 0
    lost_moves: int = 0
    compared: int = 0
    seconds_won: float = 0.0
    complete_until: datetime | None = None

    @property
    def asked(self) -> int:
        """Number of all requests, whatever their outcome."""
        return self.judged + self.refused + self.failed

    @property
    def known(self) -> bool:
        """Whether the roll-ups cover any part of the range."""
        return self.complete_until is None or self.complete_until > self.start

    @property
    def attainment(self) -> float | None:
        """Share of judged requests that met both targets."""
        return _share(self.in_time, self.judged)

    @property
    def ttft_attainment(self) -> float | None:
        """Share of the judged requests that met TTFT; never less than the share that met both targets."""
        return _share(self.ttft_in_time, self.judged)

    @property
    def tpot_attainment(self) -> float | None:
        """Share of the requests with a time per output token that met the TPOT target."""
        return _share(self.tpot_in_time, self.tpot_judged)

    @property
    def served_in_time(self) -> float | None:
        """Share of all requests that met both targets; refused and failed requests count as not in time."""
        return _share(self.in_time, self.asked)

    @property
    def refused_share(self) -> float | None:
        """Share of all requests that were refused."""
        return _share(self.refused, self.asked)

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens found in a prefix cache."""
        return _share(self.hit_tokens, self.prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFigures:
    """All figures shown for one instance over one range, from the same records as its charts.

    The range is the requested range, widened to whole minutes or longer steps, as in charts. `sent` counts requests
    sent to the instance and `failed_sends` requests that failed there. `judged` counts requests that got all their
    tokens from the instance, and `in_time` the judged requests that met both targets. `first_tokens` counts first
    tokens from the instance, and `ttft_in_time` the first tokens that met TTFT. `ttft_p95_seconds` and
    `tpot_p95_seconds` are the highest p95 of a single second, because an instance has no histogram over longer times.
    Requests after `complete_until` are not counted yet, because the roll-ups lag; None = nothing is missing.
    """

    start: datetime
    end: datetime
    sent: int = 0
    failed_sends: int = 0
    judged: int = 0
    in_time: int = 0
    first_tokens: int = 0
    ttft_in_time: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    complete_until: datetime | None = None

    @property
    def known(self) -> bool:
        """Whether the roll-ups cover any part of the range."""
        return self.complete_until is None or self.complete_until > self.start

    @property
    def ttft_attainment(self) -> float | None:
        """Share of first tokens that met TTFT."""
        return _share(self.ttft_in_time, self.first_tokens)

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens that were found in the instance's prefix cache."""
        return _share(self.hit_tokens, self.prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresByInstance:
    """Figures of one range for every instance of a pool that existed in the range, by the instance's name.

    They are sums over the same records as the figures on an instance's own page, so that the list and the page show the
    same figures.
    """

    pool: str
    start: datetime
    end: datetime
    instances: dict[str, InstanceFigures]
    complete_until: datetime | None = None

    def of(self, instance: str) -> InstanceFigures:
        """Return the figures of an instance; all zero if it did not exist in the range."""
        return self.instances.get(instance) or InstanceFigures(start=self.start, end=self.end, complete_until=self.complete_until)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
