"""BudgetBurns: the error budget of 30 days is used up faster than allowed."""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level
from fairlead.advice.situations import PoolSituation
from fairlead.amounts import amount


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for the active alert whose error budget burns fastest."""
    if not pool.burns:
        return
    worst = max(pool.burns, key=lambda one: (one.burn, one.name))
    days = 30 / worst.burn if worst.burn > 0 else 30.0
    lasts = f"{days:.1f} days" if days >= 1 else amount(days * 24, "hour")
    yield Finding(
        pool=pool.pool,
        cause=Cause.BUDGET_BURNS,
        subject=worst.name,
        level=Level.WARN,
        harm=Harm(amount=worst.excess_per_second, unit=HarmUnit.REQUESTS),
        sentence=(
            f"{pool.pool} used its error budget {worst.burn:.1f} times faster than allowed over {_span(worst.seconds)} (alert above "
            f"{worst.threshold:.1f}): at that rate a whole budget of 30 days would last {lasts}."
        ),
        evidence=Evidence(kind=EvidenceKind.SLO, seconds=worst.seconds),
    )


def _span(seconds: float) -> str:
    """Return the words for an alert's window: the window's name on the SLO page or, if the pool is younger than the
    window, a time span.
    """
    if seconds % 3600:
        return wording.seconds(seconds)
    return f"{seconds / 86_400:g} d" if seconds >= 86_400 else f"{seconds / 3600:g} h"
