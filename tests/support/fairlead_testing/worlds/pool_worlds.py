"""A simulated cluster for reconciling: pods start, fail and end, routers acknowledge late, the clock jumps.

Nothing in it is random.
"""

from dataclasses import dataclass, field, replace

from fairlead.instances import ACCEPTING, InstanceState, Role, is_legal
from fairlead.pool_states import InstanceObservation, PoolObservations
from fairlead.reconciling.actions import Action, CreateInstance, DeleteInstance, DeletionReason, Drain, FlipRole, RecordState
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, DesiredRole, ObservedInstance, PodHealth, RoleChange, RolloutBounds

_USUAL_ROLLOUT = RolloutBounds()


def wanted(
    replicas: int,
    *,
    role: Role = Role.BOTH,
    minimum: int = 0,
    maximum: int = 64,
    spec_hash: str = "one",
    drain_timeout: float = 120.0,
    rollout: RolloutBounds = _USUAL_ROLLOUT,
) -> DesiredRole:
    """A desired role with the usual bounds."""
    return DesiredRole(
        role=role,
        replicas=replicas,
        min_replicas=minimum,
        max_replicas=maximum,
        spec_hash=spec_hash,
        drain_timeout_seconds=drain_timeout,
        rollout=rollout,
    )


def wanted_pool(replicas: int, *, minimum: int = 0, maximum: int = 64, rollout: RolloutBounds = _USUAL_ROLLOUT) -> DesiredPool:
    """A desired pool of the role both."""
    return DesiredPool(roles=(wanted(replicas, minimum=minimum, maximum=maximum, rollout=rollout),))


def wanted_pair(
    prefill: int, decode: int, *, role_change: RoleChange = RoleChange.ROLE_FLIP, hashes: tuple[str, str] = ("one", "one")
) -> DesiredPool:
    """A desired pool of prefill and decode instances, at least one of each."""
    return DesiredPool(
        roles=(
            wanted(prefill, role=Role.PREFILL, minimum=1, spec_hash=hashes[0]),
            wanted(decode, role=Role.DECODE, minimum=1, spec_hash=hashes[1]),
        ),
        role_change=role_change,
    )


def instance(
    name: str,
    state: InstanceState = InstanceState.SERVING,
    *,
    role: Role = Role.BOTH,
    health: PodHealth | None = None,
    since: float = 0.0,
    created_at: float = 0.0,
    spec_hash: str = "one",
    terminating: bool = False,
    flip_to: Role | None = None,
    cordoned: bool = False,
) -> ObservedInstance:
    """An instance whose pod looks as its state says, unless told otherwise."""
    usual = {InstanceState.PENDING: PodHealth.PENDING, InstanceState.STARTING: PodHealth.RUNNING, InstanceState.LOST: PodHealth.UNREACHABLE}
    return ObservedInstance(
        id=name,
        role=role,
        health=health or usual.get(state, PodHealth.READY),
        state=state,
        state_since=since,
        spec_hash=spec_hash,
        created_at=created_at,
        terminating=terminating,
        draining_since=since if state is InstanceState.DRAINING else None,
        flip_to=flip_to,
        cordoned=cordoned,
    )


def seen(name: str, *, in_flight: int = 0, sessions: int = 0, cache: int = 0, acknowledged: bool = True) -> InstanceObservation:
    """What the routers report about one instance."""
    return InstanceObservation(id=name, in_flight=in_flight, bound_sessions=sessions, cache_tokens=cache, acknowledged=acknowledged)


def answer(*instances: InstanceObservation, live_routers: int = 2) -> PoolObservations:
    """The API's answer about these instances."""
    return PoolObservations(
        table_version=1,
        table_acknowledged=all(item.acknowledged for item in instances),
        live_routers=live_routers,
        ttft_attainment=None,
        requests_per_second=0.0,
        instances=instances,
    )


