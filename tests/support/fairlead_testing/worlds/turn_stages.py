"""Pools that take turns on shared devices, and their operator, in virtual time.

The cluster and the engines are fakes. An engine uses the memory of a device or has left it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import HeldPools, PoolEvent, PoolObservations, PoolState, UnheardPools
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.scaling.signals import PoolDemand
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome, Taken
from fairlead_operator.cluster import Resource
from fairlead_operator.device_turns import DeviceTurns
from fairlead_operator.pod_templates import shared_claim
from fairlead_operator.reconciling.dependencies import Dependencies
from fairlead_operator.reconciling.finalizing import FINALIZER
from fairlead_operator.reconciling.pool_reconciler import PoolReconciler
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.fakes.sleeping_engines import FakeEngines
from fairlead_testing.worlds.operator_stages import SETTINGS, FakeControlPlane

QUIET = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=3600.0)
BUSY = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=1, idle_seconds=0.0)


@dataclass(slots=True)
class ControlPlanes:
    """A separate fake control plane for each pool."""

    of: dict[str, FakeControlPlane] = field(default_factory=dict)

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        return await self.of[pool.name].put_state(pool, state)

    async def post_events(self, pool: PoolKey, events: Any) -> Outcome[None]:
        return await self.of[pool.name].post_events(pool, events)

    async def held_pools(self) -> Outcome[HeldPools]:
        return Taken(HeldPools(pools=()))

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        return Taken(UnheardPools(pools=()))

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        return Taken(None)


@dataclass
class TurnStage:
    """Pools by name, reconciled in turn every second. An engine needs `start_seconds` to start."""

    start_seconds: float = 5.0
    wake_seconds: float = 2.0
    sleep_seconds: float = 2.0
    now: float = 1_800_000_000.0
    cluster: FakeCluster = field(default_factory=FakeCluster)
    planes: ControlPlanes = field(default_factory=ControlPlanes)
    reconcilers: dict[str, PoolReconciler] = field(default_factory=dict)
    born: dict[str, float] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)
    woken: list[PoolKey] = field(default_factory=list)
    turns: DeviceTurns = field(default_factory=DeviceTurns)

    def __post_init__(self) -> None:
        self.fake = FakeEngines(now=lambda: self.now, wake_seconds=self.wake_seconds, sleep_seconds=self.sleep_seconds)

    def pool_of(self, name: str, replicas: int, claims: Mapping[str, Any] | tuple[str, ...], least: int = 0, **spec: Any) -> None:
        """Create or change a pool whose instances share these claims. `claims` may also be the whole section `turns` as
        a mapping.
        """
        turns = dict(claims) if isinstance(claims, Mapping) else {"claims": list(claims)}
        count = len(turns["claims"])
        role = {"name": "both", "minReplicas": least, "maxReplicas": count, "warm": {"asleep": count, "turns": turns}}
        known = self.cluster.objects.get((Resource.POOLS, name))
        metadata: dict[str, Any] = known["metadata"] if known else {"namespace": "default", "name": name, "finalizers": [FINALIZER]}
        metadata = {**metadata, "generation": metadata.get("generation", 0) + 1}
        common = {"routing": {"warming": {"duration": "0s"}}, "engine": {"simulated": {}}}
        rollout = {"rollout": {"maxSurge": 0, "maxUnavailable": 1}}
        body = {"metadata": metadata, "spec": {"model": "m", "replicas": replicas, "roles": [role], **common, **rollout, **spec}}
        self.cluster.put(Resource.POOLS, {**body, **({"status": known["status"]} if known and "status" in known else {})})
        self.planes.of.setdefault(name, FakeControlPlane(demand=BUSY))
        if name not in self.reconcilers:
            self.restart()

    def restart(self) -> None:
        """Start a new operator process, which remembers nothing."""
        self.turns = DeviceTurns()
        self.turns.wake = self.woken.append
        dependencies = Dependencies(
            settings=SETTINGS,
            cluster=self.cluster,
            control_plane=self.planes,
            policies=BUILT_IN,
            clock=lambda: self.now,
            post_event=lambda pool, *, type_, reason, message: None,
            engines=self.fake,
            turns=self.turns,
        )
        self.reconcilers = {name: PoolReconciler(PoolKey(namespace="default", name=name), dependencies) for name in self.planes.of}

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.all(Resource.PODS)

    def those(self, pool: str, *states: InstanceState) -> list[str]:
        return [name for name, (whose, state) in self.states().items() if whose == pool and state in states]

    def states(self) -> dict[str, tuple[str, InstanceState]]:
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["labels"]["fairlead.dev/pool"],
                InstanceState(pod["metadata"]["annotations"]["fairlead.dev/state"]),
            )
            for pod in self.pods()
        }

    def serving(self, pool: str) -> list[str]:
        return self.those(pool, *ACCEPTING)

    def claim(self, name: str) -> str:
        return shared_claim(self.cluster.objects[Resource.PODS, name]["spec"])

    def ip(self, name: str) -> str:
        number = list(self.born).index(name) + 1
        return f"10.0.{number // 250}.{number % 250}"

    def address(self, name: str) -> str:
        return f"{self.ip(name)}:8000"

    def condition(self, pool: str, kind: str = "HasDevices") -> dict[str, Any]:
        conditions = self.cluster.objects[Resource.POOLS, pool]["status"]["conditions"]
        found: dict[str, Any] = next(item for item in conditions if item["type"] == kind)
        return found

    def events(self, pool: str) -> list[PoolEvent]:
        return self.planes.of[pool].events

    def using(self) -> dict[str, list[str]]:
        """Return, for each claim, the pods that use the memory of its device."""
        used: dict[str, list[str]] = {}
        for name in self.states():
            if name in self.born and not self.fake.has_left(self.address(name)):
                used.setdefault(self.claim(name), []).append(name)
        return used

    async def second(self, seconds: float = 1.0) -> None:
        """Let time pass: pods become ready, each pool is reconciled, and the engines carry out their commands."""
        for pod in self.pods():
            name = pod["metadata"]["name"]
            is_ready = self.now - self.born.setdefault(name, self.now) >= self.start_seconds and name not in self.unready
            conditions = [{"type": kind, "status": "True" if is_ready else "False"} for kind in ("Ready", "ContainersReady")]
            pod["status"] = {"phase": "Running", "podIP": self.ip(name), "conditions": conditions}
        self.now += seconds
        for name, reconciler in list(self.reconcilers.items()):
            if (Resource.POOLS, name) in self.cluster.objects:
                reconciler.changed()
                await reconciler.reconcile()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            await self.second()
