"""ScalingAdvised: a change that the operator recommends but does not make, because the scaling mode is Advise or a
bound forbids the change.
"""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import LATE_FIRST_TOKENS, Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy
from fairlead.advice.situations import PoolSituation, SeenAdvice
from fairlead.instances import Role
from fairlead.scaling.recommendations import Controller, Hold, Verdict
from fairlead.scaling.specs import RatioMode, ScalingMode

FRESH_SECONDS = 3600.0
"""Age, in seconds, up to which a recommendation counts as current. A recommendation that is still valid is recorded
again every half hour.
"""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield one finding for each recommendation that still applies to the current number of instances."""
    for one in pool.advised:
        if _is_of_former_mode(pool, one):
            continue
        role = pool.role(one.role)
        if role is None or role.wanted != one.current or one.recommended == one.current or one.age_seconds > FRESH_SECONDS:
            continue
        is_advised = one.verdict == Verdict.ADVISED and one.replicas != one.current
        if is_advised or one.hold == Hold.AT_BOUND:
            yield _finding(pool, one, role.most)


def _is_of_former_mode(pool: PoolSituation, one: SeenAdvice) -> bool:
    """Return whether the controller that gave the advice is switched off now. A controller that is switched off does
    not withdraw its advice.
    """
    if one.controller == Controller.RATIO:
        return pool.ratio_mode is RatioMode.FIXED
    return pool.scaling.mode is ScalingMode.FIXED


def _finding(pool: PoolSituation, one: SeenAdvice, most: int) -> Finding:
    up = one.recommended > one.current
    ago = wording.seconds(one.age_seconds)
    number = wording.of_role(one.role, _number(one), "replica")
    return Finding(
        pool=pool.pool,
        cause=Cause.SCALING_ADVISED,
        subject=f"{one.controller} {one.role}",
        level=Level.WARN if up else Level.NOTE,
        harm=Harm(amount=float(abs(_number(one) - one.current)), unit=HarmUnit.INSTANCES),
        sentence=f"The operator advised {number} of {pool.pool} instead of {one.current}, {ago} ago: {one.reason.rstrip('.')}.",
        evidence=Evidence(kind=EvidenceKind.SCALING, seconds=max(one.age_seconds, pool.window_seconds)),
        remedy=_remedy(pool, one, most),
        symptom=LATE_FIRST_TOKENS if up and one.controller == Controller.SCALING else None,
    )


def _number(one: SeenAdvice) -> int:
    """Return the number of instances to mention: the number to set now or, if a bound forbids that change, the
    recommended number.
    """
    return one.recommended if one.replicas == one.current else one.replicas


def _remedy(pool: PoolSituation, one: SeenAdvice, most: int) -> Remedy | None:
    if not pool.can_scale or one.verdict != Verdict.ADVISED:
        return None
    if one.controller == Controller.RATIO:
        if pool.ratio_mode is RatioMode.AUTO:
            return None
        return Remedy(kind="ratio", words="ratio mode Auto", fields={"mode": RatioMode.AUTO.value})
    number = min(one.replicas, most)
    if pool.scaling.mode is ScalingMode.SLO or number == one.current:
        return None
    named = None if one.role is Role.BOTH else one.role
    return Remedy(kind="scale", words=wording.of_role(one.role, number, "replica"), replicas=number, role=named)
