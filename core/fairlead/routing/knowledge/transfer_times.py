"""Observed times to transfer KV blocks from one instance to another, and pairs of instances between which no transfer
is tried for a while.

    measured for the pair > measured for other pairs > declared > assumed

A line through the last transfers of a pair gives its latency and its seconds per token. Before any transfer was
observed, a transfer is assumed to take half as long as computing the tokens. So the first transfer is tried with a long
prompt. The time that a request waits for a transfer is limited, so a first attempt costs little and gives a
measurement. The first transfer between two engines may be slow (6 and 15 s were seen with nixl 1.3.2 on a busy
machine). It continues after the router has stopped waiting for it.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from fairlead.capabilities import Figure, Source, declared
from fairlead.reports.moves import CacheFate, CacheTransfer
from fairlead.targets import instance_of

KEPT_TRANSFERS = 32
"""Number of a pair's last transfers through which its line is fitted."""
ASSUMED_SHARE = 0.5
"""Assumed time of a transfer, as a share of the time to compute the same tokens, if nothing was measured or
declared.
"""
ASSUMED_LATENCY_SECONDS = 0.05
FIRST_REST_SECONDS = 10.0
"""Seconds for which a pair is not tried after a failure; the time doubles with each further failure."""
LONGEST_REST_SECONDS = 600.0


class _Line(NamedTuple):
    latency: float
    per_token: float


@dataclass(slots=True)
class _Pair:
    """The observed transfers from one source instance to one target instance."""

    transfers: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=KEPT_TRANSFERS))
    rests_until: float = 0.0
    late_until: float = 0.0
    """Time (Unix seconds) until which the pair rests after a transfer that took too long. Until then, a transfer is
    tried only if no client waits for it.
    """
    failures: int = 0
    seen_at: float = 0.0
    line: _Line | None = None


class TransferTimes:
    """Predicted transfer times, and the pairs of instances that are not tried at the moment. Arguments may name
    instances or their ranks.
    """

    def __init__(self) -> None:
        self._pairs: defaultdict[tuple[str, str], _Pair] = defaultdict(_Pair)
        self._all: deque[tuple[int, float]] = deque(maxlen=4 * KEPT_TRANSFERS)
        self._common: _Line | None = None

    def seconds(self, source: str, target: str, tokens: int, computing_seconds: float, declared_speed: float | None) -> float:
        """Return the predicted seconds until `target` has received the blocks of this many tokens from `source`.
        `computing_seconds` is the time to compute them at `target` instead; `declared_speed` is tokens per second, None
        if not declared.
        """
        pair = self._pairs.get((instance_of(source), instance_of(target)))
        line = self._common if pair is None or pair.line is None else pair.line
        if line is not None:
            return line.latency + tokens * line.per_token
        sending = ASSUMED_SHARE * computing_seconds if declared_speed is None else tokens / declared_speed
        return ASSUMED_LATENCY_SECONDS + sending

    @property
    def is_measured(self) -> bool:
        """Whether any transfer was observed. A measured time already includes the effect of other transfers on the same
        links.
        """
        return self._common is not None

    def common(self, computing_seconds_per_token: float, declared_speed: float | None) -> tuple[float, float]:
        """Return the tokens per second and the latency in seconds over all pairs: measured, else declared, else
        assumed.
        """
        line = self._common
        if line is not None:
            return (1 / line.per_token if line.per_token else inf), line.latency
        speed = 1 / (ASSUMED_SHARE * computing_seconds_per_token) if declared_speed is None else declared_speed
        return speed, ASSUMED_LATENCY_SECONDS

    def may_try(self, source: str, target: str, now: float, *, waits: bool = True) -> bool:
        """Return whether a transfer between the pair may be tried. False if the pair failed recently. Also False if a
        transfer of the pair took too long recently and a client waits for this one (`waits`).
        """
        pair = self._pairs.get((instance_of(source), instance_of(target)))
        return pair is None or (pair.rests_until <= now and not (waits and pair.late_until > now))

    def observe(self, source: str, target: str, transfer: CacheTransfer, sending_seconds: float, now: float) -> None:
        """Record an attempt to transfer. `sending_seconds` is the time of the attempt without the time to compute the
        other tokens of the prompt. An attempt is ignored if its source named no blocks, because `contracts.handovers`
        records such attempts.
        """
        if transfer.fate is CacheFate.UNNAMED:
            return
        pair = self._pairs[instance_of(source), instance_of(target)]
        pair.seen_at = now
        if transfer.fate is not CacheFate.MOVED:
            until = now + min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2**pair.failures)
            if transfer.fate is CacheFate.LATE:
                pair.late_until = until
            else:
                pair.rests_until = until
            pair.failures += 1
            return
        pair.failures, pair.rests_until, pair.late_until = 0, 0.0, 0.0
        if transfer.tokens:
            seen = transfer.tokens, max(0.0, sending_seconds)
            pair.transfers.append(seen)
            self._all.append(seen)
            pair.line, self._common = _line_through(pair.transfers), _line_through(self._all)

    def figure(self, declared_speed: float | None, now: float) -> Figure:
        """Return the tokens transferred per second from one instance to another, over all pairs."""
        seconds = sum(seconds for _, seconds in self._all)
        if not seconds:
            return declared(declared_speed)
        newest = max((pair.seen_at for pair in self._pairs.values() if pair.transfers), default=-inf)
        age = max(0.0, now - newest) if newest > -inf else None
        tokens = sum(tokens for tokens, _ in self._all)
        return Figure(value=tokens / seconds, source=Source.MEASURED, samples=len(self._all), age_seconds=age)

    def forget(self, instance: str) -> None:
        """Forget the pairs of an instance that no longer exists or whose engine was replaced. The figures over all
        pairs are kept.
        """
        for pair in [pair for pair in self._pairs if instance in pair]:
            del self._pairs[pair]


def _line_through(seen: deque[tuple[int, float]]) -> _Line:
    """Return a line fitted by least squares, with intercept and slope at least zero; it passes through the origin if
    all transfers have about the same number of tokens.
    """
    count = len(seen)
    tokens, seconds = sum(one for one, _ in seen) / count, sum(one for _, one in seen) / count
    spread = sum((one - tokens) ** 2 for one, _ in seen)
    through_origin = _Line(0.0, seconds / tokens)
    if spread < count * (tokens / 4) ** 2:
        return through_origin
    slope = sum((one - tokens) * (took - seconds) for one, took in seen) / spread
    if slope <= 0:
        return _Line(seconds, 0.0)
    return _Line(seconds - slope * tokens, slope) if slope * tokens <= seconds else through_origin
