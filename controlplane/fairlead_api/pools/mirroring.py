"""Processes pool states from the operator: decides which states are newer than the stored states, which changes concern
routers, and which pools are ready.
"""

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from fairlead.capabilities import EngineCapability
from fairlead.pool_states import InstanceObservation, InstanceTrouble, PoolObservations, PoolState, TaskObservation
from fairlead.pools import parse_spec
from fairlead.scaling.signals import PoolDemand, PoolSignals
from fairlead.table_content import MirroredFacts
from fairlead.tables import InstanceEntry, RoutingTable
from fairlead_api.infra.audit_chain import as_stored
from fairlead_api.infra.times import check_time
from fairlead_client.resources.pools import PoolCondition


def fingerprint(table: RoutingTable) -> bytes:
    """Return the SHA-256 of those parts of a routing table on which routers act: everything but version and
    generation.
    """
    return hashlib.sha256(msgspec.json.encode(replace(table, version=0, generation=0), order="sorted")).digest()


def ready_condition(conditions: Sequence[PoolCondition], problem: str | None) -> PoolCondition:
    """Return the pool's Ready condition. If the pool has none, return a Ready condition that says that it is
    missing.
    """
    for condition in conditions:
        if condition.type == "Ready":
            return condition
    if problem is not None:
        return PoolCondition(type="Ready", status="False", reason="InvalidSpec", message=problem)
    return PoolCondition(type="Ready", status="Unknown", reason="NotReported", message="The operator has not reported conditions yet.")


