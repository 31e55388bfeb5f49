"""The reconciler's plans, each for one situation."""

from dataclasses import replace

import pytest

from fairlead.capabilities import UNKNOWN, EngineCapability, Figure, Source
from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import CreateInstance, CreationReason, DeleteInstance, DeletionReason, Drain, DrainReason, RecordState
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import PodHealth, ReplicaLimits, RolloutBounds
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pool

S = InstanceState
NOW = 1000.0


def test_a_settled_pool_needs_no_action() -> None:
    assert next_actions(wanted_pool(2), (instance("a"), instance("b")), answer(seen("a"), seen("b")), NOW) == ()


def test_an_empty_pool_gets_all_its_instances_but_not_more_than_the_pace_allows() -> None:
    assert len(next_actions(wanted_pool(3), (), answer(), NOW)) == 3
    assert len(next_actions(wanted_pool(40), (), answer(), NOW)) == 16
    fresh = tuple(instance(f"n{index}", S.PENDING, since=NOW - 0.5, created_at=NOW - 0.5) for index in range(16))
    assert next_actions(wanted_pool(40), fresh, answer(), NOW) == ()
    assert len(next_actions(wanted_pool(40), fresh, answer(), NOW + 1)) == 16


@pytest.mark.parametrize(
    ("state", "health", "acknowledged", "after"),
    [
        (S.PENDING, PodHealth.RUNNING, True, S.STARTING),
        (S.STARTING, PodHealth.READY, True, S.WARMING),
        (S.WARMING, PodHealth.READY, True, S.SERVING),
        (S.WARMING, PodHealth.READY, False, None),
        (S.SERVING, PodHealth.RUNNING, True, S.LOST),
        (S.SERVING, PodHealth.UNREACHABLE, True, S.LOST),
        (S.STARTING, PodHealth.FAILED, True, S.LOST),
        (S.LOST, PodHealth.READY, True, S.WARMING),
        (S.STARTING, PodHealth.RUNNING, True, None),
    ],
)
def test_states_follow_the_pod(state: InstanceState, health: PodHealth, acknowledged: bool, after: InstanceState | None) -> None:
    observed = (instance("a", state, health=health, since=NOW),)
    actions = next_actions(wanted_pool(1), observed, answer(seen("a", acknowledged=acknowledged)), NOW)
    assert [action.state for action in actions if isinstance(action, RecordState)] == ([after] if after else [])


@pytest.mark.parametrize("state", [S.PENDING, S.STARTING, S.WARMING, S.SERVING, S.CORDONED, S.DRAINING])
def test_a_deleted_pod_that_has_ended_drains_and_goes_and_is_not_lost(state: InstanceState) -> None:
    """Kubelets since 1.27 write Succeeded or Failed before a deleted pod goes."""
    ended = (instance("a", state, health=PodHealth.FAILED, since=NOW, terminating=True),)
    actions = next_actions(wanted_pool(0), ended, answer(seen("a")), NOW)
    recorded = [(action.state, action.reason) for action in actions if isinstance(action, RecordState)]
    assert recorded == ([] if state is S.DRAINING else [(S.DRAINING, "PodDeleted")])


def test_a_pod_that_ends_while_it_drains_and_was_not_deleted_is_lost() -> None:
    ended = (instance("a", S.DRAINING, health=PodHealth.FAILED, since=NOW),)
    actions = next_actions(wanted_pool(0), ended, answer(seen("a")), NOW)
    assert [(action.state, action.reason) for action in actions if isinstance(action, RecordState)] == [(S.LOST, "PodFailed")]


def test_without_live_routers_acknowledgement_counts_as_given() -> None:
    observed = (instance("a", S.WARMING),)
    silent = answer(seen("a", acknowledged=False, in_flight=9), live_routers=0)
    assert [type(action) for action in next_actions(wanted_pool(1), observed, silent, NOW)] == [RecordState]
    draining = (instance("a", S.DRAINING, since=NOW),)
    assert next_actions(wanted_pool(0), draining, silent, NOW) == (DeleteInstance(instance="a", reason=DeletionReason.DRAINED),)


def test_the_victim_is_who_disturbs_least_not_who_is_newest() -> None:
    observed = (instance("old", created_at=1), instance("middle", created_at=2), instance("new", created_at=3))
    observations = answer(
        seen("old", sessions=3, cache=300_000), seen("middle", in_flight=1, sessions=2, cache=1000), seen("new", in_flight=2, sessions=4)
    )
    [drain] = next_actions(wanted_pool(2), observed, observations, NOW)
    assert isinstance(drain, Drain)
    assert (drain.instance, drain.reason) == ("middle", DrainReason.SCALED_DOWN)
    assert drain.cost == pytest.approx(2 + 1000 / 6250 + 1)


def test_what_never_served_goes_first_and_at_once() -> None:
    observed = (instance("a"), instance("b", S.STARTING), instance("c", S.PENDING))
    actions = next_actions(wanted_pool(1), observed, None, NOW)
    assert set(actions) == {DeleteInstance(instance=name, reason=DeletionReason.NEVER_SERVED) for name in "bc"}