@dataclass(slots=True)
class World:
    """Pods and routers.

    `step` runs one round of the operator; the invariants of reconciling are asserted at every action.
    """

    desired: DesiredRole
    now: float = 1000.0
    pods: dict[str, ObservedInstance] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    table: dict[str, InstanceState] = field(default_factory=dict)
    """The state per instance that the routers have acknowledged."""
    api_up: bool = True
    created: int = 0
    history: list[Action] = field(default_factory=list)

    def observations(self) -> PoolObservations | None:
        if not self.api_up:
            return None
        return answer(
            *(
                seen(pod.id, in_flight=self.in_flight.get(pod.id, 0), sessions=1, acknowledged=self.table.get(pod.id) is pod.state)
                for pod in self.pods.values()
            )
        )

    def routers_catch_up(self) -> None:
        """Every live router takes the newest table."""
        if self.api_up:
            self.table = {pod.id: pod.state for pod in self.pods.values()}

    def requests_arrive(self) -> None:
        for name, state in self.table.items():
            if state in ACCEPTING and name in self.pods:
                self.in_flight[name] = self.in_flight.get(name, 0) + 1

    def requests_finish(self) -> None:
        self.in_flight.clear()

    def pods_advance(self) -> None:
        """Every pod comes one step nearer to ready; what terminates is gone."""
        following = {PodHealth.PENDING: PodHealth.RUNNING, PodHealth.RUNNING: PodHealth.READY}
        self.pods = {
            name: replace(pod, health=following.get(pod.health, pod.health)) for name, pod in self.pods.items() if not pod.terminating
        }

    def step(self, *, crash_after: int | None = None) -> int:
        """One round; with `crash_after`, the operator dies after so many actions.

        Returns how many actions were planned.
        """
        observed = tuple(self.pods.values())
        observations = self.observations()
        actions = next_actions(DesiredPool(roles=(self.desired,)), observed, observations, self.now, last_ordinal=self.created)
        touched = [action.instance for action in actions if not isinstance(action, CreateInstance)]
        assert len(touched) == len(set(touched)), "two actions for one instance"
        for action in actions[:crash_after]:
            self._check(action, observations)
            self._apply(action)
            self.history.append(action)
        return len(actions)

    def _accepting(self) -> int:
        return sum(1 for pod in self.pods.values() if pod.state in ACCEPTING and pod.health is PodHealth.READY and not pod.terminating)

    def _check(self, action: Action, observations: PoolObservations | None) -> None:
        if isinstance(action, CreateInstance):
            return
        pod = self.pods[action.instance]
        assert not (pod.terminating and isinstance(action, DeleteInstance | Drain)), "a pod that is going is not touched again"
        if isinstance(action, RecordState):
            assert is_legal(pod.state, action.state)
        elif isinstance(action, Drain):
            assert observations is not None or pod.state is InstanceState.LOST, "drained blindly"
            if pod.state in ACCEPTING:
                assert self._accepting() - 1 >= self.desired.min_replicas, "below the minimum"
        elif isinstance(action, DeleteInstance):
            self._check_deletion(action, pod)

    def _check_deletion(self, action: DeleteInstance, pod: ObservedInstance) -> None:
        assert pod.state not in ACCEPTING, "a serving pod was deleted without draining"
        if action.reason is DeletionReason.DRAINED:
            assert self.table.get(pod.id) is InstanceState.DRAINING, "deleted before the routers knew"
            assert self.in_flight.get(pod.id, 0) == 0, "deleted with requests in flight"
        if action.reason is DeletionReason.DRAIN_TIMED_OUT:
            assert pod.draining_since is not None
            assert self.now - pod.draining_since >= self.desired.drain_timeout_seconds

    def _apply(self, action: Action) -> None:
        if isinstance(action, CreateInstance):
            self.created = max(self.created, action.ordinal)
            name = f"chat-b{action.ordinal:05}"
            assert name not in self.pods, "a name was given twice"
            pod = instance(name, InstanceState.PENDING, since=self.now, created_at=self.now, spec_hash=action.spec_hash)
            self.pods[name] = replace(pod, ordinal=action.ordinal)
        elif isinstance(action, DeleteInstance):
            self.pods[action.instance] = replace(self.pods[action.instance], terminating=True)
        elif isinstance(action, FlipRole):
            pod = self.pods[action.instance]
            self.pods[action.instance] = replace(
                pod, role=action.role, state=InstanceState.WARMING, state_since=self.now, draining_since=None, flip_to=None
            )
        else:
            state = InstanceState.DRAINING if isinstance(action, Drain) else action.state
            pod = self.pods[action.instance]
            draining_since = self.now if state is InstanceState.DRAINING else pod.draining_since
            self.pods[action.instance] = replace(pod, state=state, state_since=self.now, draining_since=draining_since)
