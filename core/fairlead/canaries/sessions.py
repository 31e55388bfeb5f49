"""Turns requests into one value per session and metric, so that only similar requests are compared.

A request is compared with the mean of the earlier requests of its stratum in both arms (the canary's sessions and all
others). A stratum is requests of one class with a similar number of tokens to compute (or of context) and a similar
number of requests that decode at the same time. A session counts once, with the mean of its first requests: the turns
of a session are alike, and counting each turn would weigh one session's habit many times.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log, log2

from fairlead.canaries.bets import Bets
from fairlead.reports.canaries import CanarySample

TURNS = 4
"""Maximum number of requests of a session that count."""
IDLE_SECONDS = 60.0
"""Seconds without a request after which a session is finished and counted with the requests so far."""
_KNOWN = 5
"""Number of requests of a stratum that must be known before further requests are compared with their mean."""
_WAITING = 16
_RECENT = 0.05
"""Weight of the newest request in the running average of recent differences. Subtracting this average removes the
effect of load that both arms share.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A quantity that is compared: `value` of a request (None if the request has no value), within the strata of
    `stratum`.

    With `is_ratio`, values are logarithms, so that the effect is a ratio; otherwise they are shares. `sign` is 1 if a
    higher value is worse, -1 if a lower value is worse, and 0 if a change in either direction is worse. `stop` and `go`
    multiply the limits `stop_above` and `go_below` of `CanaryRules`.
    """

    name: str
    value: Callable[[CanarySample], float | None]
    stratum: Callable[[CanarySample], tuple[object, ...]]
    is_ratio: bool = True
    sign: int = 1
    stop: float = 1.0
    go: float = 1.0


def _size(tokens: int, parts: int = 2) -> int:
    return round(parts * log2(tokens + 64))


def _missing(one: CanarySample) -> int:
    return one.prompt_tokens - (one.hit_tokens if one.cached_tokens is None else one.cached_tokens)


def _logarithm(value: float | None) -> float | None:
    return log(value) if value is not None and value > 0 else None


def _hits(one: CanarySample) -> float | None:
    return None if one.cached_tokens is None or one.prompt_tokens <= 0 else min(1.0, one.cached_tokens / one.prompt_tokens)


TTFT, TPOT, HITS, ERRORS, TOKENS = "ttft", "tpot", "hits", "errors", "tokens"
METRICS = (
    Metric(
        name=TTFT,
        value=lambda one: _logarithm(one.ttft_seconds),
        stratum=lambda one: (one.priority_class, _size(_missing(one)), _size(one.decoding, 1)),
    ),
    Metric(
        name=TPOT,
        value=lambda one: _logarithm(one.tpot_seconds),
        stratum=lambda one: (one.priority_class, _size(one.prompt_tokens, 1), round(2 * log2(one.decoding + 1))),
    ),
    Metric(name=HITS, value=_hits, stratum=lambda one: (one.priority_class, _size(one.prompt_tokens)), is_ratio=False, sign=-1),
    Metric(name=ERRORS, value=lambda one: float(one.failed), stratum=lambda one: (one.priority_class,), is_ratio=False, stop=0.0, go=0.5),
    Metric(
        name=TOKENS,
        value=lambda one: _logarithm(one.output_tokens),
        stratum=lambda one: (one.priority_class, _size(one.prompt_tokens, 1)),
        sign=0,
        stop=5.0,
        go=3.0,
    ),
)
"""The metrics by which a canary is judged."""


class Strata:
    """Means of a metric by stratum, and a running average of the recent requests' differences from these means."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._recent = 0.0
        self._means: dict[tuple[object, ...], tuple[int, float]] = {}

    def rest(self, one: CanarySample) -> float | None:
        """Return the request's value minus the mean of the earlier requests of its stratum, corrected by the recent
        average difference. None if the request has no value or the stratum has too few requests.
        """
        value = self._metric.value(one)
        if value is None:
            return None
        key = self._metric.stratum(one)
        count, mean = self._means.get(key, (0, 0.0))
        self._means[key] = count + 1, mean + (value - mean) / (count + 1)
        if count < _KNOWN:
            return None
        rest, before = value - mean, self._recent
        self._recent += _RECENT * (rest - before)
        return rest - before


@dataclass(slots=True)
class _Open:
    canary: bool
    mixed: bool = False
    seen: int = 0
    last: float = 0.0
    rests: dict[str, list[float]] = field(default_factory=dict)


class Sessions:
    """Sessions of both arms. A finished session is paired with a finished session of the other arm. Requests must be
    added in order of time.
    """

    def __init__(self, metrics: tuple[Metric, ...] = METRICS) -> None:
        self._strata = {metric.name: Strata(metric) for metric in metrics}
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._closed: set[str] = set()
        self._waiting: dict[tuple[str, bool], deque[float]] = {}
        self.bets = {metric.name: Bets(scaled=metric.is_ratio) for metric in metrics}
        self.counted = {True: 0, False: 0}
        """Number of sessions that counted, by arm: True for the canary, False for the other arm."""

    def add(self, one: CanarySample, skipped: str = "") -> None:
        """Add a request. The metric named `skipped` ignores it."""
        self.elapse(one.at)
        rests = {name: strata.rest(one) for name, strata in self._strata.items()}
        if one.session in self._closed:
            return
        entry = self._open.setdefault(one.session, _Open(canary=one.canary))
        self._open.move_to_end(one.session)
        entry.last, entry.seen, entry.mixed = one.at, entry.seen + 1, entry.mixed or entry.canary is not one.canary
        for name, rest in rests.items():
            if rest is not None and name != skipped:
                entry.rests.setdefault(name, []).append(rest)
        if entry.seen >= TURNS:
            self._close(one.session)

    def elapse(self, now: float) -> None:
        """Advance the time to `now`: sessions that were idle for more than `IDLE_SECONDS` are finished and counted."""
        while self._open and next(iter(self._open.values())).last < now - IDLE_SECONDS:
            self._close(next(iter(self._open)))

    def _close(self, session: str) -> None:
        entry = self._open.pop(session)
        self._closed.add(session)
        if entry.mixed:
            return  # both arms served it, such as after a failure: it speaks for neither
        self.counted[entry.canary] += 1
        for name, rests in entry.rests.items():
            self._pair(name, entry.canary, sum(rests) / len(rests))

    def _pair(self, name: str, canary: bool, value: float) -> None:
        others = self._waiting.setdefault((name, not canary), deque(maxlen=_WAITING))
        if not others:
            self._waiting.setdefault((name, canary), deque(maxlen=_WAITING)).append(value)
            return
        other = others.pop()
        self.bets[name].add(value - other if canary else other - value)