def test_nobody_who_serves_is_drained_while_the_control_api_is_silent() -> None:
    assert next_actions(wanted_pool(1), (instance("a"), instance("b")), None, NOW) == ()


@pytest.mark.parametrize(
    ("observation", "gone"),
    [
        (seen("a"), True),
        (seen("a", acknowledged=False), False),
        (seen("a", in_flight=1), False),
        (seen("b"), False),
    ],
)
def test_a_draining_instance_goes_when_all_routers_know_and_nothing_runs(observation: object, gone: bool) -> None:
    draining = instance("a", S.DRAINING, since=NOW - 1)
    actions = next_actions(wanted_pool(0), (draining,), answer(observation), NOW)  # type: ignore[arg-type]  # parametrize loses the type
    assert actions == ((DeleteInstance(instance="a", reason=DeletionReason.DRAINED),) if gone else ())


def test_a_drain_ends_at_its_timeout_even_when_the_control_api_is_silent() -> None:
    draining = instance("a", S.DRAINING, since=NOW - 120)
    assert next_actions(wanted_pool(0), (draining,), None, NOW) == (DeleteInstance(instance="a", reason=DeletionReason.DRAIN_TIMED_OUT),)
    assert next_actions(wanted_pool(0), (draining,), None, NOW - 1) == ()


def test_scaling_up_during_a_drain_creates_a_new_instance() -> None:
    observed = (instance("a"), instance("b", S.DRAINING, since=NOW - 1))
    actions = next_actions(wanted_pool(2), observed, answer(seen("a"), seen("b", in_flight=1)), NOW)
    assert [type(action) for action in actions] == [CreateInstance]


def test_what_drains_since_fewer_were_wanted_keeps_nobody_from_coming_when_the_template_changes() -> None:
    leaving = tuple(
        instance(name, S.DRAINING, since=NOW - 1, spec_hash="old", drained_as_surplus=True, role=Role.BOTH) for name in "bcdefghi"
    )
    left = (instance("a"), *leaving)
    known = answer(*(seen(one.id, in_flight=1) for one in left))
    for wanted in (2, 9):
        actions = next_actions(wanted_pool(wanted), left, known, NOW)
        assert [type(action) for action in actions] == [CreateInstance] * (wanted - 1)


def test_a_failed_pod_is_replaced_but_a_quickly_failing_one_only_after_a_pause() -> None:
    failed = instance("a", S.LOST, health=PodHealth.FAILED, since=NOW, created_at=NOW - 100)
    assert [type(action) for action in next_actions(wanted_pool(1), (failed,), answer(), NOW)] == [CreateInstance, DeleteInstance]
    quick = replace(failed, created_at=NOW - 3)
    assert next_actions(wanted_pool(1), (quick,), answer(), NOW) == ()
    assert len(next_actions(wanted_pool(1), (quick,), answer(), NOW + 9.5)) == 2


def test_a_lost_instance_may_come_back_for_a_minute() -> None:
    lost = instance("a", S.LOST, since=NOW)
    assert next_actions(wanted_pool(1), (lost,), answer(), NOW + 59) == ()
    actions = next_actions(wanted_pool(1), (lost,), answer(), NOW + 75)
    assert actions[1] == DeleteInstance(instance="a", reason=DeletionReason.LOST_TOO_LONG)
    assert isinstance(actions[0], CreateInstance)


def test_a_pod_deleted_by_hand_stops_accepting_and_is_replaced_at_once() -> None:
    going = instance("a", terminating=True)
    create, state = next_actions(wanted_pool(1), (going,), answer(seen("a")), NOW)
    assert isinstance(state, RecordState)
    assert state.state is S.DRAINING
    assert isinstance(create, CreateInstance)


def test_a_rollout_first_adds_then_drains_one_then_waits() -> None:
    old = (instance("a", spec_hash="old"), instance("b", spec_hash="old"))
    everybody = answer(seen("a", sessions=1), seen("b"), seen("n"))
    [create] = next_actions(wanted_pool(2), old, everybody, NOW)
    assert create == CreateInstance(role=Role.BOTH, ordinal=1, spec_hash="one", reason=CreationReason.ROLLOUT)
    warming = (*old, instance("n", S.WARMING))
    assert [type(action) for action in next_actions(wanted_pool(2), warming, answer(seen("n", acknowledged=False)), NOW)] == []
    serving = (*old, instance("n"))
    assert next_actions(wanted_pool(2), serving, everybody, NOW) == (Drain(instance="b", reason=DrainReason.OUTDATED, cost=0.0),)
    draining = (old[0], instance("b", S.DRAINING, spec_hash="old", since=NOW), instance("n"))
    assert next_actions(wanted_pool(2), draining, answer(seen("a"), seen("b", in_flight=1), seen("n")), NOW) == ()


