"""A pool and its reconciler on a fake cluster and a fake control API, in virtual time."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.pool_states import (
    CanaryVerdict,
    EndedInstance,
    HeldPools,
    InstanceObservation,
    InstanceTrouble,
    PoolEvent,
    PoolObservations,
    PoolState,
    TaskObservation,
    UnheardPools,
)
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.scaling.signals import PoolDemand, PoolSignals
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Cause, Later, Outcome, Refused, Taken
from fairlead_operator.cluster import Resource
from fairlead_operator.gateways.watching import GatewayNews
from fairlead_operator.handlers import child_essence, pod_essence, pool_essence
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.dependencies import Dependencies
from fairlead_operator.reconciling.finalizing import FINALIZER
from fairlead_operator.reconciling.pool_reconciler import PoolReconciler
from fairlead_operator.settings import ControlPlaneSettings, OperatorSettings
from fairlead_operator.sleepers import Engines, NoEngines
from fairlead_operator.times import format_second
from fairlead_testing.fakes.cluster import FakeCluster

KEY = PoolKey(namespace="default", name="chat")
SETTINGS = OperatorSettings(control_plane=ControlPlaneSettings(urls=("http://api",), token="t"), engine_image="fairlead/engine:1")

_ESSENCE = {Resource.POOLS: pool_essence, Resource.PODS: pod_essence, Resource.ROLES: child_essence}

_AWAY = Later(cause=Cause.UNREACHABLE, problem="connection refused")


@dataclass(slots=True)
class FakeControlPlane:
    """A control API that accepts all calls while `up`. While `acknowledges`, routers acknowledge every table at
    once.
    """

    up: bool = True
    acknowledges: bool = True
    refuses_events: bool = False
    live_routers: int = 1
    attainment: float | None = None
    slo_attainment: float | None = None
    signals: PoolSignals | None = None
    demand: PoolDemand | None = None
    troubled_engines: tuple[InstanceTrouble, ...] = ()
    departed: str = ""
    tasks: tuple[TaskObservation, ...] = ()
    canary: str | None = None
    """The verdict on `canary_step`, or on the step that the operator reports if there is no `canary_step`."""
    canary_step: str = ""
    in_flight: dict[str, int] = field(default_factory=dict)
    states: list[PoolState] = field(default_factory=list)
    events: list[PoolEvent] = field(default_factory=list)
    deleted: list[PoolKey] = field(default_factory=list)
    unheard: tuple[PoolKey, ...] = ()

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        if not self.up:
            return _AWAY
        present, before = {item.id for item in state.instances}, self.states[-1].instances if self.states else ()
        ended = tuple(EndedInstance(id=one.id, role=one.role, state=one.state) for one in before if one.id not in present)
        self.states.append(state)
        instances = tuple(
            InstanceObservation(
                id=item.id, in_flight=self.in_flight.get(item.id, 0), bound_sessions=0, cache_tokens=0, acknowledged=self.acknowledges
            )
            for item in state.instances
        )
        observations = PoolObservations(
            table_version=1,
            table_acknowledged=self.acknowledges,
            live_routers=self.live_routers,
            ttft_attainment=self.attainment,
            slo_attainment=self.slo_attainment,
            requests_per_second=0.0,
            instances=instances,
            signals=self.signals,
            demand=self.demand,
            troubled_engines=self.troubled_engines,
            departed=self.departed,
            tasks=self.tasks,
            ended=ended,
            canary=None
            if self.canary is None or state.canary is None
            else CanaryVerdict(
                step=self.canary_step or state.canary.step, verdict=self.canary, reason="the time to first token changed by +30 %"
            ),
        )
        return Taken(observations)

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        if not self.up:
            return _AWAY
        if self.refuses_events:
            return Refused(problem="422")
        self.events.extend(events)
        return Taken(None)

    async def held_pools(self) -> Outcome[HeldPools]:
        return Taken(HeldPools(pools=(KEY,) if self.demand is not None and self.demand.held_requests else ())) if self.up else _AWAY

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        return Taken(UnheardPools(pools=self.unheard)) if self.up else _AWAY

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        if not self.up:
            return _AWAY
        self.deleted.append(pool)
        return Taken(None)


@dataclass(slots=True)
class VirtualStage:
    """A pool `chat` and its reconciler. `now` moves only when a test moves it; a test may give a `clock` instead."""

    now: float = 1_800_000_000.0
    clock: Callable[[], float] | None = None
    cluster: FakeCluster = field(default_factory=FakeCluster)
    api: FakeControlPlane = field(default_factory=FakeControlPlane)
    settings: OperatorSettings = SETTINGS
    news: GatewayNews = field(default_factory=GatewayNews)
    engines: Engines | None = None
    reconciler: PoolReconciler | None = None
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """The posted Kubernetes Events: type, reason, message."""
    seen: dict[tuple[Resource, str], Hashable] = field(default_factory=dict)
    """For each object, the parts of its state to whose changes the watches react."""

    def restart(self) -> None:
        """Start a new operator process, which remembers nothing."""
        dependencies = Dependencies(
            settings=self.settings,
            cluster=self.cluster,
            control_plane=self.api,
            policies=BUILT_IN,
            clock=lambda: self.clock() if self.clock is not None else self.now,
            post_event=self._post_event,
            gateways=self.news,
            engines=self.engines if self.engines is not None else NoEngines(),
        )
        self.reconciler = PoolReconciler(KEY, dependencies)

    def apply(self, **spec: Any) -> None:
        """Create the pool or change its spec, as kubectl does."""
        known = self.cluster.objects.get((Resource.POOLS, "chat"))
        generation = known["metadata"]["generation"] + 1 if known else 1
        metadata: dict[str, Any] = {"namespace": "default", "name": "chat"} | (known["metadata"] if known else {})
        metadata |= {
            "generation": generation,
            "managedFields": [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}],
        }
        body: dict[str, Any] = {"metadata": metadata, "spec": {"model": "m", "replicas": 2, **spec}}
        if known and "status" in known:
            body["status"] = known["status"]
        self.cluster.put(Resource.POOLS, body)

    def delete(self) -> None:
        pool = self.pool()
        pool["metadata"]["deletionTimestamp"] = format_second(self.now)
        self.cluster.put(Resource.POOLS, pool)

    def pool(self) -> dict[str, Any]:
        return self.cluster.objects[Resource.POOLS, "chat"]

    def exists(self) -> bool:
        return (Resource.POOLS, "chat") in self.cluster.objects

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.all(Resource.PODS)

    def condition(self, kind: str) -> dict[str, Any]:
        condition: dict[str, Any] = next(item for item in self.pool()["status"]["conditions"] if item["type"] == kind)
        return condition

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    def pods_become_ready(self) -> None:
        for pod in self.pods():
            pod["status"] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}

    async def round(self) -> float | None:
        """Run one step of the operator as kopf would, and return the seconds until the next one; None if no step is
        due.

        Such a step adds the finalizer, calls the daemon or the deletion handler, or removes the finalizer.
        """
        if self.reconciler is None:
            self.restart()
        assert self.reconciler is not None
        self._watch()
        if not self.exists():
            return await self.reconciler.report_deletion()
        metadata = self.pool()["metadata"]
        if not metadata.get("deletionTimestamp"):
            if FINALIZER not in metadata.setdefault("finalizers", []):
                metadata["finalizers"].append(FINALIZER)
            return await self.reconciler.reconcile()
        due = await self.reconciler.finalize()
        if due is None:
            left = [name for name in metadata["finalizers"] if name != FINALIZER]
            await self.cluster.patch(Resource.POOLS, "default", "chat", {"metadata": {"finalizers": left}})
        return due

    async def look_at_gateways(self) -> int:
        """Read the gateways' status, as the operator does every two seconds. Return how many rounds of the pool this
        caused.
        """
        woken: list[PoolKey] = []
        await self.news.look(self.cluster, self.settings.picker.service, woken.append)
        if woken and self.reconciler is not None:
            self.reconciler.changed()
        return len(woken)

    def _watch(self) -> None:
        """Report changed objects to the operator's worker, as its watch handlers do. Changes by the operator itself are
        left out.
        """
        objects = self.cluster.objects.items()
        seen = {(resource, name): _ESSENCE[resource](body) for (resource, name), body in objects if resource in _ESSENCE}
        if seen != self.seen and self.reconciler is not None:
            self.reconciler.changed()
        self.seen = seen

    def _post_event(self, pool: PoolIdentity, *, type_: str, reason: str, message: str) -> None:
        assert pool.uid == self.pool()["metadata"]["uid"]
        self.events.append((type_, reason, message))

    async def settle(self) -> float | None:
        """Reconcile with ready pods until nothing is in progress. Return the last round's seconds until the next
        round.
        """
        due: float | None = None
        for _ in range(12):
            self.pods_become_ready()
            self.now += 1
            due = await self.round()
            if due == SETTINGS.pace.settled:
                break
        return due
