"""Random histories of a pool. `ClusterWorld` asserts the invariants at every plan, and in the end the pool settles."""

from dataclasses import replace
from enum import Enum

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import CreateInstance, DeleteInstance, Drain, EndDrain, FlipRole, WakeInstance
from fairlead.reconciling.observed import DesiredPool, DesiredRole, Halt, PodHealth, RoleChange, RolloutBounds, Warming
from fairlead_testing.examples import examples
from fairlead_testing.worlds.cluster_worlds import ClusterWorld
from fairlead_testing.worlds.pool_worlds import wanted, wanted_pair, wanted_pool

LONGEST_QUIET_ROUNDS = 200
"""The maximum number of rounds without trouble until a pool of at most ten instances is as its spec wants it."""

picks = st.integers(0, 30)
halts = st.builds(Halt, former_hash=st.sampled_from([None, "one", "two", "three"]), updated=st.integers(0, 3))
regressions = st.builds(Halt, former_hash=st.sampled_from([None, "one", "two", "three"]), regressed=st.just(True))
bounds = st.builds(
    RolloutBounds, max_surge=st.integers(0, 2), max_unavailable=st.integers(0, 2), halt=st.one_of(st.none(), halts, regressions)
)


class Trouble(Enum):
    """The events that can interrupt an operator's plan while nobody changes the pool."""

    CRASH = "the operator ends in the middle of its plan"
    REFUSAL = "the Kubernetes API refuses a call"
    SILENCE = "the control API does not answer"
    LONG_REQUESTS = "what runs on an instance goes on"
    SLOW_START = "time passes, and the kubelet has not begun"


