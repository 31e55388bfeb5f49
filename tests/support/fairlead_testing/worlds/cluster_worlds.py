"""A model of a cluster: pods start, fail and end, routers acknowledge late, calls fail, the clock jumps.

Nothing in it is random. The operator's round is split: `observe` makes a plan, `act` carries out one action of the
plan, `crash` drops the rest. Any event may come between these calls. DESIGN's invariants are asserted at every plan and
at every action.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from fairlead.instances import ACCEPTING, InstanceState, Role
from fairlead.pool_states import PoolObservations
from fairlead.reconciling.actions import (
    Action,
    CreateInstance,
    DeleteInstance,
    DeletionReason,
    Drain,
    DrainReason,
    EndDrain,
    FlipRole,
    RecordState,
    ReleaseInstance,
    ScaleWorkload,
    SleepInstance,
    WakeInstance,
)
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, DesiredRole, EngineSleep, ObservedInstance, PodHealth
from fairlead.reconciling.rollouts import room
from fairlead_testing.builders.instance_states import is_legal
from fairlead_testing.worlds.pool_worlds import answer, instance, seen

S = InstanceState
_NEARER = {PodHealth.PENDING: PodHealth.RUNNING, PodHealth.RUNNING: PodHealth.READY}


@dataclass(slots=True)
class ClusterWorld:
    """Pods, routers, and an operator whose only memory is the plan that it is carrying out."""

    desired: DesiredPool
    now: float = 1000.0
    pods: dict[str, ObservedInstance] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)
    table: dict[str, tuple[InstanceState, Role]] = field(default_factory=dict)
    """State and role of each instance in the table that all routers have acknowledged."""
    api_up: bool = True
    last_ordinal: int = 0
    """The highest ordinal in the pool's status, which is written at the end of a round without a failed call."""
    plan: list[Action] = field(default_factory=list)
    went_well: bool = True
    asleep: set[str] = field(default_factory=set)
    """The instances whose engines sleep."""
    rousing: set[str] = field(default_factory=set)
    """The sleeping instances that will be awake after the next `pods_advance`."""
    history: list[Action] = field(default_factory=list)

    # What happens in the cluster

    def pods_advance(self) -> None:
        """Advance every pod by one step towards ready, remove terminating pods, and wake the engines that were
        woken.
        """
        self.asleep -= self.rousing
        self.rousing.clear()
        self.pods = {
            name: replace(pod, health=_NEARER.get(pod.health, pod.health)) for name, pod in self.pods.items() if not pod.terminating
        }

    def routers_catch_up(self) -> None:
        """Give every live router the newest table, if the API is up."""
        if self.api_up:
            self.table = {pod.id: (pod.state, pod.role) for pod in self.pods.values()}

    def requests_arrive(self) -> None:
        """Send a request to every instance that accepts requests according to the routers' table."""
        self.in_flight.update(name for name, (state, _) in self.table.items() if state in ACCEPTING and name in self.pods)

    def requests_finish(self) -> None:
        self.in_flight.clear()

    def change(self, name: str, **facts: object) -> None:
        """Change facts of a pod, if it still exists."""
        if name in self.pods:
            self.pods[name] = replace(self.pods[name], **facts)  # type: ignore[arg-type]  # the tests' own field names

    # What the operator does

    def observe(self) -> None:
        """Make a plan from the present state, and check the plan as a whole."""
        observations = self._observations()
        observed = tuple(replace(pod, sleep=self._sleep_of(pod)) for pod in self.pods.values())
        self.plan = list(next_actions(self.desired, observed, observations, self.now, last_ordinal=self.last_ordinal))
        self.went_well = True
        self._check_plan(observations)

    def act(self, *, done: bool = True) -> None:
        """Carry out the plan's next action. If `done` is false, its call fails without an effect."""
        action = self.plan.pop(0)
        self.went_well = self.went_well and done
        if done:
            self._apply(action)
            self.history.append(action)
        if not self.plan and self.went_well:
            self.last_ordinal = max((self.last_ordinal, *(pod.ordinal for pod in self.pods.values())))

    def crash(self) -> None:
        """End the operator; the next one starts with a new observation."""
        self.plan = []

    def round(self) -> int:
        """Run a whole round in which no call fails. Return the number of its actions."""
        self.observe()
        count = len(self.plan)
        while self.plan:
            self.act()
        return count

    # What must hold

    def quiet_round(self, *, finish: bool = True) -> int:
        """Run a second in which nothing fails: pods advance, a round runs, routers catch up. Return the round's number
        of actions.
        """
        self.now += 1.0
        if finish:
            self.requests_finish()
        self.pods_advance()
        count = self.round()
        self.routers_catch_up()
        return count

    def is_settled(self) -> bool:
        """Return whether every role has its desired instances, and all of them serve the current template.

        At most as many surplus instances sleep as the role keeps asleep.
        """
        awake = {role.role: [pod for pod in self.of(role.role) if pod.state is not S.ASLEEP] for role in self.desired.roles}
        return (
            all(
                sorted((pod.state, pod.spec_hash) for pod in awake[role.role]) == [(S.SERVING, role.spec_hash)] * role.replicas
                and len(self.of(role.role)) - role.replicas <= role.asleep
                for role in self.desired.roles
            )
            and {pod.id for pod in self.pods.values() if pod.state is S.ASLEEP} == self.asleep & self.pods.keys()
        )

    def _sleep_of(self, pod: ObservedInstance) -> EngineSleep:
        """Return the engine's answer to whether it sleeps, or UNASKED if the operator does not ask this engine."""
        role = self.desired.role(pod.role)
        slept = pod.state is S.ASLEEP or pod.waking
        if pod.health is not PodHealth.READY or not (slept or (role is not None and role.asleep)):
            return EngineSleep.UNASKED
        return EngineSleep.ASLEEP if pod.id in self.asleep else EngineSleep.AWAKE

    def of(self, role: Role) -> list[ObservedInstance]:
        return [pod for pod in self.pods.values() if pod.role is role]

    def _observations(self) -> PoolObservations | None:
        if not self.api_up:
            return None
        known = (
            seen(pod.id, in_flight=self.in_flight[pod.id], sessions=1, acknowledged=self.table.get(pod.id) == (pod.state, pod.role))
            for pod in self.pods.values()
        )
        return answer(*known)

    def _check_plan(self, observations: PoolObservations | None) -> None:
        touched = Counter(action.instance for action in self.plan if not isinstance(action, CreateInstance | ScaleWorkload))
        assert all(count == 1 for count in touched.values()), f"two actions for one instance: {self.plan}"
        for role in self.desired.roles:
            self._check_drains(role)
            self._check_surge(role)
            self._check_templates(role)
        for action in self.plan:
            if not isinstance(action, CreateInstance | ScaleWorkload):
                self._check_action(action, self.pods[action.instance], observations)

    def _check_drains(self, role: DesiredRole) -> None:
        """Assert that drains leave a role at least its minimum of healthy instances; in pools of two roles also at
        least one.
        """
        accepting = {
            pod.id for pod in self.of(role.role) if pod.state in ACCEPTING and pod.health is PodHealth.READY and not pod.terminating
        }
        drained = accepting & {action.instance for action in self.plan if isinstance(action, Drain)}
        least = max(role.min_replicas, 1 if len(self.desired.roles) > 1 else 0)
        assert not drained or len(accepting) - len(drained) >= least, f"{role.role} falls below {least}: {self.plan}"

    def _check_surge(self, role: DesiredRole) -> None:
        created = sum(1 for action in self.plan if isinstance(action, CreateInstance) and action.role is role.role)
        deleted = {action.instance for action in self.plan if isinstance(action, DeleteInstance)}
        here = [pod for pod in self.of(role.role) if not pod.terminating and pod.id not in deleted]
        live = [pod for pod in here if pod.draining_since is None and pod.state is not S.ASLEEP]
        here = [pod for pod in here if pod.state is not S.ASLEEP]
        rolled = [pod for pod in here if pod.draining_since is None or (pod.flip_to is None and not pod.drained_as_surplus)]
        outdated = [pod for pod in rolled if pod.spec_hash != role.spec_hash]
        succeeded = sum(1 for pod in live if pod.drain_requested)
        most = role.replicas + (room(role).surge if outdated else 0) + succeeded
        kept = len({pod.id for pod in (*live, *outdated)})
        assert not created or kept + created <= most, f"{role.role} has {kept} + {created} pods of {most}: {self.plan}"

    def _check_templates(self, role: DesiredRole) -> None:
        """Assert that a halted rollout gives its template to no new instance, unless it replaces an instance of that
        template.
        """
        made = Counter(action.spec_hash for action in self.plan if isinstance(action, CreateInstance) and action.role is role.role)
        halt = role.rollout.halt
        if halt is None or halt.former_hash is None:
            assert not made or set(made) == {role.spec_hash}, f"{role.role} gets another template: {self.plan}"
        elif halt.former_hash != role.spec_hash:
            going = {action.instance for action in self.plan if isinstance(action, DeleteInstance | Drain)}
            here = [pod for pod in self.of(role.role) if pod.counts and pod.id not in going]
            updated = sum(1 for pod in here if pod.spec_hash == role.spec_hash)
            assert set(made) <= {role.spec_hash, halt.former_hash}
            assert not made[role.spec_hash] or updated + made[role.spec_hash] <= halt.updated, f"a halted rollout goes on: {self.plan}"

    def _check_action(self, action: Action, pod: ObservedInstance, observations: PoolObservations | None) -> None:
        assert not (pod.terminating and not isinstance(action, RecordState)), "a pod that is going is not touched again"
        if isinstance(action, RecordState):
            assert is_legal(pod.state, action.state), f"{pod.state} → {action.state}"
        elif isinstance(action, Drain):
            assert observations is not None or pod.state is S.LOST, "drained blindly"
            assert pod.draining_since is None, "drained twice"
            assert action.flip_to is None or action.flip_to is not pod.role
            if action.reason is DrainReason.REQUESTED:
                assert pod.drain_requested
                self._check_requested_drain(pod)
        elif isinstance(action, EndDrain):
            assert pod.state is S.DRAINING
            assert pod.drained_on_request, "a drain was ended that nobody asked for"
            assert not pod.drain_requested, "a drain was ended that is still asked for"
        elif isinstance(action, FlipRole):
            self._check_flip(action, pod)
        elif isinstance(action, DeleteInstance):
            self._check_deletion(action, pod)
        elif isinstance(action, SleepInstance):
            assert pod.state is S.DRAINING, "an instance in service was put to sleep"
            assert self._is_empty(pod) or self._timed_out(pod), "put to sleep with requests in flight"
        elif isinstance(action, WakeInstance):
            assert pod.state is (S.ASLEEP if action.begins else S.STARTING)
        elif isinstance(action, ReleaseInstance):
            assert pod.adopted, "one of the pool's own pods was released"

    def _check_requested_drain(self, pod: ObservedInstance) -> None:
        """Assert that a requested drain takes neither the last instance that accepts requests nor two desired ones at
        once.

        An instance that accepts no requests may always drain. Drains of a rollout or of a smaller number in the same
        round do not count here, because they stay within the role's bounds, which other checks assert.
        """
        role = self.desired.role(pod.role)
        assert role is not None
        requested = {action.instance for action in self.plan if isinstance(action, Drain) and action.reason is DrainReason.REQUESTED}
        others = [one for one in self.of(pod.role) if one.state in ACCEPTING and not one.terminating and one.id not in requested]
        assert pod.state not in ACCEPTING or len(others) >= max(1, role.replicas - 1), f"too few take requests: {self.plan}"

    def _check_flip(self, action: FlipRole, pod: ObservedInstance) -> None:
        own, other = self.desired.role(pod.role), self.desired.role(action.role)
        assert pod.state is S.DRAINING
        assert own is not None
        assert other is not None
        assert other.spec_hash == pod.spec_hash, "an engine with another template changed its role"
        if self.now - (pod.draining_since or 0.0) < own.drain_timeout_seconds:
            assert self._is_empty(pod), "flipped with requests in flight"

    def _check_deletion(self, action: DeleteInstance, pod: ObservedInstance) -> None:
        assert pod.state not in ACCEPTING | {S.CORDONED}, "a serving pod was deleted without draining"
        if action.reason is DeletionReason.DRAINED:
            assert self._is_empty(pod), "deleted before the routers knew, or with requests in flight"
        if action.reason is DeletionReason.DRAIN_TIMED_OUT:
            assert self._timed_out(pod)

    def _timed_out(self, pod: ObservedInstance) -> bool:
        timeout = (self.desired.role(pod.role) or self.desired.roles[0]).drain_timeout_seconds
        return pod.draining_since is not None and self.now - pod.draining_since >= timeout

    def _is_empty(self, pod: ObservedInstance) -> bool:
        return self.table.get(pod.id) == (S.DRAINING, pod.role) and self.in_flight[pod.id] == 0

    def _apply(self, action: Action) -> None:
        if isinstance(action, CreateInstance):
            name = f"chat-{action.role.value[0]}{action.ordinal:05}"
            if name not in self.pods:  # else a call that seemed to fail had made it
                pod = instance(name, S.PENDING, role=action.role, since=self.now, created_at=self.now, spec_hash=action.spec_hash)
                self.pods[name] = replace(pod, ordinal=action.ordinal, failures=action.failures)
            return
        if isinstance(action, ScaleWorkload) or action.instance not in self.pods:
            return  # no pod of this world has a workload; or it went meanwhile
        if isinstance(action, DeleteInstance):
            self.change(action.instance, terminating=True)
        elif isinstance(action, ReleaseInstance):
            del self.pods[action.instance]
        elif isinstance(action, FlipRole | EndDrain):
            role = action.role if isinstance(action, FlipRole) else self.pods[action.instance].role
            self.change(action.instance, role=role, state=S.WARMING, state_since=self.now, draining_since=None, flip_to=None)
            self.change(action.instance, drained_on_request=False, drained_as_surplus=False)
        elif isinstance(action, SleepInstance):
            self.asleep.add(action.instance)
        elif isinstance(action, WakeInstance):
            self.rousing.add(action.instance)
            if action.begins:
                self.change(action.instance, state=S.STARTING, state_since=self.now, waking=True)
        else:
            state = S.DRAINING if isinstance(action, Drain) else action.state
            self.change(action.instance, state=state, state_since=self.now, waking=False)
            if state is S.ASLEEP:
                self.change(action.instance, draining_since=None, flip_to=None, drained_on_request=False, drained_as_surplus=False)
            if state is S.DRAINING:
                self.change(action.instance, draining_since=self.now)
            if isinstance(action, Drain):
                on_request = action.reason is DrainReason.REQUESTED
                self.change(action.instance, flip_to=action.flip_to, drained_on_request=on_request)
                self.change(action.instance, drained_as_surplus=action.reason is DrainReason.SCALED_DOWN)