Shares = Callable[[Sequence[InstanceEntry]], Mapping[str, float]]
"""A function that returns each accepting instance's share of the hash ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUseView:
    """The use of a pool by a router, from the router's last report; `idle_seconds` is counted up to the present."""

    held_requests: int
    held_prompt_tokens: int
    idle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterView:
    """The last report of a live router about one pool. `acknowledged` is the version of the routing table that the
    router uses, None if it has no table of the pool yet.
    """

    acknowledged: int | None
    in_flight: Mapping[str, int]
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Number of requests that are queued in the router, by the instance to which they will be sent."""
    use: PoolUseView | None = None
    """The router's use of the pool. None if the router does not report its use, or has no table of the pool yet."""
    troubled_engines: tuple[InstanceTrouble, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFacts:
    """The database's facts about an instance. `table_version` is the version of the first routing table that contains
    the instance's entry in its present form.
    """

    id: str
    table_version: int
    bound_sessions: int
    cache_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A pool's traffic in the last 5 minutes. Attainments are shares (0-1); None = no request was judged."""

    ttft_attainment: float | None = None
    tpot_attainment: float | None = None
    slo_attainment: float | None = None
    requests_per_second: float = 0.0
    behind_seconds: float = 0.0
    """Delay of the rollups in seconds. If it is above 0, the other fields are unknown."""


def facts_of(state: PoolState) -> MirroredFacts | None:
    """Return the facts from the reported spec that take effect in Fairlead; None if the operator reports that the spec
    is invalid.

    Pure. Raises InvalidInput for an impossible time, or for an invalid spec that the operator did not report as
    invalid.
    """
    check_state(state)
    return MirroredFacts.of(parse_spec(state.spec)) if state.problem is None else None


def check_state(state: PoolState) -> None:
    """Raises InvalidInput if a scaling decision in the state has an impossible time. Pure."""
    for number, decision in enumerate(state.scaling_decisions):
        check_time(f"scaling_decisions[{number}].at", decision.at)


def observations(
    table_version: int,
    routers: Sequence[RouterView],
    instances: Sequence[InstanceFacts],
    traffic: Traffic,
    signals: PoolSignals | None = None,
    idle_elsewhere: float | None = None,
    capability: EngineCapability | None = None,
    departed: str = "",
    tasks: tuple[TaskObservation, ...] = (),
) -> PoolObservations:
    """Return the observations that answer the operator's report of a state. Pure.

    `idle_elsewhere` is the number of seconds since a router that is not live any more had a request of the pool.
    Without a live router, `table_version` counts as acknowledged, because no router uses an older table. An
    acknowledgement of a version above `table_version` does not count: the router got that version from a database that
    has been restored since.
    """
    routers = [replace(one, acknowledged=None) if (one.acknowledged or 0) > table_version else one for one in routers]
    return PoolObservations(
        table_version=table_version,
        table_acknowledged=table_acknowledged(table_version, routers),
        live_routers=len(routers),
        ttft_attainment=traffic.ttft_attainment,
        tpot_attainment=traffic.tpot_attainment,
        slo_attainment=traffic.slo_attainment,
        requests_per_second=traffic.requests_per_second,
        signals=signals,
        capability=capability,
        departed=departed,
        tasks=tasks,
        demand=_demand(routers, idle_elsewhere, behind=traffic.behind_seconds > 0),
        figures_behind_seconds=traffic.behind_seconds,
        troubled_engines=_troubled(routers, {instance.id for instance in instances}),
        instances=tuple(
            InstanceObservation(
                id=instance.id,
                in_flight=sum(router.in_flight.get(instance.id, 0) for router in routers),
                bound_sessions=instance.bound_sessions,
                cache_tokens=instance.cache_tokens,
                acknowledged=table_acknowledged(instance.table_version, routers),
            )
            for instance in instances
        ),
    )


def _troubled(routers: Sequence[RouterView], living: Container[str]) -> tuple[InstanceTrouble, ...]:
    """Return the troubles that routers report about engines of the instances in `living`. A trouble that several
    routers report about an instance is returned once.
    """
    return newest_of_each(one for router in routers for one in router.troubled_engines if one.instance in living)


def newest_of_each(found: Iterable[InstanceTrouble]) -> tuple[InstanceTrouble, ...]:
    """Return each trouble of an instance once, with the description of the router that reported it last. Pure."""
    newest = {(one.instance, one.trouble): one for one in sorted(found, key=lambda one: one.seconds, reverse=True)}
    return tuple(one for _, one in sorted(newest.items()))


def _demand(routers: Sequence[RouterView], idle_elsewhere: float | None, *, behind: bool) -> PoolDemand | None:
    """Return the pool's demand. None without a live router, or if some router that uses the pool's table does not
    report the pool's use. If the traffic figures are `behind`, the idle time in the result is unknown; then the pool is
    not scaled to zero, but held requests still start instances.
    """
    serving = [router for router in routers if router.acknowledged is not None]
    uses = [router.use for router in serving if router.use is not None]
    if not uses or len(uses) < len(serving):
        return None
    idle = [use.idle_seconds for use in uses]
    return PoolDemand(
        held_requests=sum(use.held_requests for use in uses),
        held_prompt_tokens=sum(use.held_prompt_tokens for use in uses),
        in_flight=sum(sum(router.in_flight.values()) for router in routers),
        idle_seconds=None if behind else min([*idle, *([] if idle_elsewhere is None else [idle_elsewhere])]),
    )


def table_acknowledged(version: int, routers: Sequence[RouterView]) -> bool:
    """Return whether every live router uses `version` or a newer version. Pure."""
    return all(router.acknowledged is not None and router.acknowledged >= version for router in routers)


def manager_of(stored: Mapping[str, Any], state: PoolState) -> str:
    """Return the field managers that made the spec differ from the stored spec: the managers that own the differing
    fields, and the last writer for fields without an owner. `changed_by` of the state is returned if no spec is stored,
    or if no field manager is found. Pure.
    """
    if not stored or not state.last_writer:
        return state.last_writer or state.changed_by
    before, after = as_stored(stored), as_stored(state.spec)
    changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
    return ", ".join(dict.fromkeys(state.owners.get(name, state.last_writer) for name in changed)) or state.changed_by


def is_outdated(stored: tuple[str, int, str], state: PoolState) -> str | None:
    """Return the reason why a state is older than the stored state of the same object, which is given as (uid,
    generation, resource version); None if the state is not older. Pure.
    """
    uid, generation, version = stored
    if uid != state.uid:
        return None
    if state.generation < generation:
        return f"generation {state.generation} is older than the stored {generation}"
    if state.resource_version.isdigit() and version.isdigit() and int(state.resource_version) < int(version):
        return f"resource version {state.resource_version} is older than the stored {version}"
    return None
