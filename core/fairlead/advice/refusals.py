"""Refused: requests are refused. One finding for each reason, with a change that would end these refusals."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fairlead.advice import wording
from fairlead.advice.findings import Cause, Evidence, EvidenceKind, Finding, Harm, HarmUnit, Level, Remedy, refused
from fairlead.advice.situations import PoolSituation
from fairlead.amounts import amount
from fairlead.instances import InstanceState, Role
from fairlead.reports.rejections import RejectionReason
from fairlead.scaling.specs import ScalingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Why:
    words: str
    remedy: Remedy | None = None


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield a finding for each reason for which requests were refused. Its level is bad if the pool misses its
    objectives or cannot serve at all.
    """
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
            sentence=f"{pool.pool} refuses {wording.rate(rate)}: {why.words}.",
            evidence=Evidence(kind=EvidenceKind.REJECTIONS, seconds=pool.window_seconds),
            remedy=why.remedy,
            symptom=refused(reason),
        )


def _why(pool: PoolSituation, word: str) -> _Why:
    """Return the sentence about a refusal reason: the usual sentence, or one with observations from this pool."""
    try:
        reason = RejectionReason(word)
    except ValueError:
        return _Why(words=f"the routers' reason is {word}")
    ttft, tpot = wording.seconds(pool.slo.ttft_seconds), wording.seconds(pool.slo.tpot_seconds)
    usual = _Why(words=reason.facts.finding.format(ttft=ttft, tpot=tpot))
    closer = _CLOSER.get(reason)
    return usual if closer is None else closer(pool, usual)


def _after_prefill(_pool: PoolSituation, usual: _Why) -> _Why:
    return replace(usual, remedy=Remedy(kind="early-rejection", words="early rejection at arrival", fields={"mode": "Load"}))


def _expired(pool: PoolSituation, usual: _Why) -> _Why:
    if pool.early_rejection.mode != "Disabled":
        return usual
    remedy = Remedy(kind="early-rejection", words="early rejection", fields={"mode": "Load"})
    return _Why(words=f"{usual.words}; early rejection would answer them at once", remedy=remedy)


def _failed(pool: PoolSituation, usual: _Why) -> _Why:
    failing = [one.id for one in sorted(pool.instances, key=lambda one: (-one.served.failed, one.id)) if one.served.failed]
    where = f", most on {wording.listed(failing)}" if failing else ""
    return _Why(words=f"{usual.words}{where}")


def _without_instances(pool: PoolSituation, _usual: _Why) -> _Why:
    cordoned = sorted(one.id for one in pool.instances if one.state is InstanceState.CORDONED)
    if not cordoned or any(one.accepting for one in pool.instances):
        present = amount(len(pool.instances), "instance")
        return _Why(words=f"none of {present} accepts requests" if pool.instances else "it has no instance")
    words = f"all that could serve are cordoned ({wording.listed(cordoned)})"
    return _Why(words=words, remedy=Remedy(kind="uncordon", words=f"uncordoning {cordoned[0]}", instance=cordoned[0]))


def _scaled_to_zero(pool: PoolSituation, usual: _Why) -> _Why:
    role = pool.roles[0] if len(pool.roles) == 1 else None
    if role is None or not pool.can_scale or pool.scaling.mode is ScalingMode.SLO or role.wanted or role.most < 1:
        return usual
    named = None if role.role is Role.BOTH else role.role
    return replace(usual, remedy=Remedy(kind="scale", words="1 replica", replicas=1, role=named))


_CLOSER: Mapping[RejectionReason, Callable[[PoolSituation, _Why], _Why]] = {
    RejectionReason.AFTER_PREFILL: _after_prefill,
    RejectionReason.QUEUE_TIMEOUT: _expired,
    RejectionReason.NO_INSTANCES: _without_instances,
    RejectionReason.SCALED_TO_ZERO: _scaled_to_zero,
    RejectionReason.UPSTREAM_FAILED: _failed,
}
"""By refusal reason, the function that explains the refusals more precisely from the pool's state."""
