"""Gives the verdict about a step of a canary (go on to the next step, wait, or roll back), with its evidence."""

from collections.abc import Iterable
from math import exp, log

from fairlead.canaries.bets import Interval
from fairlead.canaries.sessions import HITS, METRICS, Metric, Sessions
from fairlead.canaries.verdicts import CanaryRules, Estimate, Judgement, StepVerdict
from fairlead.reports.canaries import CanarySample

GOING_ON = 0.05
"""Maximum probability that a metric looks acceptable although it is worse by more than `go_below`. A canary goes on
only if all metrics look acceptable, so this probability is not divided among the metrics.
"""
LEAST_PAIRS = 20
"""Minimum number of session pairs before a metric decides anything."""


_SIDES = sum(2 if metric.sign == 0 else 1 for metric in METRICS)
"""Number of bounds that could each wrongly stop a canary: two for a metric that must not change in either direction,
one for any other metric.
"""


class Judge:
    """A judge of one step. `began` is the time of the step's first request (Unix seconds); samples are added in order
    of time.
    """

    def __init__(self, rules: CanaryRules, began: float) -> None:
        self._rules = rules
        self._warm = began + rules.warming_seconds
        self._sessions = Sessions()
        self._requests = {True: 0, False: 0}

    def add(self, one: CanarySample) -> None:
        """Add a request of the step."""
        self._requests[one.canary] += 1
        self._sessions.add(one, skipped=HITS if one.at < self._warm else "")

    def elapse(self, now: float) -> None:
        """Advance the time to `now`, after all earlier requests were added."""
        self._sessions.elapse(now)

    @property
    def pairs(self) -> int:
        """Number of session pairs so far, summed over all metrics. The judgement changes only when this number
        changes.
        """
        return sum(bets.pairs for bets in self._sessions.bets.values())

    def judgement(self) -> Judgement:
        """Return the verdict from all requests so far. May be called at any time."""
        estimates = tuple(self._estimate(metric) for metric in METRICS)
        verdict, reason = _verdict(estimates)
        counted = self._sessions.counted
        return Judgement(
            verdict=verdict,
            reason=reason,
            requests=sum(self._requests.values()),
            canary_requests=self._requests[True],
            canary_sessions=counted[True],
            other_sessions=counted[False],
            estimates=estimates,
        )

    def _estimate(self, metric: Metric) -> Estimate:
        bets = self._sessions.bets[metric.name]
        interval = bets.interval(self._rules.false_stops / _SIDES)
        return Estimate(
            metric=metric.name,
            is_ratio=metric.is_ratio,
            pairs=interval.pairs,
            change=_shown(metric, interval.guess),
            low=None if interval.low is None else _shown(metric, interval.low),
            high=None if interval.high is None else _shown(metric, interval.high),
            verdict=_of_metric(metric, interval, bets.interval(GOING_ON), self._rules),
        )


def judged(samples: Iterable[CanarySample], rules: CanaryRules, began: float) -> Judgement:
    """Return the judgement of a step from its samples, which are in order of time."""
    judge = Judge(rules, began)
    for one in samples:
        judge.add(one)
    return judge.judgement()


def _shown(metric: Metric, effect: float) -> float:
    return round(exp(effect) - 1 if metric.is_ratio else effect, 4)


def _of_metric(metric: Metric, interval: Interval, looser: Interval, rules: CanaryRules) -> StepVerdict:
    """Return the verdict of one metric. `looser` is the metric's interval at the error chance `GOING_ON`."""
    if interval.pairs < LEAST_PAIRS:
        return StepVerdict.WAIT
    stop, go = (log(1 + share) if metric.is_ratio else share for share in (rules.stop_above * metric.stop, rules.go_below * metric.go))
    if any(bound is not None and bound >= stop for bound in _worse(metric, interval.low, interval.high)):
        return StepVerdict.BACK
    return (
        StepVerdict.GO if all(bound is not None and bound <= go for bound in _worse(metric, looser.high, looser.low)) else StepVerdict.WAIT
    )


def _worse(metric: Metric, more: float | None, less: float | None) -> list[float | None]:
    """Return the least amount by which a metric is worse, for each direction in which a change of the metric is worse.
    `more` and `less` are the bounds of the change; a bound is None if it is not known.
    """
    upwards = [more] if metric.sign >= 0 else []
    return [*upwards, None if less is None else -less] if metric.sign <= 0 else upwards


_WORDS = {"ttft": "the time to first token", "tpot": "the time per token", "hits": "the cache hits", "errors": "failed requests"}


def words_of(metric: str) -> str:
    """Return the words for a metric in a sentence, such as `the tokens of an answer`."""
    return _WORDS.get(metric, "the tokens of an answer")


def _verdict(estimates: tuple[Estimate, ...]) -> tuple[StepVerdict, str]:
    worse = [one for one in estimates if one.verdict is StepVerdict.BACK]
    if worse:
        return StepVerdict.BACK, f"{words_of(worse[0].metric)} changed by {_change(worse[0])}"
    measured = [one for one in estimates if one.pairs]
    open_ = [one for one in measured if one.verdict is StepVerdict.WAIT]
    if not measured:
        return StepVerdict.WAIT, "no pair of sessions yet"
    if open_:
        return StepVerdict.WAIT, f"no verdict on {words_of(open_[0].metric)} after {open_[0].pairs} pairs of sessions"
    return StepVerdict.GO, "nothing is worse by more than is allowed"


def _change(one: Estimate) -> str:
    unit = "%" if one.is_ratio else " points"
    low, high = ("?" if bound is None else f"{100 * bound:+.0f}" for bound in (one.low, one.high))
    return f"{100 * one.change:+.0f}{unit} (between {low} and {high})"
