"""An instance that a person wants drained: it is emptied and replaced, or serves again if the request is withdrawn
early.
"""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import (
    CreateInstance,
    CreationReason,
    DeleteInstance,
    DeletionReason,
    Drain,
    DrainReason,
    EndDrain,
    RecordState,
)
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, Halt, ObservedInstance, PodHealth, RolloutBounds
from fairlead_testing.worlds.cluster_worlds import ClusterWorld
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted, wanted_pair, wanted_pool

S = InstanceState
NOW = 1000.0


def plan(replicas: int, *here: ObservedInstance, minimum: int = 0, halt: Halt | None = None, api: bool = True) -> list[object]:
    desired = wanted_pool(replicas, minimum=minimum, rollout=RolloutBounds(halt=halt))
    known = answer(*(seen(one.id, sessions=1) for one in here)) if api else None
    return list(next_actions(desired, here, known, NOW, last_ordinal=9))


def asked(name: str = "a", state: InstanceState = S.SERVING) -> ObservedInstance:
    return instance(name, state, drain_requested=True)


def draining(name: str = "a", *, wished: bool = False) -> ObservedInstance:
    return instance(name, S.DRAINING, since=NOW - 5, drain_requested=wished, drained_on_request=True)


def test_it_drains_at_once_and_its_successor_is_made_in_the_same_round() -> None:
    created, drain = plan(3, asked(), instance("b"), instance("c"))
    assert isinstance(created, CreateInstance)
    assert isinstance(drain, Drain)
    assert (drain.instance, drain.reason) == ("a", DrainReason.REQUESTED)


@pytest.mark.parametrize("others", [(), (instance("b", S.STARTING),)])
def test_the_last_that_serves_waits_for_its_successor(others: tuple[ObservedInstance, ...]) -> None:
    actions = plan(1 + len(others), asked(), *others)
    assert [type(action) for action in actions] == [CreateInstance]
    there = (*others, instance("s", S.PENDING, since=NOW - 9))
    assert plan(1 + len(others), asked(), *there) == [], "one successor is enough"


def test_a_successor_stays_while_the_control_api_is_silent() -> None:
    assert plan(1, asked(), instance("s", S.PENDING, since=NOW - 9), api=False) == []
    assert plan(2, asked(), instance("b"), instance("s", S.STARTING, since=NOW - 9), api=False) == []


@pytest.mark.parametrize("halt", [Halt(former_hash="old", regressed=True), Halt(former_hash="old"), None])
def test_one_successor_is_made_for_one_drain_also_while_a_rollout_is_halted(halt: Halt | None) -> None:
    old = replace(asked(), spec_hash="old" if halt else "new")
    desired = DesiredPool(roles=(wanted(1, minimum=1, spec_hash="new", rollout=RolloutBounds(halt=halt)),))
    known = answer(seen("a", sessions=1))
    [successor] = next_actions(desired, (old,), known, NOW, last_ordinal=9)
    assert isinstance(successor, CreateInstance)
    assert (successor.spec_hash, successor.reason) == (old.spec_hash, CreationReason.REPLACING)
    there = (old, instance("s", S.PENDING, since=NOW - 9, spec_hash=old.spec_hash))
    assert next_actions(desired, there, known, NOW, last_ordinal=10) == ()


def test_two_are_drained_one_after_the_other_as_evictions_would_be() -> None:
    actions = plan(3, asked("a"), asked("b"), instance("c"))
    assert [action.instance for action in actions if isinstance(action, Drain)] == ["a"]
    assert sum(isinstance(action, CreateInstance) for action in actions) == 2, "one for each"


def test_a_minimum_that_needs_all_brings_the_successor_first_above_it() -> None:
    assert [type(action) for action in plan(2, asked(), instance("b"), minimum=2)] == [CreateInstance]


def test_nothing_is_drained_while_the_control_api_is_silent() -> None:
    assert plan(3, asked(), instance("b"), instance("c"), api=False) == []


