"""Reads the findings about all pools or about one pool, ranked by harm. Also yields the rows of a table of trends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from fairlead.advice.advising import advise
from fairlead.advice.findings import Evidence, Finding, Remedy
from fairlead.advice.situations import PoolSituation
from fairlead.instances import Role
from fairlead.pools import TableFacts
from fairlead.scaling.signals import PoolSignals
from fairlead.tables import PoolKey
from fairlead_api.infra.sharing import Recent
from fairlead_api.infra.spans import Sight
from fairlead_api.scaling.signals import InstanceMeasures, PoolMeasures
from fairlead_client.resources.advice import Advice, AdviceEvidence, AdviceReport, Trends
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest


def loads(measured: PoolMeasures, roles: Mapping[str, Role], signals: PoolSignals, facts: TableFacts) -> dict[str, float]:
    """Return the load of each instance, by name; 1 means that the instance just meets its objectives. The load is the
    larger of the instance's prefill load and its decode load. Instances of a role without measured signals are left
    out.

    The prefill load is the seconds to compute the waiting prompt tokens, divided by the TTFT objective. The decode load
    is the seconds of a decode step, divided by the TPOT objective. A prefill instance has no decode load, and a decode
    instance no prefill load. `RoleSignals.prefill_load` and `decode_load` are computed alike, as means over instances.
    """
    found: dict[str, float] = {}
    for one in measured.instances:
        role = roles.get(one.instance)
        of_role = None if role is None else signals.of(role)
        if role is None or of_role is None:
            continue
        sides = []
        if role is not Role.DECODE and of_role.prefill_tokens_per_second:
            sides.append(one.pending_mean / of_role.prefill_tokens_per_second / facts.slo.ttft_seconds)
        if role is not Role.PREFILL:
            step = of_role.decode_step
            seconds = _measured(one) if step is None else step.fixed_seconds + step.seconds_per_request * one.running_mean
            sides.append(seconds / facts.slo.tpot_seconds)
        if sides:
            found[one.instance] = max(sides)
    return found


def _measured(one: InstanceMeasures) -> float:
    return one.tpot_mean or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situations:
    """Situations of pools at one time. `complete` is False if there are more pools than one response covers."""

    window_seconds: float
    pools: Sequence[PoolSituation]
    complete: bool = True


class SituationReader(Protocol):
    """The source of situations."""

    async def situations(self, pool: PoolKey | None, now: datetime) -> Situations:
        """Return the situations of all existing pools, or with `pool` of that pool alone. Raises NotFound for a pool
        that does not exist.
        """


class Advising:
    """Reads advice. Simultaneous callers share one result."""

    def __init__(self, reader: SituationReader, recent: Recent) -> None:
        self._reader = reader
        self._recent = recent

    async def advice(self, pool: PoolKey | None, now: datetime, sight: Sight = None) -> AdviceReport:
        """Return advice about the pools that the caller may see. Raises NotFound for a pool that does not exist."""

        async def found() -> AdviceReport:
            return report(await self._reader.situations(pool, now), now, sight)

        return await self._recent.get(("advice", pool, sight), found)


def report(everything: Situations, now: datetime, sight: Sight = None) -> AdviceReport:
    """Return the findings about the pools within `sight`, as resources. Pure."""
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
    """Return the request for a plan that makes the change that the remedy describes."""
    return PlanRequest(
        kind=PlanKind(remedy.kind),
        replicas=remedy.replicas,
        role=remedy.role,
        instance=remedy.instance,
        fields=remedy.fields,
        simulation=remedy.simulation,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendStep:
    """Outcomes of one pool's requests in the time step that begins at `at`."""

    pool: str
    at: datetime
    judged: int
    in_time: int
    refused: int
    failed: int
    ttft_seconds: float | None


def trend_steps(found: Trends) -> Iterator[TrendStep]:
    """Yield the steps of all pools: pool by pool, and for each pool the oldest step first."""
    for one in found.pools:
        counts = zip(one.judged, one.in_time, one.refused, one.failed, one.ttft_seconds, strict=True)
        for step, (judged, in_time, refused, failed, ttft) in enumerate(counts):
            at = found.start + timedelta(seconds=step * found.step_seconds)
            yield TrendStep(pool=one.pool, at=at, judged=judged, in_time=in_time, refused=refused, failed=failed, ttft_seconds=ttft)
