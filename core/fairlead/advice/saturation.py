"""Saturated: a role's instances have more work than they can do in time, and requests are late or refused for it."""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import (
    LATE_FIRST_TOKENS,
    SLOW_TOKENS,
    Cause,
    Evidence,
    EvidenceKind,
    Finding,
    Harm,
    HarmUnit,
    Level,
    Remedy,
    refused,
)
from fairlead.advice.situations import PoolSituation, SeenRole
from fairlead.instances import Role
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason
from fairlead.scaling.recommendations import Need
from fairlead.scaling.signals import RoleSignals
from fairlead.scaling.sizing import need, whole_instances
from fairlead.scaling.specs import ScalingMode

FRESH_SECONDS = 30.0
"""Signals older than this say nothing about now."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """A finding for each role that is needed in greater number than it serves, where requests are missed for it."""
    if pool.signals is None or pool.signals.age_seconds > FRESH_SECONDS:
        return
    for signals in pool.signals.roles:
        role = pool.role(signals.role)
        if role is None or not signals.serving or not signals.knows_work:
            continue
        needed = need(signals, pool.slo, pool.capacity, pool.scaling)
        if needed.instances is not None and needed.instances > signals.serving * (1 + pool.scaling.tolerance):
            yield from _of_role(pool, role, signals, needed)


def _of_role(pool: PoolSituation, role: SeenRole, signals: RoleSignals, needed: Need) -> Iterator[Finding]:
    prefills, decodes = role.role is not Role.DECODE, role.role is not Role.PREFILL
    reasons = (FOR_PREFILL if prefills else frozenset()) | (FOR_DECODE if decodes else frozenset[RejectionReason]())
    turned_away = sum(pool.refused.get(reason, 0) for reason in reasons)
    served = pool.served
    late = served.late if prefills and decodes else served.ttft_judged - served.ttft_in_time if prefills else 0
    if decodes and not prefills:
        late = served.tpot_judged - served.tpot_in_time
    if not pool.exceeds(late + turned_away, served.ended + turned_away):
        return
    remedy, outcome = _remedy(pool, role, whole_instances(needed.instances or 0.0))
    explained = {refused(reason) for reason in reasons}
    explained |= ({LATE_FIRST_TOKENS} if prefills else set()) | ({SLOW_TOKENS} if decodes else set())
    harm = pool.per_second(late + turned_away)
    yield Finding(
        pool=pool.pool,
        cause=Cause.SATURATED,
        subject=role.role.value,
        level=Level.BAD,
        harm=Harm(amount=harm, unit=HarmUnit.REQUESTS),
        sentence=f"{_harmed(pool, late, served.ended, turned_away)} because {_why(pool, role, signals, needed)}; {outcome}.",
        evidence=Evidence(
            kind=EvidenceKind.HEATMAP,
            seconds=pool.window_seconds,
            metric="pending_prefill_tokens" if prefills else "running",
        ),
        remedy=remedy,
        explains=frozenset(explained),
    )


def _harmed(pool: PoolSituation, late: int, ended: int, turned_away: int) -> str:
    parts = []
    if turned_away:
        parts.append(f"refuses {wording.rate(pool.per_second(turned_away))} requests/s")
    if ended and pool.exceeds(late, ended):
        parts.append(f"serves {wording.share(1 - late / ended)} of the others in time" if turned_away else "")
        parts[-1] = parts[-1] or f"serves {wording.share(1 - late / ended)} of requests in time"
        parts[-1] += f" (goal {wording.percent(pool.slo.percentile)})"
    if not parts:
        parts.append(f"is late with {wording.rate(pool.per_second(late))} requests/s")
    return f"{pool.pool} {' and '.join(parts)}"


def _why(pool: PoolSituation, role: SeenRole, signals: RoleSignals, needed: Need) -> str:
    serving = wording.of_role(role.role, signals.serving)
    loaded = [one for one in pool.accepting(role.role) if one.load is not None and one.load >= pool.scaling.target_load]
    work = f"what arrives needs {needed.instances or 0.0:.1f}"
    if not loaded:
        return f"{work} and {serving} serve{'s' if signals.serving == 1 else ''}"
    verb = "is" if signals.serving == 1 else "are"
    return f"{len(loaded)} of {serving} {verb} saturated ({work})"


def _remedy(pool: PoolSituation, role: SeenRole, replicas: int) -> tuple[Remedy | None, str]:
    """The plan that would help, and what it would bring in words."""
    noun = wording.of_role(role.role, replicas, "replica")
    if not pool.can_scale:
        return None, f"{noun} would serve it; its engines are started elsewhere"
    if pool.scaling.mode is ScalingMode.SLO:
        return None, f"{noun} would serve it; spec.scaling sets the number"
    if role.wanted >= replicas:
        return None, f"{role.wanted} are wanted already and start"
    allowed = min(replicas, role.most)
    if allowed <= role.wanted:
        return None, f"{noun} would serve it, and maxReplicas {role.most} does not allow more"
    words = f"{noun} would serve it"
    if allowed < replicas:
        words += f", maxReplicas allows {role.most}"
    named = None if role.role is Role.BOTH else role.role
    return Remedy(kind="scale", words=wording.of_role(role.role, allowed, "replica"), replicas=allowed, role=named), words
