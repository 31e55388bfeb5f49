"""HotInstance: one instance computes more than its share and misses the objectives, while the pool's other instances
meet them.
"""

from collections.abc import Iterator, Sequence

from fairlead.advice import wording
from fairlead.advice.findings import LATE_FIRST_TOKENS, Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy
from fairlead.advice.situations import ENOUGH_MINUTES, PoolSituation, SeenInstance, Served
from fairlead.amounts import amount
from fairlead.instances import Role
from fairlead.scaling.signals import ENOUGH_FINISHED

MUCH = 1.2
"""Multiple of its fair share of the prompt tokens that an instance must have computed to count as hot. A smaller excess
is normal, so another cause made the instance's requests late.
"""
MOST = 3
"""Maximum number of HotInstance findings per pool: if more instances are hot, the cause is not a single instance."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield at most MOST findings about hot instances. The instance with the most late first tokens comes first."""
    for role in (Role.BOTH, Role.PREFILL):
        serving = pool.accepting(role)
        hot = sorted((one for one in serving if _is_hot(pool, one, serving)), key=lambda one: (-_late(one.served), one.id))
        others = sum((one.served for one in serving if one not in hot), Served())
        if not hot or not others.ttft_judged or pool.exceeds(_late(others), others.ttft_judged):
            continue
        for one in hot[:MOST]:
            yield _finding(pool, one, serving, others)


def _late(served: Served) -> int:
    return served.ttft_judged - served.ttft_in_time


def _is_hot(pool: PoolSituation, one: SeenInstance, serving: Sequence[SeenInstance]) -> bool:
    seen = one.served
    if len(serving) < 2 or seen.ttft_judged < ENOUGH_FINISHED or not pool.exceeds(_late(seen), seen.ttft_judged):
        return False
    return _share(one, serving) > MUCH * _fair(one, serving)


def _share(one: SeenInstance, serving: Sequence[SeenInstance]) -> float:
    """Return the share of this instance in the prompt tokens that all serving instances computed."""
    total = sum(each.served.prefilled_tokens for each in serving)
    return one.served.prefilled_tokens / total if total else 0.0


def _fair(one: SeenInstance, serving: Sequence[SeenInstance]) -> float:
    """Return the share of the prompt tokens that this instance should compute according to its weight."""
    return one.weight / (sum(each.weight for each in serving) or 1.0)


def _finding(pool: PoolSituation, one: SeenInstance, serving: Sequence[SeenInstance], others: Served) -> Finding:
    met = wording.share(one.served.ttft_in_time / one.served.ttft_judged)
    rest = wording.share(others.ttft_in_time / others.ttft_judged)
    held = ""
    total = sum(each.sessions or 0 for each in serving)
    if one.sessions is not None and total:
        held = f" and holds {one.sessions} of {amount(total, 'session')}"
    remedy, then = None, ""
    if pool.can_drain and not one.minutes.last(one.minutes.late):
        then = wording.not_yet(one.minutes.late, one.minutes.had, ENOUGH_MINUTES)
    elif pool.can_drain:
        remedy = Remedy(kind="drain", words=f"draining {one.id}", instance=one.id)
        then = "; a drain moves its sessions to the other instances, and a new instance replaces it"
    return Finding(
        pool=pool.pool,
        cause=Cause.HOT_INSTANCE,
        subject=one.id,
        level=Level.BAD if pool.out_of_slo else Level.WARN,
        harm=Harm(amount=pool.per_second(_late(one.served)), unit=HarmUnit.REQUESTS),
        sentence=(
            f"{one.id} of {pool.pool} serves {met} of first tokens in time, the others {rest} (goal "
            f"{wording.percent(pool.slo.percentile)}): "
            f"it computes {wording.share(_share(one, serving))} of the prompt tokens (fair: {wording.share(_fair(one, serving))})"
            f"{held}{then}."
        ),
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=pool.window_seconds, instance=one.id),
        remedy=remedy,
        explains=frozenset({LATE_FIRST_TOKENS}),
    )
