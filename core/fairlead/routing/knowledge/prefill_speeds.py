"""The prefill speed of a pool's instances, measured from the prefills that routers observe.

The last prefills are kept. Prefills whose speed differs from the median (weighted by tokens) by more than a factor of
two are left out. The measured speed is computed from the remaining prefills: the sum of their tokens divided by the sum
of their seconds. So long prompts, which take longer per token, count with their full time. Prefills that waited behind
other work, or hit more of the cache than predicted, do not distort the result. The measured speed may be far from the
declared speed.

A short prefill mostly waits for the engine's current step and shows little about the speed. Short prefills count only
in a pool that has no long prefills and that computes the short ones so slowly that the wait hardly matters.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from fairlead.capabilities import UNKNOWN, Figure, Source, Spread, spread_of
from fairlead.routing.contracts.vectors import FloatVector

COMPARED_TOKENS = 1000
"""Minimum tokens of a prefill that is used to measure the speed, because a shorter prefill mostly waits for the
engine's current step.
"""
SLOW_SECONDS = 0.2
"""Minimum seconds of a short prefill that is used to measure the speed. The wait for the engine's step is only a small
part of such a long time.
"""
LEAST_SECONDS = 1e-9
"""Lower bound for the time of one token, in seconds."""
KEPT_PREFILLS = 200
"""Number of prefills that are kept to measure the speed. Beyond it, a new prefill replaces the oldest."""
ENOUGH_PREFILLS = 5
"""Minimum number of kept prefills for a speed to count as measured."""
TOGETHER_SECONDS = 0.005
"""First tokens of an instance that are at most this many seconds apart belong to one step and count as one prefill."""
AGAIN_SHARE = 0.2
"""The median is computed again when this share of the kept prefills is new."""
AGAIN_SECONDS = 0.5
"""Minimum seconds between two computations of the speed once the maximum number of prefills is kept. With thousands of
prefills per second, computing the speed whenever a fifth is new would take a twentieth of the router's CPU time.
"""
AGAIN_TIMES = 5
"""Factor: the speed is computed again before `AGAIN_SECONDS` have passed if this many times `KEPT_PREFILLS` new
prefills have arrived.
"""
ODD = 2.0
"""A prefill this many times faster or slower than the median is ignored."""
FAST_SHARE = 0.25
"""The fastest prefills that have this share of all tokens are assumed not to have waited for prefills of other routers,
which this router cannot observe (`alone_share`). With a smaller share, the result would depend on the few prefills
whose prefix another router had already sent.
"""
LINE_PREFILLS = 20
"""Minimum number of prefills for separating the fixed time of a prefill from its time per token."""
NEAR_SHARE = 0.9
"""The line is fitted twice, so that outliers have no effect. The second line is fitted through this share of the
prefills: the prefills nearest to the first line.
"""
LEAST_COMPUTING = 0.5
"""Minimum share of a prefill's time in which the engine is assumed to compute."""
MEMORY_SECONDS = 3600.0
"""Seconds for which an observed prefill counts."""


@dataclass(slots=True)
class _Prefill:
    instance: str
    tokens: int
    seconds: float
    at: float
    is_kept: bool = False


