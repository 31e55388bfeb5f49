"""A pool's whole world in virtual time. A copy of it is kept before and after every call that the operator makes.

A killed operator loses only its memory. So a copy of the world at a call, with a new operator in it, is exactly the
state after a kill at that call. Equal copies have the same future, so that only one of them is continued.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.scaling.signals import PoolDemand
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome, Taken
from fairlead_operator.cluster import ClusterUnavailable, Resource
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import FakeControlPlane, VirtualStage

REQUEST_EVERY, REQUEST_SECONDS = 3, 2
"""The seconds between two requests of each instance, and the seconds that a request takes.

The first is longer, so that sometimes no request is in flight although another will arrive.
"""

FAILING_ENGINE = {"simulated": {"decodeStep": "90ms"}}
"""A template whose engine ends at its start."""

TERMINATING = {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["the kubelet still ends it"]}
"""The metadata of a deleted pod until its kubelet has ended it."""


def has_failing_engine(pod: dict[str, Any]) -> bool:
    """Return whether the pod runs `FAILING_ENGINE`."""
    arguments = pod["spec"]["containers"][0]["args"]
    return ("--decode-step-ms", "90") in pairwise(arguments)


Hook = Callable[[str], None]
"""A function that is called before and after each call of the operator, with the call's name."""


def _ignore(call: str) -> None:
    """Keep no copy."""


@dataclass(slots=True)
class WatchedCluster(FakeCluster):
    """A cluster that checks every change of a pod. A deleted pod ends only when the kubelet reports its end."""

    hook: Hook = _ignore
    check_deletion: Callable[[dict[str, Any]], None] = lambda pod: None
    named: set[str] = field(default_factory=set)
    """The names of all pods that ever existed."""

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        self.hook(f"before get {resource.name}")
        return await FakeCluster.get(self, resource, namespace, name, subresource=subresource)

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        self.hook(f"before list {resource.name}")
        return await FakeCluster.find(self, resource, namespace, selector)

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        self.hook(f"before create {resource.name}")
        made = await FakeCluster.create(self, resource, namespace, body)
        if made and resource is Resource.PODS:
            name = body["metadata"]["name"]
            assert name not in self.named, f"{name} was used before"
            self.named.add(name)
        self.hook(f"after create {resource.name}")
        return made

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        self.hook(f"before patch {resource.name} {subresource}")
        done = await FakeCluster.patch(self, resource, namespace, name, body, subresource=subresource)
        self.hook(f"after patch {resource.name} {subresource}")
        return done

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        self.hook(f"before delete {resource.name}")
        known = self.objects.get((resource, name))
        if known is not None and not known["metadata"].get("deletionTimestamp"):
            self.check_deletion(known)
            known["metadata"] |= TERMINATING
            self.put(resource, known)
        self.hook(f"after delete {resource.name}")
        return known is not None


@dataclass(slots=True)
class RoutedControlPlane(FakeControlPlane):
    """The API with routers behind it. They take a table some time after the API made it, and send requests according to
    it.
    """

    hook: Hook = _ignore
    told: dict[str, InstanceState] = field(default_factory=dict)
    table: dict[str, InstanceState] = field(default_factory=dict)
    """The table that all routers use: the state of each instance."""
    running: list[tuple[str, float]] = field(default_factory=list)
    """The instance of each running request, and when the request ends."""
    quiet_since: float | None = None
    """Since when clients send no requests; None while they send some."""
    held: int = 0
    """The number of requests that routers hold until an instance accepts them."""

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        self.hook("before put state")
        self.told = {item.id: item.state for item in state.instances}
        outcome = await FakeControlPlane.put_state(self, pool, state)
        self.hook("after put state")
        if not isinstance(outcome, Taken):
            return outcome
        instances = tuple(
            replace(
                item,
                in_flight=sum(1 for instance, _ in self.running if instance == item.id),
                bound_sessions=1,
                acknowledged=self.table.get(item.id) is self.told[item.id],
            )
            for item in outcome.answer.instances
        )
        return Taken(replace(outcome.answer, table_acknowledged=self.table == self.told, instances=instances))

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        self.hook("before post events")
        outcome = await FakeControlPlane.post_events(self, pool, events)
        self.hook("after post events")
        return outcome

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        self.hook("before delete pool")
        self.told = {}
        outcome = await FakeControlPlane.delete_pool(self, pool)
        self.hook("after delete pool")
        return outcome


