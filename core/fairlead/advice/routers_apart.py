"""RoutersApart: several routers of a pool decide separately, so each router learns of the other routers' decisions
seconds later.
"""

from collections.abc import Iterator

from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, apart
from fairlead.advice.situations import PoolSituation
from fairlead.reports.shares import Apart

WINDOW_SECONDS = 10.0
"""Time, in seconds, for which a router counts as live after its last report."""

_WHY: dict[str, str] = {
    Apart.NOT_FOUND: "they do not know the other routers' addresses; set FAIRLEAD_ROUTER_ASK_HOST at each",
    Apart.NO_ANSWER: "the other routers do not answer; let routers reach each other at FAIRLEAD_ROUTER_ASK_HOST",
    Apart.OTHER_RELEASE: "they are of different releases; finish the upgrade of the routers",
    Apart.AFTER_PREFILL: "early rejection AfterPrefill needs each answer at once; Load or Predicted lets one router decide",
}


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each reason why routers decide alone."""
    for why, count in sorted(pool.apart.items()):
        words = _WHY.get(why, why)
        yield Finding(
            pool=pool.pool,
            cause=Cause.ROUTERS_APART,
            subject=why,
            symptom=apart(why),
            level=Level.WARN,
            harm=Harm(amount=float(count), unit=HarmUnit.ROUTERS),
            sentence=(
                f"{count} of {pool.live_routers} routers decide for {pool.pool} separately, and know the other routers' "
                f"work seconds late: {words}."
            ),
            evidence=Evidence(kind=EvidenceKind.POOL, seconds=WINDOW_SECONDS),
        )
