"""Computes the content of a pool's routing table from the pool's facts and its instances.

Pure. A table gets a new version if and only if this content changes. `outlook` is what routers expect while none of the
pool's instances accepts requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from statistics import fmean

from fairlead.instances import ACCEPTING, REACHABLE, Role
from fairlead.pool_states import InstanceReport, SchedulesInForce
from fairlead.pools import PoolSpec, TableFacts
from fairlead.reconciling.observed import ObservedInstance
from fairlead.reconciling.round_plan import UNBORN
from fairlead.scaling.bounds import DeclaredRole, bounds_in_force
from fairlead.scaling.specs import RatioMode, ScalingMode
from fairlead.schedules.in_force import in_force
from fairlead.schedules.windows import changes_after
from fairlead.tables import CanaryFacts, EngineFacts, InstanceEntry, Outlook, PoolKey, PriorityClass, RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFacts:
    """The parts of the last valid spec that the control API uses. They stay in force while a newer spec is refused."""

    table: TableFacts
    scales: bool = False
    """Whether signals decide numbers of instances, either always or while a schedule's window is open. If so, signals
    must be measured.
    """

    @staticmethod
    def of(spec: PoolSpec) -> "MirroredFacts":
        fixed = spec.scaling.mode is ScalingMode.FIXED and all(ratio.mode is RatioMode.FIXED for _, ratio in spec.ratios())
        return MirroredFacts(table=spec.facts(), scales=not fixed)

    def under(self, schedules: SchedulesInForce | None) -> "MirroredFacts":
        """Return the facts with the SLO and the early rejection that `schedules` put in force; unchanged if `schedules`
        is None.
        """
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
    canary: CanaryFacts | None = None,
) -> RoutingTable:
    """Return a table without a version (0): the reachable instances by id, with ring anchors only for instances that
    may get new work.

    `objectives` are classes of requests in addition to the spec's.
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
            stays=instance.stays,
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
        canary=canary,
        instances=entries,
    )


def _engine_at_work(declared: EngineFacts, reports: Iterable[InstanceReport]) -> EngineFacts:
    """Return the engine figures that routers use for calculations: the mean speed and cache size of the instances that
    take requests.

    These equal the declared figures except during a rollout that changes them.
    """
    at_work = [declared.at(report.engine) for report in reports if report.state in ACCEPTING]
    if all(engine == declared for engine in at_work):
        return declared
    speed, size = fmean(one.prefill_tokens_per_second for one in at_work), fmean(one.kv_cache_tokens for one in at_work)
    return replace(declared, prefill_tokens_per_second=speed, kv_cache_tokens=round(size))


def changed_entries(before: RoutingTable | None, after: RoutingTable) -> set[str]:
    """Return the ids of instances that were added, removed or changed between two tables."""
    old = {entry.id: entry for entry in before.instances} if before else {}
    new = {entry.id: entry for entry in after.instances}
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


_LOOKS_AHEAD = 64
"""Maximum number of window changes that are examined to find the next one that starts instances."""


def outlook(
    spec: PoolSpec,
    declared: Mapping[Role, int],
    wanted: Mapping[str, int],
    instances: Sequence[ObservedInstance],
    stuck: frozenset[str],
    now: float,
) -> tuple[Outlook, float | None]:
    """Return the expectation of routers for a pool at `now` (Unix seconds) and, for a closed pool, the time at which it
    opens, if this time is known.

    `declared` has the declared number of each role, `wanted` the desired number of the last round, empty before the
    first round. `stuck` names the instances that cannot start without a change. Prefill instances do not count, because
    they take no requests without decode instances.
    """
    instant = datetime.fromtimestamp(now, UTC)
    if not any(wanted.values()) and not _may_serve(spec, declared, instant):
        return Outlook.CLOSED, _opens_at(spec, declared, instant)
    taking = [instance for instance in instances if instance.counts and instance.role is not Role.PREFILL]
    starting = all(instance.state in UNBORN for instance in taking)
    if not starting or (taking and all(instance.id in stuck for instance in taking)):
        return Outlook.UNKNOWN, None
    return Outlook.COMING, None


def _may_serve(spec: PoolSpec, declared: Mapping[Role, int], instant: datetime) -> bool:
    """Return whether the pool can have instances at that time. In mode SLO, a pool that gets instances only when they
    are needed counts too.
    """
    windows = in_force(spec.scaling.schedules, instant).bounds
    for role in spec.roles:
        number = role.most if spec.scaling.mode is ScalingMode.SLO else declared[role.name]
        limits = DeclaredRole(role=role.name, replicas=number, min_replicas=role.least, max_replicas=role.most)
        if bounds_in_force(limits, windows).clamp(number) == 0:
            return False
    return True


def _opens_at(spec: PoolSpec, declared: Mapping[Role, int], after: datetime) -> float | None:
    changes = islice(changes_after(spec.scaling.schedules, after), _LOOKS_AHEAD)
    return next((change.timestamp() for change in changes if _may_serve(spec, declared, change)), None)