class Histories(RuleBasedStateMachine):
    """A pool, its cluster, its operator, and all events that can happen to them in any order."""

    world: ClusterWorld

    @initialize(
        split=st.booleans(), replicas=st.integers(0, 3), method=st.sampled_from(RoleChange), running=st.booleans(), warms=st.booleans()
    )
    def pool(self, split: bool, replicas: int, method: RoleChange, running: bool, warms: bool) -> None:
        least = max(1, replicas)
        self.world = ClusterWorld(desired=wanted_pair(least, least, role_change=method) if split else wanted_pool(replicas))
        for role in self.world.desired.roles if warms else ():
            self._edit(role, warming=Warming(seconds=4.0))
        for _ in range(6 if running else 0):
            self.world.quiet_round()

    # What people do

    @rule(pick=picks, replicas=st.integers(0, 5))
    def scale(self, pick: int, replicas: int) -> None:
        role = self._role(pick)
        self._edit(role, replicas=min(max(replicas, self._least(role)), role.max_replicas))

    @precondition(lambda self: len(self.world.desired.roles) == 2)
    @rule(prefill_gains=st.booleans())
    def shift(self, prefill_gains: bool) -> None:
        """Move an instance between the roles, as the ratio controller does."""
        prefill, decode = self.world.desired.roles
        gains, gives = (prefill, decode) if prefill_gains else (decode, prefill)
        if gives.replicas > self._least(gives) and gains.replicas < gains.max_replicas:
            self._edit(gains, replicas=gains.replicas + 1)
            self._edit(gives, replicas=gives.replicas - 1)

    @rule(pick=picks, spec_hash=st.sampled_from(["one", "two", "three"]), everywhere=st.booleans())
    def template(self, pick: int, spec_hash: str, everywhere: bool) -> None:
        for role in self.world.desired.roles if everywhere else (self._role(pick),):
            self._edit(role, spec_hash=spec_hash)

    @rule(pick=picks, minimum=st.integers(0, 3), tight=st.booleans())
    def minimum(self, pick: int, minimum: int, tight: bool) -> None:
        role = self._role(pick)
        replicas = max(role.replicas, minimum, self._least(replace(role, min_replicas=minimum)))
        self._edit(role, min_replicas=minimum, replicas=replicas, max_replicas=replicas if tight else 64)

    @rule(pick=picks, rollout=bounds)
    def rollout(self, pick: int, rollout: RolloutBounds) -> None:
        self._edit(self._role(pick), rollout=rollout)

    @rule(pick=picks, asleep=st.integers(0, 2))
    def keep_asleep(self, pick: int, asleep: int) -> None:
        self._edit(self._role(pick), asleep=asleep)

    @rule(pick=picks, asleep=st.booleans())
    def somebody_else_puts_to_sleep_or_wakes(self, pick: int, asleep: bool) -> None:
        name = self._pod(pick)
        known = self.world.desired.role(self.world.pods[name].role) if name else None
        if known is not None and known.asleep and asleep:
            self.world.asleep.add(name)
        else:
            self.world.asleep.discard(name)

    @rule(method=st.sampled_from(RoleChange))
    def role_change(self, method: RoleChange) -> None:
        self.world.desired = replace(self.world.desired, role_change=method)

    @rule(pick=picks, cordoned=st.booleans())
    def cordon(self, pick: int, cordoned: bool) -> None:
        self.world.change(self._pod(pick), cordoned=cordoned)

    @rule(pick=picks, asked=st.booleans())
    def drain(self, pick: int, asked: bool) -> None:
        self.world.change(self._pod(pick), drain_requested=asked)

    # What the cluster does

    @rule(pick=picks, health=st.sampled_from(list(PodHealth)))
    def pod_health(self, pick: int, health: PodHealth) -> None:
        name = self._pod(pick)
        if name and self.world.pods[name].health is not PodHealth.FAILED:
            self.world.change(name, health=health)

    @rule(pick=picks)
    def node_blinks(self, pick: int) -> None:
        """Let a node disappear and return; the operator observes both."""
        self.world.crash()
        name = self._pod(pick)
        for health in (PodHealth.UNREACHABLE, PodHealth.READY):
            if name in self.world.pods and self.world.pods[name].health is not PodHealth.FAILED:
                self.world.change(name, health=health)
            self.world.now += 1.0
            self.world.round()

    @rule(pick=picks, at_once=st.booleans())
    def pod_deleted(self, pick: int, at_once: bool) -> None:
        if at_once:
            self.world.pods.pop(self._pod(pick), None)
        else:
            self.world.change(self._pod(pick), terminating=True)

    @rule(seconds=st.sampled_from([0.2, 1.0, 20.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(seconds=st.sampled_from([-500.0, -3.0, 500.0]))
    def clock_jumps(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def kubelet_works(self) -> None:
        self.world.pods_advance()

    @rule(up=st.booleans())
    def control_api(self, up: bool) -> None:
        self.world.api_up = up

    @rule()
    def routers_catch_up(self) -> None:
        self.world.routers_catch_up()

    @rule(arrive=st.booleans())
    def traffic(self, arrive: bool) -> None:
        self.world.requests_arrive() if arrive else self.world.requests_finish()

    # What the operator does

    @precondition(lambda self: not self.world.plan)
    @rule()
    def observe(self) -> None:
        self.world.observe()

    @precondition(lambda self: self.world.plan)
    @rule(done=st.booleans())
    def act(self, done: bool) -> None:
        self.world.act(done=done)

    @precondition(lambda self: self.world.plan)
    @rule()
    def crash(self) -> None:
        self.world.crash()

    @precondition(lambda self: is_at_rest(self.world))
    @rule(chosen=st.sets(picks, min_size=1, max_size=3), troubles=st.lists(st.sampled_from(Trouble), max_size=12))
    def drains_and_nothing_else(self, chosen: set[int], troubles: list[Trouble]) -> None:
        """Request drains of instances of a pool at rest, and change nothing else until they are gone."""
        asked = {self._pod(pick) for pick in chosen} - {""}
        began = len(self.world.history)
        for name in asked:
            self.world.change(name, drain_requested=True)
        for trouble in troubles:
            have_trouble(self.world, trouble)
            check_successors(self.world, began, len(asked))
        for _ in range(LONGEST_QUIET_ROUNDS):
            self.world.quiet_round()
            check_successors(self.world, began, len(asked))
            if self.world.is_settled() and not asked & set(self.world.pods):
                return
        raise AssertionError(f"they never go: {asked} of {self.world.pods}")

    @rule(rounds=st.integers(1, 6), finish=st.booleans())
    def calm(self, rounds: int, finish: bool) -> None:
        """Run seconds without trouble. Long requests do not `finish` within them."""
        self.world.requests_arrive()
        for _ in range(rounds):
            self.world.quiet_round(finish=finish)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            settle(self.world)

    def _role(self, pick: int) -> DesiredRole:
        return self.world.desired.roles[pick % len(self.world.desired.roles)]

    def _least(self, role: DesiredRole) -> int:
        return max(role.min_replicas, 0 if role.role is Role.BOTH else 1)

    def _edit(self, role: DesiredRole, **changes: object) -> None:
        edited = replace(role, **changes)  # type: ignore[arg-type]  # the test's own field names
        roles = tuple(edited if item.role is role.role else item for item in self.world.desired.roles)
        self.world.desired = replace(self.world.desired, roles=roles)

    def _pod(self, pick: int) -> str:
        names = sorted(self.world.pods)
        return names[pick % len(names)] if names else ""


def is_at_rest(world: ClusterWorld) -> bool:
    """Return whether the pool is settled, and the operator has seen all requests of people."""
    untouched = all(
        pod.health is PodHealth.READY and not (pod.terminating or pod.cordoned or pod.drain_requested) for pod in world.pods.values()
    )
    halted = any(role.rollout.halt is not None for role in world.desired.roles)
    return world.api_up and not world.plan and bool(world.pods) and untouched and not halted and world.is_settled()


def have_trouble(world: ClusterWorld, trouble: Trouble) -> None:
    """Run a round with this trouble."""
    match trouble:
        case Trouble.CRASH | Trouble.REFUSAL:
            world.observe()
            if world.plan:
                world.act(done=trouble is Trouble.CRASH)
            world.crash()
        case Trouble.SILENCE:
            world.api_up = False
            world.round()
            world.api_up = True
        case Trouble.LONG_REQUESTS:
            world.requests_arrive()
            world.quiet_round(finish=False)
        case Trouble.SLOW_START:
            world.now += 20.0
            world.round()


def check_successors(world: ClusterWorld, began: int, asked: int) -> None:
    """Assert that at most one successor is made for each requested drain."""
    created = [action for action in world.history[began:] if isinstance(action, CreateInstance)]
    assert len(created) <= asked, f"{len(created)} successors for {asked} drains: {created}"


def settle(world: ClusterWorld) -> None:
    """End all trouble, cordons, drains and halts, and assert that the pool becomes what its spec wants, and stays
    so.
    """
    world.crash()
    world.api_up = True
    roles = tuple(replace(role, rollout=replace(role.rollout, halt=None)) for role in world.desired.roles)
    world.desired = DesiredPool(roles=roles, role_change=world.desired.role_change)
    for name in list(world.pods):
        world.change(name, cordoned=False, drain_requested=False)
    began, before = len(world.history), set(world.pods)
    for _ in range(LONGEST_QUIET_ROUNDS):
        if world.quiet_round() == 0:
            world.now += 20.0  # what waits, such as for a lost node, need not be watched every second
        if world.is_settled():
            break
    assert world.is_settled(), f"it never settles: {world.pods} for {world.desired}"
    for later in (1.0, 60.0, 100_000.0):
        world.now += later
        world.observe()
        assert world.plan == [], "it does not stay settled"
    check_calm(world, began, before)


def check_calm(world: ClusterWorld, began: int, before: set[str]) -> None:
    """Assert that constant input causes no changes back and forth: what was made or moved stays."""
    flipped: set[str] = set()
    for action in world.history[began:]:
        if isinstance(action, FlipRole | EndDrain) or (isinstance(action, WakeInstance) and action.begins):
            flipped.add(action.instance)
        elif isinstance(action, Drain | DeleteInstance):
            assert action.instance in before, f"made and given up again: {action}"
            assert action.instance not in flipped, f"put back in service and given up again: {action}"
    created = sum(1 for action in world.history[began:] if isinstance(action, CreateInstance))
    assert created <= sum(role.replicas for role in world.desired.roles) + len(before)


TestHistories = Histories.TestCase
TestHistories.settings = examples(300, steps=30, suppress=[HealthCheck.filter_too_much])


@examples(40)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3))
def test_scaling_takes_a_bounded_number_of_rounds_and_overshoots_never(before: int, after: int, minimum: int) -> None:
    before, after = max(before, minimum), max(after, minimum)
    world = ClusterWorld(desired=wanted_pool(before, minimum=minimum))
    for _ in range(10):
        world.quiet_round()
    assert len(world.pods) == before
    world.desired = wanted_pool(after, minimum=minimum)
    for _ in range(10):
        world.quiet_round()
        assert len([pod for pod in world.pods.values() if pod.draining_since is None]) <= max(before, after)
    assert world.is_settled()


@examples(60)
@given(st.integers(1, 6), st.integers(0, 6), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_a_rollout_holds_its_bounds_at_every_moment(replicas: int, minimum: int, at_maximum: bool, surge: int, unavailable: int) -> None:
    minimum, rollout = min(minimum, replicas), RolloutBounds(max_surge=surge, max_unavailable=unavailable)
    maximum = replicas if at_maximum else 64
    world = ClusterWorld(desired=wanted_pool(replicas, minimum=minimum, maximum=maximum, rollout=rollout))
    for _ in range(10):
        world.quiet_round()
    changed = wanted(replicas, minimum=minimum, maximum=maximum, rollout=rollout, spec_hash="two")
    world.desired = DesiredPool(roles=(changed,))
    bounded = surge > 0 or unavailable > 0
    for step in range(replicas * 20 + 20):
        world.requests_arrive()
        world.quiet_round(finish=step % 4 == 3)
        serving = [pod for pod in world.pods.values() if pod.state is InstanceState.SERVING]
        assert len(serving) >= minimum
        assert len([pod for pod in world.pods.values() if not pod.terminating]) <= replicas + (
            max(1, surge) if minimum == replicas else surge or (not bounded)
        )
        if not at_maximum and surge:
            assert len(serving) >= replicas - unavailable
    assert world.is_settled()
    assert {pod.spec_hash for pod in world.pods.values()} == {"two"}


@examples(60)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_flips_keep_every_pod_and_reach_every_split(prefill: int, decode: int, data: st.DataObject) -> None:
    after = data.draw(st.integers(1, prefill + decode - 1))
    world = ClusterWorld(desired=wanted_pair(prefill, decode))
    for _ in range(8):
        world.quiet_round()
    names = set(world.pods)
    world.desired = wanted_pair(after, prefill + decode - after)
    for _ in range(60):
        world.quiet_round()
        assert all(any(pod.state is InstanceState.SERVING for pod in world.of(role.role)) for role in world.desired.roles)
        assert len([pod for pod in world.pods.values() if pod.draining_since is not None]) <= 1, "one at a time"
    assert world.is_settled()
    assert set(world.pods) == names, "the same pods"
