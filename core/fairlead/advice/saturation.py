"""Saturated: a role's instances have more work than they can do in time, so requests are late or refused."""

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
from fairlead.advice.remedy_words import number_words
from fairlead.advice.situations import PoolSituation, SeenRole, Served
from fairlead.instances import Role
from fairlead.reports.rejections import FOR_DECODE, FOR_PREFILL, RejectionReason
from fairlead.scaling.remedies import Confirmed, Simulated, enough_instances
from fairlead.scaling.sizing import need
from fairlead.scaling.specs import ScalingMode

FRESH_SECONDS = 30.0
"""Signals older than this many seconds say nothing about the present."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each role whose requests miss the objectives and that more instances would help. The
    simulation of recorded requests decides whether they would help; without a simulation, the rate of arriving work
    decides.
    """
    found = pool.simulated
    if found is not None and (role := pool.role(found.role)) is not None:
        chosen = enough_instances(found)
        if chosen is not None:
            yield from _of_role(pool, role, *_confirmed(pool, role, found, chosen))
        if found.unlike is None:
            return
    if pool.signals is None or pool.signals.age_seconds > FRESH_SECONDS:
        return
    for signals in pool.signals.roles:
        role = pool.role(signals.role)
        if role is None or not signals.serving or not signals.knows_work:
            continue
        needed = need(signals, pool.slo, pool.capacity, pool.scaling, refuses_late=pool.early_rejection.mode != "Disabled")
        if needed.instances is not None and needed.instances > signals.serving * (1 + pool.scaling.tolerance):
            yield from _of_role(pool, role, *_estimated(pool, role))


def _of_role(pool: PoolSituation, role: SeenRole, remedy: Remedy | None, outcome: str) -> Iterator[Finding]:
    prefills, decodes = role.role is not Role.DECODE, role.role is not Role.PREFILL
    reasons = (FOR_PREFILL if prefills else frozenset()) | (FOR_DECODE if decodes else frozenset[RejectionReason]())
    turned_away = sum(pool.refused.get(reason, 0) for reason in reasons)
    late, judged = _late(pool.served, role.role)
    if not pool.exceeds(late + turned_away, judged + turned_away):
        return
    explained = {refused(reason) for reason in reasons}
    explained |= ({LATE_FIRST_TOKENS} if prefills else set()) | ({SLOW_TOKENS} if decodes else set())
    harm = pool.per_second(late + turned_away)
    yield Finding(
        pool=pool.pool,
        cause=Cause.SATURATED,
        subject=role.role.value,
        level=Level.BAD,
        harm=Harm(amount=harm, unit=HarmUnit.REQUESTS),
        sentence=f"{_harmed(pool, late, judged, turned_away)} because {_why(pool, role)}; {outcome}.",
        evidence=Evidence(
            kind=EvidenceKind.HEATMAP,
            seconds=pool.window_seconds,
            metric="pending_prefill_tokens" if prefills else "running",
        ),
        remedy=remedy,
        explains=frozenset(explained),
    )


def _late(served: Served, role: Role) -> tuple[int, int]:
    """Return two numbers of requests: requests that missed the targets for which the role is responsible, and requests
    that were judged by these targets.
    """
    match role:
        case Role.PREFILL:
            return served.by_ttft
        case Role.DECODE:
            return served.by_tpot
    return served.by_both


def _harmed(pool: PoolSituation, late: int, judged: int, turned_away: int) -> str:
    parts = []
    if turned_away:
        parts.append(f"refuses {wording.rate(pool.per_second(turned_away))}")
    if judged and pool.exceeds(late, judged):
        parts.append(f"serves {wording.share(1 - late / judged)} of the other requests in time" if turned_away else "")
        parts[-1] = parts[-1] or f"serves {wording.share(1 - late / judged)} of requests in time"
        parts[-1] += f" (goal {wording.percent(pool.slo.percentile)})"
    if not parts:
        parts.append(f"is late with {wording.rate(pool.per_second(late))}")
    return f"{pool.pool} {' and '.join(parts)}"


def _why(pool: PoolSituation, role: SeenRole) -> str:
    accepting = pool.accepting(role.role)
    serving = wording.of_role(role.role, len(accepting))
    loaded = [one for one in accepting if one.load is not None and one.load >= pool.scaling.target_load]
    if not loaded:
        return f"more work arrives than {serving} can serve in time"
    return f"{len(loaded)} of {serving} {'is' if len(accepting) == 1 else 'are'} saturated"


def _confirmed(pool: PoolSituation, role: SeenRole, found: Simulated, chosen: Confirmed) -> tuple[Remedy | None, str]:
    """Return the plan that the simulation confirms, and the plan's effect in words."""
    replicas, words = round(chosen.value), number_words(found, chosen)
    if found.reach.exceeds(1 - found.goal):
        words += f"; no number of instances serves {wording.share(found.reach.share)} in time"
    return _remedy(pool, role, replicas, words, found.simulation)


def _estimated(pool: PoolSituation, role: SeenRole) -> tuple[Remedy | None, str]:
    """Return a plan and its description for the case that no simulation confirms a number of instances.

    The plan then uses an estimate that has been stable for minutes, and the description calls the number an estimate.
    Without an estimate, the plan is None and the description says that the number is not known.
    """
    sizing = pool.sizing
    if sizing is None or sizing.role is not role.role or (sizing.is_underway and sizing.found is None):
        return None, "the number of replicas that it needs is being simulated"
    unlike = None if sizing.found is None else sizing.found.unlike
    why = unlike or sizing.reason or "the number of replicas that it needs is not simulated yet"
    if sizing.estimate is None or sizing.estimate <= len(pool.accepting(role.role)):
        return None, f"the number of replicas that it needs is not known: {why}"
    noun = wording.of_role(role.role, sizing.estimate, "replica")
    words = f"an estimate from rates alone says that it needs {noun}; no simulation confirms this: {why}"
    return _remedy(pool, role, sizing.estimate, words, None)


def _remedy(pool: PoolSituation, role: SeenRole, replicas: int, words: str, simulation: str | None) -> tuple[Remedy | None, str]:
    """Return the plan for this number of replicas, or the reason why no plan can be made."""
    if not pool.can_scale:
        return None, f"{words}; its engines are started elsewhere"
    if pool.scaling.mode is ScalingMode.SLO:
        return None, f"{words}; spec.scaling sets the number"
    if role.wanted >= replicas:
        return None, f"{role.wanted} are desired already and starting"
    allowed = min(replicas, role.most)
    if allowed <= role.wanted:
        return None, f"{words}; maxReplicas {role.most} does not allow more"
    if allowed < replicas:
        words += f"; maxReplicas allows {role.most}"
    named = None if role.role is Role.BOTH else role.role
    button = wording.of_role(role.role, allowed, "replica")
    if simulation is None or allowed < replicas:
        button += " (estimate)"
    return Remedy(kind="scale", words=button, replicas=allowed, role=named, simulation=simulation), words