class PrefillSpeeds:
    """The last prefills and the speed measured from them. `tokens_per_second` is None while too few of them can be
    used.
    """

    def __init__(self) -> None:
        self.tokens_per_second: float | None = None
        self.computing_share = 1.0
        """The share of a prefill's time in which the engine computes the prefill's tokens. In the other part, the
        engine finishes its current step, whose duration does not depend on the length of the prompt.
        """
        self.alone_share = 1.0
        """The time of a prefill that waits for no prefill of another router, as a share of the time that the measured
        speed predicts; 1 for a single router. The measured speed includes the wait behind other routers' prefills,
        because the next prefill will also wait behind them.
        """
        self.among_others = False
        """Whether other routers also send to these instances. A change affects later measurements only."""
        self._prefills: deque[_Prefill] = deque()
        self._latest: dict[str, _Prefill] = {}
        """The latest prefill of each instance, even if it is no longer among the kept prefills."""
        self._long = self._slow = 0
        """Two numbers: the kept prefills that have enough tokens for a measurement, and the kept prefills that took
        long enough. The counters avoid a pass over all kept prefills at each first token.
        """
        self._new = 0
        self._measured_at = -inf
        self._used = 0
        self._spread: Spread | None = None

    def observe(self, instance: str, tokens: int, seconds: float, now: float) -> bool:
        """Add a prefill of this many uncached tokens that took this long. Returns whether the speed
        was computed again.
        """
        latest = self._latest.get(instance)
        if latest is not None and seconds <= TOGETHER_SECONDS and now - latest.at <= TOGETHER_SECONDS:
            was_long, was_slow = latest.tokens >= COMPARED_TOKENS, latest.seconds >= SLOW_SECONDS
            latest.tokens += tokens
            latest.seconds += seconds
            if latest.is_kept:
                self._long += (latest.tokens >= COMPARED_TOKENS) - was_long
                self._slow += (latest.seconds >= SLOW_SECONDS) - was_slow
            return False
        if len(self._prefills) == KEPT_PREFILLS:
            self._let_go(self._prefills.popleft())
        latest = self._latest[instance] = _Prefill(instance, tokens, seconds, now)
        self._take(latest)
        self._new += 1
        is_time = self._tells if self.tokens_per_second is None else self._is_due(now)
        if is_time:
            self._measured_at = now
            self._measure()
        return is_time

    def _is_due(self, now: float) -> bool:
        kept = len(self._prefills)
        if kept == KEPT_PREFILLS and self._new < AGAIN_TIMES * kept and 0 <= now - self._measured_at < AGAIN_SECONDS:
            return False
        return self._new > AGAIN_SHARE * kept

    def forget(self, instance: str) -> None:
        """Forget the prefills of an instance that no longer exists or whose engine was replaced."""
        self._latest.pop(instance, None)
        self._keep(one for one in self._prefills if one.instance != instance)

    def forget_older(self, before: float) -> None:
        """Drop the prefills observed before this time."""
        if self._prefills and self._prefills[0].at < before:
            self._keep(one for one in self._prefills if one.at >= before)

    def recounted(self, times: float) -> "PrefillSpeeds":
        """Return the same prefills with token counts multiplied by `times`, for use after the estimated size of a token
        changed.
        """
        if times != 1.0:
            self._latest.clear()
            self._replace([replace(one, tokens=max(1, round(one.tokens * times))) for one in self._prefills])
        return self

    def figure(self, now: float, instance: str | None = None) -> Figure:
        """Return the prefill speed of one instance (None = of all instances together) in tokens per second. The result
        includes the spread between prefills and the age of the newest prefill.
        """
        if self.tokens_per_second is None or self._spread is None:
            return UNKNOWN
        if instance is None:
            return _figure(self.tokens_per_second, self._spread, self._used, now - self._prefills[-1].at)
        telling = [one for one in self._telling() if one.instance == instance]
        spread = _spread(telling)
        if spread is None or len(telling) < ENOUGH_PREFILLS:
            return UNKNOWN
        return _figure(_usual(telling, spread.p50), spread, len(telling), now - telling[-1].at)

    def _keep(self, prefills: Iterable[_Prefill]) -> None:
        kept = list(prefills)
        if len(kept) != len(self._prefills):
            self._replace(kept)

    def _replace(self, prefills: Iterable[_Prefill]) -> None:
        while self._prefills:
            self._let_go(self._prefills.popleft())
        for one in prefills:
            self._take(one)
        self._measure()

    def _take(self, prefill: _Prefill) -> None:
        self._prefills.append(prefill)
        prefill.is_kept = True
        self._count(prefill, 1)

    def _let_go(self, prefill: _Prefill) -> None:
        self._count(prefill, -1)
        prefill.is_kept = False

    def _count(self, prefill: _Prefill, times: int) -> None:
        if prefill.is_kept:
            self._long += times * (prefill.tokens >= COMPARED_TOKENS)
            self._slow += times * (prefill.seconds >= SLOW_SECONDS)

    @property
    def _tells(self) -> bool:
        """Return whether the kept prefills suffice to measure a speed."""
        kept = len(self._prefills)
        return self._long >= ENOUGH_PREFILLS or (kept >= ENOUGH_PREFILLS and self._slow >= kept - kept // 2)

    def _measure(self) -> None:
        self._new = 0
        telling = self._telling()
        self._used = len(telling)
        self._spread = _spread(telling)
        if self._spread is None:
            self.tokens_per_second, self.computing_share, self.alone_share = None, 1.0, 1.0
        else:
            speed = self.tokens_per_second = _usual(telling, self._spread.p50)
            self.alone_share = min(1.0, speed / _fast(telling)) if self.among_others else 1.0
            self.computing_share = min(self.alone_share, max(LEAST_COMPUTING * self.alone_share, _slope(telling) * speed))

    def _telling(self) -> list[_Prefill]:
        if self._long >= ENOUGH_PREFILLS:
            return [one for one in self._prefills if one.tokens >= COMPARED_TOKENS]
        return list(self._prefills) if self._tells else []


class RecalledSpeed:
    """A speed that was observed before this router started; used until this router has measured a speed itself.

    The speed is used for up to a week. It is dropped earlier if prefills contradict it: even short prefills, which
    mostly wait for the engine's step, give a lower bound of the true speed.
    """

    __slots__ = ("_figure", "_observed_at", "_prefills", "_seconds", "_tokens", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        """Tokens per second; None if no speed was recalled or it was dropped."""
        self._figure = UNKNOWN
        self._observed_at = 0.0
        self._prefills = self._tokens = 0
        self._seconds = 0.0

    def take(self, figure: Figure, now: float) -> None:
        """Use the speed in `figure`, unless prefills have already contradicted it."""
        observed_at = now - (figure.age_seconds or 0.0)
        if figure.value != self._figure.value:
            self._prefills, self._tokens, self._seconds, self.value = 0, 0, 0.0, figure.value
        self._figure, self._observed_at = figure, observed_at

    def observe(self, tokens: int, seconds: float) -> bool:
        """Check the recalled speed against the duration of a prefill. Returns whether the speed is dropped."""
        if self.value is None:
            return False
        self._prefills, self._tokens, self._seconds = self._prefills + 1, self._tokens + tokens, self._seconds + seconds
        if self._prefills < ENOUGH_PREFILLS or self._tokens <= ODD * self.value * self._seconds:
            return False
        self.value = None
        return True

    def forget_older(self, before: float) -> None:
        """Drop the recalled speed if it was observed before this time."""
        if self._observed_at < before:
            self.value, self._figure = None, UNKNOWN

    def figure(self, now: float) -> Figure:
        """Return the recalled speed as a figure with its present age."""
        return UNKNOWN if self.value is None else replace(self._figure, age_seconds=max(0.0, now - self._observed_at))


def _figure(value: float, spread: Spread, samples: int, age: float) -> Figure:
    return Figure(value=value, source=Source.MEASURED, spread=spread, samples=samples, age_seconds=max(0.0, age))


def _spread(prefills: list[_Prefill]) -> Spread | None:
    """Return the median and the spread of the prefills' speeds, each weighted by its tokens; None if there are too few
    prefills.
    """
    return spread_of((one.tokens / max(one.seconds, LEAST_SECONDS * one.tokens), one.tokens) for one in prefills)


def _usual(prefills: list[_Prefill], median: float) -> float:
    """Return the speed in tokens per second: the sum of the tokens over the sum of the seconds, for the prefills whose
    speed is within a factor of `ODD` of the median.
    """
    kept = [(one.tokens, max(one.seconds, LEAST_SECONDS * one.tokens)) for one in prefills]
    usual = [(tokens, seconds) for tokens, seconds in kept if median / ODD <= tokens / seconds <= median * ODD]
    return sum(tokens for tokens, _ in usual) / sum(seconds for _, seconds in usual)


def _fast(prefills: list[_Prefill]) -> float:
    """Return the lowest speed among the fastest prefills that make up `FAST_SHARE` of all tokens."""
    speeds = sorted(((one.tokens / max(one.seconds, LEAST_SECONDS * one.tokens), one.tokens) for one in prefills), reverse=True)
    enough, summed = FAST_SHARE * sum(tokens for _, tokens in speeds), 0
    for speed, tokens in speeds:
        summed += tokens
        if summed >= enough:
            return speed
    return speeds[-1][0]


def _slope(prefills: list[_Prefill]) -> float:
    """Return the seconds per additional token: the slope of a line through the prefills' tokens and seconds, without
    the tenth of the prefills farthest from it. Infinite if the prefills are too few or too similar.
    """
    if len(prefills) < LINE_PREFILLS:
        return inf
    tokens = np.array([one.tokens for one in prefills], dtype=np.float64)
    seconds = np.array([one.seconds for one in prefills])
    slope, off = _line(tokens, seconds)
    near = off <= np.quantile(off, NEAR_SHARE)
    slope, _ = _line(tokens[near], seconds[near])
    return slope


def _line(tokens: FloatVector, seconds: FloatVector) -> tuple[float, FloatVector]:
    """Return the slope of the line fitted through these points, and each point's distance from the line in seconds."""
    across, up = tokens - tokens.mean(), seconds - seconds.mean()
    square = float(across @ across)
    slope = float(across @ up) / square if square > 0 else inf
    return slope, np.abs(up - (slope if isfinite(slope) else 0.0) * across)
