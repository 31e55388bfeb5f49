"""NoRouter, OperatorSilent, FiguresBehind: no router or no operator reports, or their reports have not been counted
yet, so the figures shown are old.
"""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level
from fairlead.advice.situations import PoolSituation

OPERATOR_SECONDS = 60.0
"""Time without a report, in seconds, after which the operator counts as absent. The operator reports every pool's state
at least every ten seconds.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield findings about missing reports. Missing routers count only if instances are desired."""
    if pool.live_routers == 0 and any(role.wanted for role in pool.roles):
        heard = "none ever did" if pool.unheard_seconds is None else f"the last was heard {wording.seconds(pool.unheard_seconds)} ago"
        yield _finding(
            pool, Cause.NO_ROUTER, f"No router reports on {pool.pool}, {heard}: nothing is measured", pool.unheard_seconds or 0.0
        )
    if pool.figures_behind_seconds:
        behind = wording.seconds(pool.figures_behind_seconds)
        words = f"Figures of {pool.pool} are {behind} behind, as the control API's roll-ups lag: whether it meets its SLO is not known"
        yield _finding(pool, Cause.FIGURES_BEHIND, words, pool.figures_behind_seconds)
    if pool.unseen_seconds > OPERATOR_SECONDS:
        silent = wording.seconds(pool.unseen_seconds)
        words = f"The operator has not reported on {pool.pool} for {silent}: nothing scales, starts or drains"
        yield _finding(pool, Cause.OPERATOR_SILENT, words, pool.unseen_seconds)


def _finding(pool: PoolSituation, cause: Cause, words: str, seconds: float) -> Finding:
    return Finding(
        pool=pool.pool,
        cause=cause,
        level=Level.BAD,
        harm=Harm(amount=seconds, unit=HarmUnit.SILENT_SECONDS),
        sentence=f"{words}.",
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=max(seconds, pool.window_seconds)),
    )
