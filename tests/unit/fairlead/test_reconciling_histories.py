"""Random histories: failures, edits, clock jumps, outages, crashes. The invariants are asserted inside `World`."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reconciling.observed import PodHealth
from fairlead_testing.worlds.pool_worlds import World, wanted

happenings = st.one_of(
    st.tuples(st.just("second"), st.integers(0, 20)),
    st.tuples(st.just("scale"), st.integers(0, 8)),
    st.tuples(st.just("template"), st.sampled_from(["one", "two", "three"])),
    st.tuples(st.just("bounds"), st.integers(0, 4)),
    st.tuples(st.just("health"), st.tuples(st.integers(0, 20), st.sampled_from(list(PodHealth)))),
    st.tuples(st.just("deleted"), st.integers(0, 20)),
    st.tuples(st.just("clock"), st.floats(-500, 500)),
    st.tuples(st.just("api"), st.booleans()),
    st.tuples(st.just("traffic"), st.sampled_from(["arrive", "finish", "catch up", "advance"])),
    st.tuples(st.just("crash"), st.integers(0, 5)),
    st.tuples(st.just("rounds"), st.integers(1, 5)),
)


def happen(world: World, kind: str, value: object) -> None:
    pods = list(world.pods.values())
    if kind == "scale" and isinstance(value, int):
        replicas = min(max(value, world.desired.min_replicas), world.desired.max_replicas)
        world.desired = replace(world.desired, replicas=replicas)
    elif kind == "template" and isinstance(value, str):
        world.desired = replace(world.desired, spec_hash=value)
    elif kind == "bounds" and isinstance(value, int):
        replicas = max(world.desired.replicas, value)
        world.desired = replace(world.desired, min_replicas=value, max_replicas=max(replicas, 4), replicas=replicas)
    elif kind == "health" and isinstance(value, tuple) and pods:
        pod = pods[value[0] % len(pods)]
        if pod.health is not PodHealth.FAILED:
            world.pods[pod.id] = replace(pod, health=value[1])
    elif kind == "deleted" and isinstance(value, int) and pods:
        del world.pods[pods[value % len(pods)].id]
    elif kind == "clock" and isinstance(value, float):
        world.now += value
    elif kind == "api" and isinstance(value, bool):
        world.api_up = value
    elif kind == "traffic":
        {
            "arrive": world.requests_arrive,
            "finish": world.requests_finish,
            "catch up": world.routers_catch_up,
            "advance": world.pods_advance,
        }[str(value)]()
    elif kind == "crash" and isinstance(value, int):
        world.step(crash_after=value)
    elif kind == "second" and isinstance(value, int):  # everything goes its way but for one pod
        world.now += 1.0
        world.pods_advance()
        if pods and (name := pods[value % len(pods)].id) in world.pods and world.pods[name].health is PodHealth.READY:
            world.pods[name] = replace(world.pods[name], health=PodHealth.RUNNING)
        world.step()
        world.routers_catch_up()
    elif kind == "rounds" and isinstance(value, int):
        for _ in range(value):
            world.now += 1.0
            world.step()


def quieten(world: World, rounds: int) -> None:
    """Nothing more happens but time, routers and kubelet doing their work."""
    world.api_up = True
    for _ in range(rounds):
        world.now += 1.0
        world.requests_finish()
        world.pods_advance()
        world.step()
        world.routers_catch_up()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 4), st.booleans(), st.lists(happenings, max_size=25))
def test_any_history_keeps_the_invariants_and_settles_on_the_wish(minimum: int, settled: bool, history: list[tuple[str, object]]) -> None:
    world = World(desired=wanted(4, minimum=minimum))
    if settled:
        quieten(world, 10)
    for kind, value in history:
        happen(world, kind, value)
    for pod in list(world.pods.values()):  # what is broken for ever stays Failed; nodes come back or their pods are found lost
        if pod.health is PodHealth.RUNNING and pod.state is InstanceState.LOST:
            world.pods[pod.id] = replace(pod, health=PodHealth.READY)
    quieten(world, 300)
    assert world.step() == 0, "it never settles"
    assert len(world.pods) == world.desired.replicas
    assert {pod.state for pod in world.pods.values()} <= {InstanceState.SERVING}
    assert {pod.spec_hash for pod in world.pods.values()} <= {world.desired.spec_hash}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3))
def test_scaling_takes_a_bounded_number_of_rounds_and_overshoots_never(before: int, after: int, minimum: int) -> None:
    before, after = max(before, minimum), max(after, minimum)
    world = World(desired=wanted(before, minimum=minimum))
    quieten(world, 10)
    assert len(world.pods) == before
    world.desired = replace(world.desired, replicas=after)
    for _ in range(10):
        quieten(world, 1)
        assert len([pod for pod in world.pods.values() if pod.draining_since is None]) <= max(before, after)
    assert len(world.pods) == after


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 6), st.booleans())
def test_a_rollout_keeps_the_minimum_serving_and_holds_one_pod_more_at_most(replicas: int, minimum: int, at_maximum: bool) -> None:
    minimum = min(minimum, replicas)
    world = World(desired=wanted(replicas, minimum=minimum, maximum=replicas if at_maximum else 64))
    quieten(world, 10)
    world.desired = replace(world.desired, spec_hash="two")
    for _ in range(replicas * 10 + 10):
        quieten(world, 1)
        serving = [pod for pod in world.pods.values() if pod.state is InstanceState.SERVING]
        assert len(serving) >= min(minimum, replicas)
        assert len([pod for pod in world.pods.values() if not pod.terminating]) <= replicas + 1
    assert {pod.spec_hash for pod in world.pods.values()} == {"two"}
    assert len(world.pods) == replicas
