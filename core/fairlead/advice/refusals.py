"""Refused: requests turned away, one finding for each reason, with what would end it."""

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy, refused
from fairlead.advice.situations import PoolSituation
from fairlead.instances import InstanceState, Role
from fairlead.reports.rejections import RejectionReason
from fairlead.scaling.specs import ScalingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Why:
    words: str
    remedy: Remedy | None = None


def find(pool: PoolSituation) -> Iterator[Finding]:
    """A finding for each reason; bad where the pool misses its objectives, or nothing of it can serve."""
    for reason, number in sorted(pool.refused.items()):
        if number <= 0:
            continue
        why = _why(pool, reason)
        rate = pool.per_second(number)
        yield Finding(
            pool=pool.pool,
            cause=Cause.REFUSED,
            subject=reason,
            level=Level.BAD if pool.out_of_slo else Level.WARN,
            harm=Harm(amount=rate, unit=HarmUnit.REQUESTS),
            sentence=f"{pool.pool} refuses {wording.rate(rate)} requests/s: {why.words}.",
            evidence=Evidence(kind=EvidenceKind.REJECTIONS, seconds=pool.window_seconds),
            remedy=why.remedy,
            symptom=refused(reason),
        )


def _why(pool: PoolSituation, reason: str) -> _Why:
    ttft, tpot = wording.seconds(pool.slo.ttft_seconds), wording.seconds(pool.slo.tpot_seconds)
    match reason:
        case RejectionReason.PREDICTED_TTFT:
            return _Why(words=f"every instance was predicted to miss the TTFT target of {ttft} when they came")
        case RejectionReason.DECODE_OVERLOADED:
            return _Why(words=f"decoding was predicted to miss the TPOT target of {tpot} when they came")
        case RejectionReason.AFTER_PREFILL:
            remedy = Remedy(kind="early-rejection", words="early rejection at arrival", fields={"mode": "Load"})
            words = f"decoding would miss the TPOT target of {tpot}, found when their prompts were computed in vain"
            return _Why(words=f"{words}; mode Load refuses them at arrival", remedy=remedy)
        case RejectionReason.QUEUE_FULL:
            return _Why(words="routers' queues are full")
        case RejectionReason.QUEUE_TIMEOUT if pool.early_rejection.mode == "Disabled":
            remedy = Remedy(kind="early-rejection", words="early rejection", fields={"mode": "Load"})
            return _Why(words="they waited in routers' queues until they expired; early rejection would answer them at once", remedy=remedy)
        case RejectionReason.QUEUE_TIMEOUT:
            return _Why(words="they waited in routers' queues until they expired")
        case RejectionReason.NO_INSTANCES:
            return _without_instances(pool)
        case RejectionReason.POLICY_FAILED:
            return _Why(words="the pool's routing policy failed on them; the routers' logs say how")
        case RejectionReason.SCALED_TO_ZERO:
            return _scaled_to_zero(pool)
        case RejectionReason.UPSTREAM_FAILED:
            failing = [one.id for one in sorted(pool.instances, key=lambda one: (-one.served.failed, one.id)) if one.served.failed]
            where = f", most on {wording.listed(failing)}" if failing else ""
            return _Why(words=f"engines failed before the first byte on every try{where}")
        case RejectionReason.SHUTTING_DOWN:
            return _Why(words="a router was shutting down; clients should try again")
        case _:
            return _Why(words=f"the routers' reason is {reason}")


def _without_instances(pool: PoolSituation) -> _Why:
    cordoned = sorted(one.id for one in pool.instances if one.state is InstanceState.CORDONED)
    if not cordoned or any(one.accepting for one in pool.instances):
        present = wording.count(len(pool.instances), "instance")
        return _Why(words=f"none of {present} accepts requests" if pool.instances else "it has no instance")
    words = f"all that could serve are cordoned ({wording.listed(cordoned)})"
    return _Why(words=words, remedy=Remedy(kind="uncordon", words=f"uncordoning {cordoned[0]}", instance=cordoned[0]))


def _scaled_to_zero(pool: PoolSituation) -> _Why:
    role = pool.roles[0] if len(pool.roles) == 1 else None
    words = "no instance is desired"
    if role is None or not pool.can_scale or pool.scaling.mode is ScalingMode.SLO or role.wanted or role.most < 1:
        return _Why(words=words)
    named = None if role.role is Role.BOTH else role.role
    return _Why(words=words, remedy=Remedy(kind="scale", words="1 replica", replicas=1, role=named))
