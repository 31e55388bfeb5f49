"""The pause before a failed or lost instance is replaced: it grows with each consecutive failure and differs by
name.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import CreateInstance, DeleteInstance
from fairlead.reconciling.backoff import replaced_at
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import ObservedInstance, PodHealth, ReplicaLimits
from fairlead_testing.worlds.pool_worlds import answer, instance, wanted_pool

LIMITS = ReplicaLimits()
NOW = 1000.0


def failed(name: str, failures: int = 0, *, created_at: float = NOW, died_at: float = NOW) -> ObservedInstance:
    pod = instance(name, InstanceState.LOST, health=PodHealth.FAILED, since=died_at, created_at=created_at)
    return replace(pod, failures=failures)


def test_a_pod_that_fails_at_once_is_replaced_less_and_less_often_up_to_five_minutes() -> None:
    pauses = [replaced_at(failed("a", failures), LIMITS) - NOW for failures in range(8)]
    first = pauses[0]
    assert 10 <= first < 12.5
    assert [round(pause / first, 6) for pause in pauses] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_one_crashing_pod_makes_fourteen_pods_an_hour_and_each_says_how_often_it_failed() -> None:
    pod, made, now = failed("p0"), [0], NOW
    while now < NOW + 3600:
        actions = next_actions(wanted_pool(1), (pod,), answer(), now, LIMITS)
        for action in actions:
            if isinstance(action, CreateInstance):
                made.append(action.failures)
                pod = failed(f"p{len(made)}", action.failures, created_at=now, died_at=now)
        now += 1.0
    assert made == list(range(len(made)))
    assert len(made) in {13, 14, 15}


def test_instances_that_fail_together_are_replaced_apart() -> None:
    pods = [failed(f"chat-b{number:05}", 5) for number in range(100)]
    times = sorted(replaced_at(pod, LIMITS) for pod in pods)
    assert times[-1] - times[0] > 60
    assert max(sum(1 for time in times if start <= time < start + 5) for start in range(1300, 1380)) < 20
    assert times == sorted(replaced_at(pod, LIMITS) for pod in pods), "a restarted operator finds the same times"


def test_a_pod_that_ran_for_long_is_replaced_at_once_and_begins_a_new_row() -> None:
    pod = failed("a", 6, created_at=NOW - 700)
    [create, delete] = next_actions(wanted_pool(1), (pod,), answer(), NOW)
    assert isinstance(create, CreateInstance)
    assert isinstance(delete, DeleteInstance)
    assert create.failures == 1


def test_a_lost_instance_is_waited_for_longer_after_each_loss() -> None:
    once, twice = instance("a", InstanceState.LOST, since=NOW), replace(instance("a", InstanceState.LOST, since=NOW), failures=1)
    assert 60 <= replaced_at(once, LIMITS) - NOW < 75
    assert replaced_at(twice, LIMITS) - NOW == 2 * (replaced_at(once, LIMITS) - NOW)


def test_a_plan_gives_up_no_more_instances_than_it_may_create() -> None:
    lost = tuple(instance(f"i{number}", InstanceState.LOST, since=NOW - 600) for number in range(40))
    actions = next_actions(wanted_pool(40), lost, answer(), NOW, LIMITS)
    assert [type(action) for action in actions] == [CreateInstance] * 16 + [DeleteInstance] * 16


@given(st.integers(0, 10_000), st.floats(1, 1000), st.floats(1, 1000), st.text(max_size=8))
def test_a_pause_is_bounded_and_never_shorter_than_the_first(failures: int, first: float, longest: float, name: str) -> None:
    limits = ReplicaLimits(failed_backoff_seconds=first, longest_backoff_seconds=longest)
    assert first - 1e-6 <= replaced_at(failed(name, failures), limits) - NOW <= max(first, longest) * 1.25 + 1e-6