@dataclass(slots=True, kw_only=True)
class Copy:
    """The world as a kill at a call leaves it."""

    call: str
    now: float
    objects: dict[tuple[Resource, str], dict[str, Any]]
    version: int
    named: set[str]
    told: dict[str, InstanceState]
    table: dict[str, InstanceState]
    running: list[tuple[str, float]]
    quiet_since: float | None
    held: int
    history: list[PoolEvent]
    deleted: list[PoolKey]
    least_serving: int

    def essence(self) -> str:
        """Return a text that is equal for worlds with the same future."""
        objects = {f"{resource.name}/{name}": body for (resource, name), body in self.objects.items()}
        history = [asdict(event) for event in self.history]
        clients = [self.running, self.quiet_since, self.held]
        known = [self.now, objects, sorted(self.named), self.told, self.table, clients, history, len(self.deleted)]
        return json.dumps(known, sort_keys=True)


@dataclass(slots=True)
class CrashingWorld:
    """A pool `chat` with its kubelet, routers under load, and its operator. Begin with `create` or `resume`."""

    stage: VirtualStage
    least_serving: int = 0
    """The minimum number of instances that accept requests, which is asserted all the time."""
    most_live: int = 1_000
    """The maximum number of pods that live at the same time, which is asserted."""
    copies: list[Copy] = field(default_factory=list)
    keeps_copies: bool = False
    trouble_at: tuple[int, str] | None = None
    """The write that gets no answer: its number from 0, and whether the failure comes `before` or `after` its effect.
    """
    writes: int = 0

    @classmethod
    def create(cls) -> CrashingWorld:
        world = cls(stage=VirtualStage(cluster=WatchedCluster(), api=RoutedControlPlane()))
        world._connect()
        return world

    @classmethod
    def resume(cls, left: Copy) -> CrashingWorld:
        """Return a world with a new operator, in the state that a killed operator left."""
        found = copy.deepcopy(left)
        cluster = WatchedCluster(objects=found.objects, version=found.version, named=found.named)
        api = RoutedControlPlane(told=found.told, table=found.table, events=found.history, deleted=found.deleted)
        api.running, api.quiet_since, api.held = found.running, found.quiet_since, found.held
        world = cls(stage=VirtualStage(now=found.now, cluster=cluster, api=api), least_serving=found.least_serving)
        world._connect()
        return world

    @property
    def cluster(self) -> WatchedCluster:
        assert isinstance(self.stage.cluster, WatchedCluster)
        return self.stage.cluster

    @property
    def api(self) -> RoutedControlPlane:
        assert isinstance(self.stage.api, RoutedControlPlane)
        return self.stage.api

    def copy(self, call: str) -> Copy:
        return copy.deepcopy(
            Copy(
                call=call,
                now=self.stage.now,
                objects=self.cluster.objects,
                version=self.cluster.version,
                named=self.cluster.named,
                told=self.api.told,
                table=self.api.table,
                running=self.api.running,
                quiet_since=self.api.quiet_since,
                held=self.api.held,
                history=self.api.events,
                deleted=self.api.deleted,
                least_serving=self.least_serving,
            )
        )

    async def live_until(self, wish: Callable[[CrashingWorld], bool], most_seconds: int = 120) -> None:
        """Let time pass, second by second, until the wish comes true. Raises AssertionError after `most_seconds`."""
        began = self.stage.now
        while not wish(self):
            assert self.stage.now - began < most_seconds, f"it never came to this: {wish.__name__}"
            self.stage.now += 1
            self._move()
            for _ in range(10):
                try:
                    due = await self.stage.round()
                except ClusterUnavailable:
                    due = 1.0  # the worker tries again
                self._check()
                if due is None or due > 0.1:
                    break

    def fail_a_pod(self) -> None:
        """Evict the first pod; its requests end."""
        pod = self.stage.pods()[0]
        pod["status"] = {"phase": "Failed", "reason": "Evicted"}
        self.api.running = [(instance, until) for instance, until in self.api.running if instance != pod["metadata"]["name"]]

    def clients_leave(self) -> None:
        """Stop all clients: they send no requests from now on."""
        self.api.quiet_since = self.stage.now

    def clients_come_back(self, held: int) -> None:
        """Make clients send requests again. Routers hold the first `held` until an instance accepts them."""
        self.api.quiet_since, self.api.held = None, held

    def delete_in_foreground(self) -> None:
        """Delete the pool as `kubectl delete --cascade=foreground` does: the garbage collector deletes the pods at
        once.
        """
        self.stage.delete()
        for pod in self.stage.pods():
            pod["metadata"] |= TERMINATING
            self.cluster.put(Resource.PODS, pod)

    def _connect(self) -> None:
        self.cluster.check_deletion = self._check_deletion
        self.cluster.hook = self.api.hook = self._called

    def _called(self, call: str) -> None:
        if self.keeps_copies:
            self.copies.append(self.copy(call))
        when, verb, *_ = call.split()
        if verb not in {"create", "patch", "delete"} or "pool" in call:
            return
        if self.trouble_at == (self.writes, when):
            self.trouble_at = None
            raise ClusterUnavailable(f"told to fail {call}")
        self.writes += when == "after"

    def _move(self) -> None:
        """Advance kubelet, routers and clients by a second."""
        now = self.stage.now
        self.api.running = [(instance, until) for instance, until in self.api.running if until > now]
        for pod in list(self.stage.pods()):
            name = pod["metadata"]["name"]
            if pod["metadata"].get("deletionTimestamp"):
                if pod["status"].get("phase") in {"Succeeded", "Failed"}:
                    del self.cluster.objects[Resource.PODS, name]
                elif not any(instance == name for instance, _ in self.api.running):  # it ends when it has answered
                    pod["status"] = {**pod["status"], "phase": "Succeeded"}  # as kubelets since 1.27 say before a pod goes
                continue
            status = pod.get("status") or {}
            if status.get("phase") == "Failed":
                continue
            if has_failing_engine(pod):
                pod["status"] = {"phase": "Failed", "reason": "Error"}
                continue
            ready = "True" if status.get("phase") == "Running" else "False"
            pod["status"] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": ready}]}
        self.api.table = dict(self.api.told)
        alive = {pod["metadata"]["name"] for pod in self.stage.pods() if pod["status"]["phase"] == "Running"}
        taking = [name for name, state in sorted(self.api.table.items()) if state in ACCEPTING and name in alive]
        if taking:
            self.api.running += [(taking[number % len(taking)], now + REQUEST_SECONDS) for number in range(self.api.held)]
            self.api.held = 0
        if self.api.quiet_since is None:
            for number, name in enumerate(taking):
                if (int(now) + number) % REQUEST_EVERY == 0:
                    self.api.running.append((name, now + REQUEST_SECONDS))
        self.api.demand = self._demand()

    def _demand(self) -> PoolDemand:
        api, now = self.api, self.stage.now
        idle = 0.0 if api.quiet_since is None or api.running else now - api.quiet_since
        return PoolDemand(
            held_requests=api.held,
            held_prompt_tokens=100 * api.held,
            in_flight=len(api.running),
            idle_seconds=idle,
        )

    def _check(self) -> None:
        live = [pod for pod in self.stage.pods() if not pod["metadata"].get("deletionTimestamp")]
        assert len(live) <= self.most_live, "more pods than wanted"
        serving = sum(1 for pod in live if self.api.table.get(pod["metadata"]["name"]) in ACCEPTING)
        assert serving >= self.least_serving or not self.stage.exists(), "fewer instances take requests than the minimum"

    def _check_deletion(self, pod: dict[str, Any]) -> None:
        name, state = pod["metadata"]["name"], pod["metadata"]["annotations"]["fairlead.dev/state"]
        assert state not in {kind.value for kind in ACCEPTING}, f"{name} was deleted without a drain"
        if state == InstanceState.DRAINING:
            assert self.api.table.get(name) is InstanceState.DRAINING, f"{name} was deleted before every router knew"
            assert not any(instance == name for instance, _ in self.api.running), f"{name} was deleted with requests in flight"
