"""NoRouter, RouterSilent, OperatorSilent, FiguresBehind: all routers, some routers or the operator stopped reporting,
or reports have not been counted yet, so the figures shown are old.
"""

from collections.abc import Iterator, Sequence

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, apart
from fairlead.advice.situations import PoolSituation, SeenSilentRouter
from fairlead.amounts import amount
from fairlead.reports.shares import Apart

OPERATOR_SECONDS = 60.0
"""Time without a report, in seconds, after which the operator counts as absent. The operator reports every pool's state
at least every ten seconds.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield findings about missing reports. A pool without any router is a finding only if instances are desired."""
    if pool.live_routers == 0 and any(role.wanted for role in pool.roles):
        heard = "none ever did" if pool.unheard_seconds is None else f"the last report came {wording.seconds(pool.unheard_seconds)} ago"
        yield _finding(
            pool, Cause.NO_ROUTER, f"No router reports on {pool.pool}, {heard}: nothing is measured", pool.unheard_seconds or 0.0
        )
    if pool.silent_routers and pool.live_routers:
        yield _routers_silent(pool)
    if pool.figures_behind_seconds:
        behind = wording.seconds(pool.figures_behind_seconds)
        words = f"Figures of {pool.pool} are {behind} behind, because the control API's roll-ups lag: it is not known whether the pool meets its SLO"
        yield _finding(pool, Cause.FIGURES_BEHIND, words, pool.figures_behind_seconds)
    if pool.unseen_seconds > OPERATOR_SECONDS:
        silent = wording.seconds(pool.unseen_seconds)
        words = f"The operator has not reported on {pool.pool} for {silent}: nothing scales, starts or drains"
        yield _finding(pool, Cause.OPERATOR_SILENT, words, pool.unseen_seconds)


def _routers_silent(pool: PoolSituation) -> Finding:
    silent = sorted(pool.silent_routers, key=lambda one: -one.seconds)
    replaced = all(one.joined_since >= len(silent) for one in silent)
    others = amount(pool.live_routers, "other router", "serve")
    alone = len(silent) == 1
    look = "see whether it still runs and gets requests" if alone else "see whether they still run and get requests"
    return Finding(
        pool=pool.pool,
        cause=Cause.ROUTER_SILENT,
        level=Level.NOTE if replaced else Level.WARN,
        harm=Harm(amount=float(len(silent)), unit=HarmUnit.ROUTERS),
        sentence=f"{_which(pool.pool, silent)}; {others}: {'as many routers have joined since' if replaced else look}.",
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=silent[0].seconds),
        explains=frozenset({apart(Apart.NO_ANSWER)}) if pool.live_routers == 1 else frozenset(),
    )


def _which(pool: str, silent: Sequence[SeenSilentRouter]) -> str:
    requests = sum(one.requests for one in silent)
    held = f", with {amount(requests, 'request')} in progress" if requests else ""
    if len(silent) == 1:
        return f"{silent[0].name} has not reported on {pool} for {wording.seconds(silent[0].seconds)} and has not said goodbye{held}"
    names = wording.listed([f"{one.name} for {wording.seconds(one.seconds)}" for one in silent])
    return f"{amount(len(silent), 'router', 'have')} not reported on {pool} and have not said goodbye{held}: {names}"


def _finding(pool: PoolSituation, cause: Cause, words: str, seconds: float) -> Finding:
    return Finding(
        pool=pool.pool,
        cause=cause,
        level=Level.BAD,
        harm=Harm(amount=seconds, unit=HarmUnit.SILENT_SECONDS),
        sentence=f"{words}.",
        evidence=Evidence(kind=EvidenceKind.POOL, seconds=max(seconds, pool.window_seconds)),
    )
