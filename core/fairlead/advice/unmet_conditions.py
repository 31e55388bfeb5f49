"""ConditionNotMet: a condition of the InferencePool object reports a problem. The finding uses the operator's words."""

from collections.abc import Iterator

from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, condition
from fairlead.advice.situations import PoolSituation, SeenCondition
from fairlead.pool_states import INSTANCES_STARTING

SETTLED_SECONDS = 30.0
"""Seconds for which a condition must have lasted before it makes a finding. Routers take a new table within seconds, so
RingSynced=False for a shorter time is normal during a change.
"""

_WARNINGS = {"Degraded": "True", "ScalingLimited": "True", "GatewayReady": "False", "RingSynced": "False"}
"""Maps a condition's type to the status for which a finding is made. The condition Ready is handled separately. The
objectives and the silence of the API and of the operator have findings of their own; the other conditions only describe
progress.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield one finding for each unmet condition."""
    ready = next((one for one in pool.conditions if one.type == "Ready"), None)
    if ready is not None and ready.status == "False":
        yield from _not_ready(pool, ready)
    for one in pool.conditions:
        young = one.type == "RingSynced" and (one.age_seconds or 0.0) < SETTLED_SECONDS
        if _WARNINGS.get(one.type) == one.status and not young:
            yield _finding(pool, one, Level.WARN, 0.0, f"{pool.pool} is {one.type if one.status == 'True' else f'not {one.type}'}")


def _not_ready(pool: PoolSituation, ready: SeenCondition) -> Iterator[Finding]:
    """Yield the finding for Ready=False. Yield no finding if the reason is that instances are starting and all desired
    instances serve by now, because Ready will become True in a moment.
    """
    missing = float(sum(max(0, role.wanted - len(pool.accepting(role.role))) for role in pool.roles))
    if ready.reason != INSTANCES_STARTING:
        yield _finding(pool, ready, Level.BAD, missing, f"{pool.pool} is not ready")
    elif missing:
        yield _finding(pool, ready, Level.WARN, missing, f"{pool.pool} is starting instances")


def _finding(pool: PoolSituation, seen: SeenCondition, level: Level, missing: float, words: str) -> Finding:
    told = seen.message.rstrip(".") or seen.reason
    return Finding(
        pool=pool.pool,
        cause=Cause.CONDITION_NOT_MET,
        subject=seen.type,
        level=level,
        harm=Harm(amount=missing, unit=HarmUnit.INSTANCES),
        sentence=f"{words}: {told}.",
        evidence=Evidence(kind=EvidenceKind.INSTANCES if missing else EvidenceKind.POOL, seconds=pool.window_seconds),
        symptom=condition(seen.type, seen.reason),
    )