def test_a_rollout_goes_on_while_an_outdated_instance_drains_for_long() -> None:
    """4 instances are wanted, 5 may exist and 3 serve. The draining one uses the surge, not the place of another
    drain.
    """
    pool = wanted_pool(4, rollout=RolloutBounds(max_surge=1, max_unavailable=1))
    old = (instance("a", spec_hash="old"), instance("b", spec_hash="old"), instance("c", S.DRAINING, spec_hash="old", since=NOW))
    everybody = answer(seen("a", sessions=1), seen("b"), seen("c", in_flight=1), seen("m"), seen("n"))
    [action] = next_actions(pool, (*old, instance("m"), instance("n")), everybody, NOW)
    assert action == Drain(instance="b", reason=DrainReason.OUTDATED, cost=0.0)


def test_a_rollout_at_the_maximum_makes_room_first() -> None:
    old = (instance("a", spec_hash="old"), instance("b", spec_hash="old"))
    [drain] = next_actions(wanted_pool(2, maximum=2), old, answer(seen("a"), seen("b")), NOW)
    assert isinstance(drain, Drain)
    [create] = next_actions(wanted_pool(2, minimum=2, maximum=2), old, answer(seen("a"), seen("b")), NOW)
    assert isinstance(create, CreateInstance)


def test_a_corrected_template_replaces_what_cannot_start_at_once() -> None:
    stuck = tuple(instance(name, S.PENDING, spec_hash="broken") for name in "abc")
    actions = next_actions(wanted_pool(3), stuck, answer(), NOW)
    assert sum(isinstance(action, DeleteInstance) for action in actions) == 3
    assert sum(isinstance(action, CreateInstance) for action in actions) == 3


def test_without_any_valid_spec_only_states_are_recorded() -> None:
    observed = (instance("a", S.STARTING, health=PodHealth.READY), instance("b", S.DRAINING, since=0))
    [action] = next_actions(None, observed, answer(seen("b")), NOW)
    assert isinstance(action, RecordState)


def test_a_clock_that_went_back_starts_the_drain_timer_again() -> None:
    draining = instance("a", S.DRAINING, since=NOW + 1000)
    assert next_actions(wanted_pool(0), (draining,), answer(seen("a", in_flight=1)), NOW) == (
        RecordState(instance="a", before=S.DRAINING, state=S.DRAINING, reason="ClockWentBack"),
    )


def test_the_limits_are_arguments() -> None:
    limits = ReplicaLimits(creations_per_second=2, lost_timeout_seconds=5)
    assert len(next_actions(wanted_pool(9), (), answer(), NOW, limits)) == 2
    assert len(next_actions(wanted_pool(1), (instance("a", S.LOST, since=NOW - 7),), answer(), NOW, limits)) == 2


def test_scaling_down_waits_for_one_that_is_just_being_lost() -> None:
    observed = (instance("a"), instance("b"), instance("c", health=PodHealth.RUNNING))
    observations = answer(seen("a"), seen("b", sessions=1), seen("c", sessions=9))
    assert next_actions(wanted_pool(2), observed, observations, NOW) == (
        RecordState(instance="c", before=S.SERVING, state=S.LOST, reason="NotReady"),
    )
    lost = (*observed[:2], instance("c", S.LOST, health=PodHealth.RUNNING, since=NOW))
    assert next_actions(wanted_pool(2), lost, observations, NOW) == (Drain(instance="c", reason=DrainReason.SCALED_DOWN, cost=0.0),)


def test_a_rollout_pauses_while_no_more_than_the_minimum_serves() -> None:
    old = (instance("a", spec_hash="old"), instance("b", spec_hash="old"), instance("c", S.LOST, spec_hash="old", since=NOW))
    observed = (*old, instance("n"))
    observations = answer(*(seen(name) for name in "abcn"))
    declared = wanted_pool(3, minimum=2, rollout=RolloutBounds(max_surge=1, max_unavailable=1))
    assert next_actions(wanted_pool(3, minimum=3), observed, observations, NOW) == ()
    assert next_actions(wanted_pool(3, minimum=2), observed, observations, NOW) == (), "maxUnavailable is 0"
    assert [type(action) for action in next_actions(declared, observed, observations, NOW)] == [Drain]


def test_a_pod_that_ends_is_not_deleted_again() -> None:
    ending = instance("a", S.DRAINING, since=NOW - 500, terminating=True)
    assert next_actions(wanted_pool(0), (ending,), answer(seen("a")), NOW) == ()


@pytest.mark.parametrize(("speed", "drained"), [(None, "b"), (30_000.0, "a"), (100.0, "b")])
def test_a_drain_is_priced_by_the_speed_that_was_measured(speed: float | None, drained: str) -> None:
    """One session with a large cache is compared with five that have small ones. A fast engine recomputes the large one
    soon.
    """
    known = answer(seen("a", sessions=1, cache=40_000), seen("b", sessions=5, cache=1_000))
    figure = UNKNOWN if speed is None else Figure(value=speed, source=Source.MEASURED)
    known = replace(known, capability=EngineCapability(prefill_tokens_per_second=figure))
    (drain,) = next_actions(wanted_pool(1), (instance("a"), instance("b")), known, NOW)
    assert isinstance(drain, Drain)
    assert drain.instance == drained
