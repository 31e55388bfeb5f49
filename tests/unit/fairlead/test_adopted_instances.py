"""Whatever is observed of adopted pods, no plan makes or deletes one. The pool ends only pods that it made itself."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import CreateInstance, DeleteInstance, Drain, EndDrain, ReleaseInstance, ReleaseReason
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, ObservedInstance, PodHealth
from fairlead_testing.examples import examples
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted

S = InstanceState
SELECTED = "selected"


@st.composite
def instances(draw: st.DrawFn) -> tuple[ObservedInstance, ...]:
    found = []
    for number in range(draw(st.integers(0, 5))):
        one = instance(
            f"pod-{number}",
            draw(st.sampled_from([state for state in S if state is not S.GONE])),
            health=draw(st.sampled_from(PodHealth)),
            spec_hash=draw(st.sampled_from([SELECTED, ""])),
            terminating=draw(st.booleans()),
            cordoned=draw(st.booleans()),
            drain_requested=draw(st.booleans()),
            drained_on_request=draw(st.booleans()),
            adopted=draw(st.booleans()),
        )
        found.append(one)
    return tuple(found)


@examples(500)
@given(instances(), st.booleans(), st.booleans(), st.integers(0, 4), st.sampled_from([0.0, 1e6]))
def test_no_adopted_pod_is_deleted_and_no_pod_is_made_in_its_place(
    observed: tuple[ObservedInstance, ...], adopts: bool, api_up: bool, replicas: int, now: float
) -> None:
    role = replace(wanted(replicas, spec_hash=SELECTED if adopts else "one"), adopts=adopts)
    observations = answer(*(seen(one.id) for one in observed)) if api_up else None
    actions = next_actions(DesiredPool(roles=(role,)), observed, observations, now)
    adopted = {one.id for one in observed if one.adopted}
    assert not {action.instance for action in actions if isinstance(action, DeleteInstance)} & adopted
    assert {action.instance for action in actions if isinstance(action, ReleaseInstance)} <= adopted
    assert not adopts or not any(isinstance(action, CreateInstance) for action in actions)


def plan(*observed: ObservedInstance) -> list[object]:
    role = replace(wanted(len(observed), spec_hash=SELECTED), adopts=True)
    return list(next_actions(DesiredPool(roles=(role,)), observed, answer(*(seen(one.id) for one in observed)), 1e6))


def of_a_workload(name: str, state: InstanceState = S.SERVING, **facts: object) -> ObservedInstance:
    return replace(instance(name, state, spec_hash=SELECTED, adopted=True), **facts)  # type: ignore[arg-type]  # the tests' own field names


def test_the_last_pod_that_serves_is_drained_too_when_a_person_asks_for_it() -> None:
    (action,) = plan(of_a_workload("a", drain_requested=True))
    assert isinstance(action, Drain)
    assert action.instance == "a"


def test_a_pod_that_starts_is_emptied_before_it_serves_and_not_released() -> None:
    (action,) = plan(of_a_workload("a", S.STARTING, drain_requested=True))
    assert isinstance(action, Drain)


def test_an_empty_pod_stays_until_its_drain_is_taken_back() -> None:
    drained = of_a_workload("a", S.DRAINING, drain_requested=True, drained_on_request=True)
    assert plan(drained) == []
    assert plan(replace(drained, drain_requested=False)) == [EndDrain(instance="a")]


def test_a_pod_that_is_lost_waits_for_its_workload() -> None:
    assert plan(of_a_workload("a", S.LOST), of_a_workload("b")) == []


def test_a_pod_that_ended_is_released() -> None:
    (action,) = plan(of_a_workload("a", S.LOST, health=PodHealth.FAILED))
    assert action == ReleaseInstance(instance="a", reason=ReleaseReason.POD_FAILED)


def test_the_pools_own_pods_go_once_a_selected_one_serves() -> None:
    own = instance("own", spec_hash="one")
    assert plan(own, of_a_workload("a", S.STARTING, health=PodHealth.RUNNING)) == []
    (action,) = plan(own, of_a_workload("a"))
    assert isinstance(action, Drain)
    assert action.instance == "own"
