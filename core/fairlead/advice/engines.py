"""InstancesLost and InstanceFailing: engines that cannot be reached, are lost again and again, or fail requests."""

from collections.abc import Iterator

from fairlead.advice import wording
from fairlead.advice.findings import (
    Cause,
    Evidence,
    EvidenceKind,
    Finding,
    Harm,
    HarmUnit,
    Level,
    Remedy,
    condition,
    failing,
    refused,
)
from fairlead.advice.situations import PoolSituation, SeenInstance
from fairlead.instances import InstanceState
from fairlead.reports.rejections import RejectionReason

AGAIN = 2
"""Losses of one instance within an hour that are no accident."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """One finding for all that are lost now, and one for each other that was lost again and again or fails requests."""
    lost = [one for one in pool.instances if one.state is InstanceState.LOST]
    if lost:
        yield _lost(pool, lost)
    for one in pool.instances:
        if one.state is InstanceState.LOST:
            continue
        if one.losses >= AGAIN:
            yield _lost_again(pool, one)
        if pool.exceeds(one.served.failed, one.served.requests):
            yield _failing(pool, one)


def _lost(pool: PoolSituation, lost: list[SeenInstance]) -> Finding:
    named = wording.listed([f"{one.id} ({one.reason})" if one.reason else one.id for one in lost])
    left = sum(one.accepting for one in pool.instances)
    one_of = f"{len(lost)} of {wording.count(len(pool.instances), 'instance')} of {pool.pool} {'is' if len(lost) == 1 else 'are'} lost"
    return Finding(
        pool=pool.pool,
        cause=Cause.INSTANCES_LOST,
        level=Level.BAD if pool.out_of_slo or not left else Level.WARN,
        harm=Harm(amount=float(len(lost)), unit=HarmUnit.INSTANCES),
        sentence=f"{one_of}: {named}; {left} still {'takes' if left == 1 else 'take'} requests.",
        evidence=Evidence(kind=EvidenceKind.INSTANCES, seconds=3600.0),
        explains=frozenset({condition("Degraded", "InstancesLost"), condition("Ready", "InstancesLost")}),
    )


def _lost_again(pool: PoolSituation, one: SeenInstance) -> Finding:
    return Finding(
        pool=pool.pool,
        cause=Cause.INSTANCES_LOST,
        subject=one.id,
        level=Level.WARN,
        harm=Harm(amount=1.0, unit=HarmUnit.INSTANCES),
        sentence=f"{one.id} of {pool.pool} was lost {one.losses} times in the last hour{_replaced(pool)}.",
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=3600.0, instance=one.id),
        remedy=_drain(pool, one),
    )


def _failing(pool: PoolSituation, one: SeenInstance) -> Finding:
    tries = f"{one.served.failed} of {wording.count(one.served.requests, 'request')}"
    return Finding(
        pool=pool.pool,
        cause=Cause.INSTANCE_FAILING,
        subject=one.id,
        level=Level.BAD if pool.out_of_slo else Level.WARN,
        harm=Harm(amount=pool.per_second(one.served.failed), unit=HarmUnit.REQUESTS),
        sentence=f"{one.id} of {pool.pool} failed {tries} that were sent to it{_replaced(pool)}.",
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=pool.window_seconds, instance=one.id),
        remedy=_drain(pool, one),
        explains=frozenset({refused(RejectionReason.UPSTREAM_FAILED), failing(one.id)}),
    )


def _drain(pool: PoolSituation, one: SeenInstance) -> Remedy | None:
    if not pool.can_drain or one.state is InstanceState.DRAINING:
        return None
    return Remedy(kind="drain", words=f"draining {one.id}", instance=one.id)


def _replaced(pool: PoolSituation) -> str:
    return "; drained, it is replaced" if pool.can_drain else ""
