"""Computes the content of a pool's routing table from the pool's facts and its instances.

Pure; a table gets a new version exactly when this content changes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from fairlead.instances import ACCEPTING, REACHABLE
from fairlead.pool_states import InstanceReport, SchedulesInForce
from fairlead.pools import PoolSpec, TableFacts
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead.tables import EngineFacts, InstanceEntry, Outlook, PoolKey, PriorityClass, RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFacts:
    """The parts of the last good spec that stay in force."""

    table: TableFacts
    scales: bool = False
    """Whether signals decide numbers of instances, if only in a window, so that they are worth measuring."""

    @staticmethod
    def of(spec: PoolSpec) -> "MirroredFacts":
        fixed = spec.scaling.mode is ScalingMode.FIXED and all(ratio.mode is RatioMode.FIXED for _, ratio in spec.ratios())
        return MirroredFacts(table=spec.facts(), scales=not fixed)

    def under(self, schedules: SchedulesInForce | None) -> "MirroredFacts":
        """The facts with the SLO and early rejection that open windows set, or no longer set."""
        if schedules is None:
            return self
        return replace(self, table=replace(self.table, slo=schedules.slo, early_rejection=schedules.early_rejection))


def table_of(
    pool: PoolKey,
    uid: str,
    generation: int,
    facts: TableFacts,
    instances: Iterable[InstanceReport],
    outlook: Outlook = Outlook.UNKNOWN,
    opens_at: float | None = None,
    slo_version: int | None = None,
    objectives: Iterable[PriorityClass] = (),
) -> RoutingTable:
    """A table without a version (0): the reachable instances, by id; ring anchors only where new work may go.

    `objectives` are classes of requests besides the spec's.
    """
    reports = tuple(instances)
    entries = tuple(
        InstanceEntry(
            id=instance.id,
            address=instance.address,
            role=instance.role,
            state=instance.state,
            weight=instance.weight,
            anchors=facts.anchors_per_instance if instance.state in ACCEPTING else 0,
            revision=instance.revision,
            engine=instance.engine,
        )
        for instance in sorted(reports, key=lambda instance: instance.id)
        if instance.address is not None and instance.state in REACHABLE
    )
    return RoutingTable(
        pool=pool,
        uid=uid,
        version=0,
        generation=generation,
        model=facts.model,
        adapters=facts.adapters,
        engine=_engine_at_work(facts.engine, reports),
        routing=facts.routing,
        session=facts.session,
        slo=facts.slo,
        slo_version=slo_version,
        early_rejection=facts.early_rejection,
        holding=facts.holding,
        priority_classes=(*facts.priority_classes, *objectives),
        outlook=outlook,
        opens_at=opens_at,
        instances=entries,
    )


def _engine_at_work(declared: EngineFacts, reports: Iterable[InstanceReport]) -> EngineFacts:
    """The engine that routers reckon with: by the mean speed and cache of the instances that take requests.

    Those are the declared ones, unless a rollout changes them.
    """
    at_work = [declared.at(report.engine) for report in reports if report.state in ACCEPTING]
    if all(engine == declared for engine in at_work):
        return declared
    speed, size = fmean(one.prefill_tokens_per_second for one in at_work), fmean(one.kv_cache_tokens for one in at_work)
    return replace(declared, prefill_tokens_per_second=speed, kv_cache_tokens=round(size))


def changed_entries(before: RoutingTable | None, after: RoutingTable) -> set[str]:
    """Ids of instances that came, went or changed between two tables."""
    old = {entry.id: entry for entry in before.instances} if before else {}
    new = {entry.id: entry for entry in after.instances}
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}
