"""Use case: the findings of all pools, or of one, ranked by harm."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.advice.advising import advise
from fairlead.advice.findings import Evidence, Finding, Remedy
from fairlead.advice.situations import PoolSituation
from fairlead.tables import PoolKey
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.spans import Sight
from fairlead_client.resources.advice import Advice, AdviceEvidence, AdviceReport
from fairlead_client.resources.plans import PlanKind, PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Situations:
    """What was seen at once; `complete` is false where there are more pools than one answer covers."""

    window_seconds: float
    pools: Sequence[PoolSituation]
    complete: bool = True


class SituationReader(Protocol):
    """The source of situations."""

    async def situations(self, pool: PoolKey | None, now: datetime) -> Situations:
        """Of all living pools, or of one. Raises NotFound for a pool that does not live."""


class Advising:
    """Answers are shared among those who ask within moments."""

    def __init__(self, reader: SituationReader, recent: Recent) -> None:
        self._reader = reader
        self._recent = recent

    async def advice(self, pool: PoolKey | None, now: datetime, sight: Sight = None) -> AdviceReport:
        """Of pools in sight. Raises NotFound for a pool that does not live."""

        async def found() -> AdviceReport:
            return report(await self._reader.situations(pool, now), now, sight)

        return await self._recent.get(("advice", pool, sight), found)


def report(everything: Situations, now: datetime, sight: Sight = None) -> AdviceReport:
    """The findings about pools in sight as resources. Pure."""
    within = [one for one in everything.pools if sight is None or one.pool.partition("/")[0] in sight]
    seen = replace(everything, pools=within)
    return AdviceReport(
        at=now,
        window_seconds=seen.window_seconds,
        pools=len(seen.pools),
        complete=seen.complete,
        items=[_advice(one, now) for one in advise(seen.pools)],
    )


def _advice(finding: Finding, now: datetime) -> Advice:
    remedy = finding.remedy
    return Advice(
        pool=finding.pool,
        cause=finding.cause,
        subject=finding.subject,
        level=finding.level,
        harm=finding.harm.amount,
        unit=finding.harm.unit,
        sentence=finding.sentence,
        evidence=_evidence(finding.evidence, now),
        plan=None if remedy is None else plan_request(remedy),
        plan_words=None if remedy is None else remedy.words,
    )


def _evidence(evidence: Evidence, now: datetime) -> AdviceEvidence:
    start = now - timedelta(seconds=evidence.seconds)
    return AdviceEvidence(kind=evidence.kind, start=start, end=now, instance=evidence.instance, metric=evidence.metric)


def plan_request(remedy: Remedy) -> PlanRequest:
    """The request of a plan that makes the change."""
    return PlanRequest(
        kind=PlanKind(remedy.kind),
        replicas=remedy.replicas,
        role=remedy.role,
        instance=remedy.instance,
        fields=remedy.fields,
        simulation=remedy.simulation,
    )
