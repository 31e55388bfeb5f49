"""InstancesLost, InstanceFailing, EngineStalled, EngineSlow and KvNotHandedOn: engines that cannot be reached, are lost
again and again, fail requests, make no progress, or hand no KV blocks on.
"""

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
from fairlead.advice.situations import ENOUGH_MINUTES, PoolSituation, SeenInstance
from fairlead.amounts import amount
from fairlead.instances import InstanceState, Role
from fairlead.reports.engines import EngineTrouble
from fairlead.reports.rejections import RejectionReason

AGAIN = 2
"""Number of losses of one instance within an hour from which the losses count as repeated, not as a coincidence."""


def find(pool: PoolSituation) -> Iterator[Finding]:
    """Yield one finding for all engines that are lost now, one for all engines that do not pass on KV blocks, and one
    for each other engine that was lost repeatedly or fails requests.
    """
    silent = [one for one in pool.instances if EngineTrouble.KV_NOT_HANDED_ON in one.troubles]
    if silent:
        yield _not_handed_on(pool, silent)
    lost = [one for one in pool.instances if one.state is InstanceState.LOST]
    if lost:
        yield _lost(pool, lost)
    for one in pool.instances:
        if one.state is InstanceState.LOST:
            continue
        if EngineTrouble.ENGINE_STALLED in one.troubles:
            yield _stalled(pool, one)
        elif EngineTrouble.ENGINE_SLOW in one.troubles:
            yield _slow(pool, one)
        if one.losses >= AGAIN:
            yield _lost_again(pool, one)
        if pool.exceeds(one.served.failed, one.served.requests):
            yield _failing(pool, one)


def _lost(pool: PoolSituation, lost: list[SeenInstance]) -> Finding:
    named = wording.listed([f"{one.id} ({one.reason})" if one.reason else one.id for one in lost])
    left = sum(one.accepting for one in pool.instances)
    one_of = f"{len(lost)} of {amount(len(pool.instances), 'instance')} of {pool.pool} {'is' if len(lost) == 1 else 'are'} lost"
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
        sentence=f"{one.id} of {pool.pool} was lost {amount(one.losses, 'time')} in the last hour{_replaced(pool)}.",
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=3600.0, instance=one.id),
        remedy=_drain(pool, one),
    )


def _stalled(pool: PoolSituation, one: SeenInstance) -> Finding:
    seconds = one.troubles[EngineTrouble.ENGINE_STALLED]
    lasts = f" for {wording.seconds(seconds)}" if seconds else ""
    others = sum(other.accepting and EngineTrouble.ENGINE_STALLED not in other.troubles for other in pool.instances)
    left = f"{others} of {amount(len(pool.instances), 'instance')} can take {'the' if one.stalled_ranks else 'its'} requests"
    who, has = f"The engine of {one.id}", "has"
    if one.stalled_ranks:
        named = wording.listed([str(rank) for rank in one.stalled_ranks])
        ranks, has = ("rank", "has") if len(one.stalled_ranks) == 1 else ("ranks", "have")
        who = f"Data-parallel {ranks} {named} of {one.id}"
        left = f"the other ranks and {left}"
    return Finding(
        pool=pool.pool,
        cause=Cause.ENGINE_STALLED,
        subject=one.id,
        level=Level.BAD if pool.out_of_slo or not (others or one.stalled_ranks) else Level.WARN,
        harm=Harm(amount=1.0, unit=HarmUnit.INSTANCES),
        sentence=(
            f"{who} of {pool.pool} {has} requests and {has} made no progress{lasts}, though its HTTP server answers; "
            f"{left}{_replaced(pool)}."
        ),
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=max(seconds, pool.window_seconds), instance=one.id),
        remedy=_drain(pool, one),
        explains=frozenset({condition("Degraded", EngineTrouble.ENGINE_STALLED), failing(one.id)}),
    )


def _slow(pool: PoolSituation, one: SeenInstance) -> Finding:
    return Finding(
        pool=pool.pool,
        cause=Cause.ENGINE_SLOW,
        subject=one.id,
        level=Level.NOTE,
        harm=Harm(amount=1.0, unit=HarmUnit.INSTANCES),
        sentence=f"The engine of {one.id} of {pool.pool} has requests but has made no progress for longer than its recent steps took.",
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=pool.window_seconds, instance=one.id),
    )


def _not_handed_on(pool: PoolSituation, silent: list[SeenInstance]) -> Finding:
    divides = all(one.role is Role.PREFILL for one in silent)
    asked = [one for one in pool.instances if one.role is Role.PREFILL or not divides]
    of_all = amount(len(asked), "prefill instance" if divides else "instance")
    named, verb = wording.listed([one.id for one in silent]), "names" if len(silent) == 1 else "name"
    then = "decode instances compute their prompts, and " if divides else ""
    return Finding(
        pool=pool.pool,
        cause=Cause.KV_NOT_HANDED_ON,
        level=Level.BAD if pool.out_of_slo else Level.WARN,
        harm=Harm(amount=float(len(silent)), unit=HarmUnit.INSTANCES),
        sentence=(
            f"{len(silent)} of {of_all} of {pool.pool} {verb} no KV blocks for others to fetch: {named}; {then}sessions that move "
            "are computed again; check --kv-transfer-config."
        ),
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=pool.window_seconds, instance=silent[0].id),
        explains=frozenset({condition("Degraded", EngineTrouble.KV_NOT_HANDED_ON)}),
    )


def _failing(pool: PoolSituation, one: SeenInstance) -> Finding:
    lasts = one.minutes.last(one.minutes.failing)
    then = _replaced(pool) if lasts or not pool.can_drain else wording.not_yet(one.minutes.failing, one.minutes.had, ENOUGH_MINUTES)
    tries = f"{one.served.failed} of {amount(one.served.requests, 'request')}"
    return Finding(
        pool=pool.pool,
        cause=Cause.INSTANCE_FAILING,
        subject=one.id,
        level=Level.BAD if pool.out_of_slo else Level.WARN,
        harm=Harm(amount=pool.per_second(one.served.failed), unit=HarmUnit.REQUESTS),
        sentence=f"{one.id} of {pool.pool} failed {tries} that were sent to it{then}.",
        evidence=Evidence(kind=EvidenceKind.INSTANCE, seconds=pool.window_seconds, instance=one.id),
        remedy=_drain(pool, one) if lasts else None,
        explains=frozenset({refused(RejectionReason.UPSTREAM_FAILED), failing(one.id)}),
    )


def _drain(pool: PoolSituation, one: SeenInstance) -> Remedy | None:
    if not pool.can_drain or one.state is InstanceState.DRAINING:
        return None
    return Remedy(kind="drain", words=f"draining {one.id}", instance=one.id)


def _replaced(pool: PoolSituation) -> str:
    return "; a drain replaces it" if pool.can_drain else ""
