"""LateFirstTokens and SlowTokens: fewer requests than the percentile asks for meet TTFT, or TPOT."""

from collections.abc import Callable, Iterator

from fairlead.advice import wording
from fairlead.advice.findings import LATE_FIRST_TOKENS, SLOW_TOKENS, Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level
from fairlead.advice.situations import PoolSituation, SeenInstance, Served


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each target that too many requests miss. If too many requests miss only the two targets
    combined, yield one finding, for the target that is missed more often.
    """
    served = pool.served
    late_ttft, late_tpot = _late_ttft(served), _late_tpot(served)
    by_ttft, by_tpot = pool.exceeds(late_ttft, served.ttft_judged), pool.exceeds(late_tpot, served.tpot_judged)
    if not by_ttft and not by_tpot and pool.exceeds(served.late, served.ended):
        by_ttft = late_ttft >= late_tpot
        by_tpot = not by_ttft
    goal = wording.percent(pool.slo.percentile)
    if by_ttft:
        met = wording.share(1 - late_ttft / served.ttft_judged)
        judged = wording.count(served.ttft_judged, "request")
        words = f"{met} of {pool.pool}'s {judged} had the first token within {wording.seconds(pool.slo.ttft_seconds)}, the goal is {goal}"
        yield _finding(pool, Cause.LATE_FIRST_TOKENS, words, late_ttft, _late_ttft, "ttft_p95", LATE_FIRST_TOKENS)
    if by_tpot:
        met = wording.share(1 - late_tpot / served.tpot_judged)
        each = wording.seconds(pool.slo.tpot_seconds)
        words = f"{met} of {pool.pool}'s {wording.count(served.tpot_judged, 'answer')} took less than {each} per output token, the goal is {goal}"
        yield _finding(pool, Cause.SLOW_TOKENS, words, late_tpot, _late_tpot, "tpot_p95", SLOW_TOKENS)


def _late_ttft(served: Served) -> int:
    return served.ttft_judged - served.ttft_in_time


def _late_tpot(served: Served) -> int:
    return served.tpot_judged - served.tpot_in_time


def _finding(
    pool: PoolSituation, cause: Cause, words: str, late: int, late_of: Callable[[Served], int], metric: str, symptom: str
) -> Finding:
    return Finding(
        pool=pool.pool,
        cause=cause,
        level=Level.BAD,
        harm=Harm(amount=pool.per_second(late), unit=HarmUnit.REQUESTS),
        sentence=f"{words}; {_where(pool, late, late_of)}.",
        evidence=Evidence(kind=EvidenceKind.HEATMAP, seconds=pool.window_seconds, metric=metric),
        symptom=symptom,
    )


def _where(pool: PoolSituation, late: int, late_of: Callable[[Served], int]) -> str:
    """Name the instance with most of the late requests, and say whether only this instance or all instances are
    late.
    """
    worst: SeenInstance | None = max(pool.instances, key=lambda one: (late_of(one.served), one.id), default=None)
    if worst is None or not late_of(worst.served):
        return "the instances that served them are gone"
    part, fair = late_of(worst.served) / late, 1 / len(pool.instances)
    if len(pool.instances) == 1:
        return f"all of them on {worst.id}, its only instance"
    spread = "" if part > 2 * fair else ", so it is not a single instance"
    return f"{wording.share(part)} of the late ones were on {worst.id}{spread}"