def test_what_never_served_is_deleted_and_what_is_lost_is_replaced_at_once() -> None:
    created, deleted = plan(2, asked(state=S.STARTING), instance("b"))
    assert isinstance(created, CreateInstance)
    assert created.reason is CreationReason.REPLACING
    assert deleted == DeleteInstance(instance="a", reason=DeletionReason.NEVER_SERVED)
    created, drain = plan(2, instance("a", S.LOST, since=NOW - 1, drain_requested=True), instance("b"))
    assert isinstance(created, CreateInstance)
    assert isinstance(drain, Drain)


def test_a_cordoned_instance_serves_nobody_and_may_always_go() -> None:
    cordoned = instance("a", S.CORDONED, cordoned=True, drain_requested=True)
    assert any(isinstance(action, Drain) for action in plan(2, cordoned, instance("b", S.WARMING)))


def test_scaling_in_takes_it_instead_of_a_cheaper_one() -> None:
    here = (asked("a"), instance("b"), instance("c"))
    known = answer(seen("a", sessions=99, cache=10**6), seen("b"), seen("c"))
    assert [action.instance for action in next_actions(wanted_pool(2), here, known, NOW) if isinstance(action, Drain)] == ["a"]


def test_withdrawn_while_it_drains_it_serves_again_and_its_unborn_successor_goes() -> None:
    actions = plan(2, draining(), instance("b"), instance("s", S.PENDING, since=NOW))
    assert EndDrain(instance="a") in actions
    assert DeleteInstance(instance="s", reason=DeletionReason.NEVER_SERVED) in actions
    assert len(actions) == 2


def test_withdrawn_while_its_successor_comes_a_step_nearer_it_is_not_put_back_beside_it() -> None:
    starting = replace(instance("s", S.PENDING, since=NOW), health=PodHealth.RUNNING)
    [drained, record] = sorted(plan(2, draining(), instance("b"), starting), key=lambda action: type(action).__name__)
    assert drained == DeleteInstance(instance="a", reason=DeletionReason.DRAINED)
    assert isinstance(record, RecordState), "it cannot be given up in the same round, so both would serve"


def test_withdrawn_when_its_successor_serves_already_it_goes_all_the_same() -> None:
    assert plan(2, draining(), instance("b"), instance("s")) == [DeleteInstance(instance="a", reason=DeletionReason.DRAINED)]


def test_a_drain_that_nobody_asked_for_is_not_ended() -> None:
    drained = replace(draining(), drained_on_request=False)
    assert not any(isinstance(action, EndDrain) for action in plan(2, drained, instance("b")))
    assert not any(isinstance(action, EndDrain) for action in plan(2, draining(wished=True), instance("b")))


def test_withdrawn_with_an_old_template_it_goes_on_only_while_the_rollout_is_halted() -> None:
    old = replace(draining(), spec_hash="old")
    assert not any(isinstance(action, EndDrain) for action in plan(2, old, instance("b")))
    assert EndDrain(instance="a") in plan(2, old, instance("b"), halt=Halt(former_hash="old"))


def test_an_engine_that_is_not_ready_is_not_put_back() -> None:
    sick = replace(draining(), health=PodHealth.RUNNING)
    assert not any(isinstance(action, EndDrain) for action in plan(2, sick, instance("b")))


def test_a_flip_in_mid_drain_is_given_up_for_the_wish() -> None:
    flipping = instance("p1", S.DRAINING, role=Role.PREFILL, since=NOW - 5, flip_to=Role.DECODE, drain_requested=True)
    here = (flipping, instance("p2", role=Role.PREFILL), instance("d1", role=Role.DECODE))
    actions = next_actions(wanted_pair(1, 2), here, answer(*(seen(one.id) for one in here)), NOW, last_ordinal=3)
    assert DeleteInstance(instance="p1", reason=DeletionReason.DRAINED) in actions


def test_a_request_in_flight_is_served_to_its_end_and_the_number_stays() -> None:
    world = ClusterWorld(desired=wanted_pool(2, minimum=1))
    for _ in range(10):
        world.quiet_round()
    victim = sorted(world.pods)[0]
    world.requests_arrive()
    world.change(victim, drain_requested=True)
    for _ in range(8):
        world.quiet_round(finish=False)
    assert world.pods[victim].state is S.DRAINING
    for _ in range(10):
        world.quiet_round()
    assert victim not in world.pods
    assert world.is_settled()
