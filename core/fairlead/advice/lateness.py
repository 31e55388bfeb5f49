"""LateFirstTokens and SlowTokens: too few requests meet the TTFT target or the TPOT target, compared with the
percentile in the pool's objectives.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter

from fairlead.advice import wording
from fairlead.advice.findings import LATE_FIRST_TOKENS, SLOW_TOKENS, Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level
from fairlead.advice.situations import PoolSituation, SeenInstance, Served
from fairlead.amounts import amount

_Judged = Callable[[Served], tuple[int, int]]
"""A function from an instance's served requests to two numbers: the late requests and the judged requests."""
_BY_BOTH, _BY_TTFT, _BY_TPOT = attrgetter("by_both"), attrgetter("by_ttft"), attrgetter("by_tpot")


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each target that too many requests miss.

    Enough requests may meet each single target although too few meet both targets together. In this case, yield one
    finding about both targets; its cause is the target that more requests missed.
    """
    by_ttft, by_tpot = _is_missed(pool, _BY_TTFT), _is_missed(pool, _BY_TPOT)
    goal = wording.percent(pool.slo.percentile)
    each, within = wording.seconds(pool.slo.tpot_seconds), wording.seconds(pool.slo.ttft_seconds)
    if by_ttft:
        words = f"{_met(pool, _BY_TTFT, 'request')} had the first token within {within}, the goal is {goal}"
        yield _of_ttft(pool, words, _BY_TTFT)
    if by_tpot:
        words = f"{_met(pool, _BY_TPOT, 'answer')} took less than {each} per output token, the goal is {goal}"
        yield _of_tpot(pool, words, _BY_TPOT)
    if not by_ttft and not by_tpot and _is_missed(pool, _BY_BOTH):
        words = f"{_met(pool, _BY_BOTH, 'request')} had the first token within {within} and less than {each} per output token, the goal is {goal}"
        of_worse = _of_ttft if pool.served.by_ttft[0] >= pool.served.by_tpot[0] else _of_tpot
        yield of_worse(pool, words, _BY_BOTH)


def _is_missed(pool: PoolSituation, of: _Judged) -> bool:
    return pool.exceeds(*of(pool.served))


def _met(pool: PoolSituation, of: _Judged, noun: str) -> str:
    late, judged = of(pool.served)
    return f"{wording.share(1 - late / judged)} of {pool.pool}'s {amount(judged, noun)}"


def _of_ttft(pool: PoolSituation, words: str, of: _Judged) -> Finding:
    return _finding(pool, Cause.LATE_FIRST_TOKENS, words, of, "ttft_p95", LATE_FIRST_TOKENS)


def _of_tpot(pool: PoolSituation, words: str, of: _Judged) -> Finding:
    return _finding(pool, Cause.SLOW_TOKENS, words, of, "tpot_p95", SLOW_TOKENS)


def _finding(pool: PoolSituation, cause: Cause, words: str, of: _Judged, metric: str, symptom: str) -> Finding:
    late, _ = of(pool.served)
    return Finding(
        pool=pool.pool,
        cause=cause,
        level=Level.BAD,
        harm=Harm(amount=pool.per_second(late), unit=HarmUnit.REQUESTS),
        sentence=f"{words}; {_where(pool, late, of)}.",
        evidence=Evidence(kind=EvidenceKind.HEATMAP, seconds=pool.window_seconds, metric=metric),
        symptom=symptom,
    )


def _where(pool: PoolSituation, late: int, of: _Judged) -> str:
    """Return a phrase that names the instance with the most late requests. It also says whether the requests of all
    other instances, including instances that no longer exist, meet the goal.
    """
    worst: SeenInstance | None = max(pool.instances, key=lambda one: (of(one.served)[0], one.id), default=None)
    of_gone, _ = of(pool.gone)
    if worst is None or of(worst.served)[0] < of_gone:
        return f"{wording.share(of_gone / late)} of the late ones were on instances that are gone"
    others, judged = of(sum((one.served for one in pool.instances if one is not worst), pool.gone))
    if not judged:
        return f"all of them on {worst.id}, {'its only instance' if len(pool.instances) == 1 else 'where all were served'}"
    then = "miss the goal too" if pool.exceeds(others, judged) else "meet the goal"
    return f"{wording.share(of(worst.served)[0] / late)} of the late ones were on {worst.id}; the others {then}"
