"""A halted rollout: which template instances get that replace lost ones, or are added."""

from collections import Counter

import pytest

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import CreateInstance, DeleteInstance, Drain
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import DesiredPool, Halt, ObservedInstance, PodHealth, RolloutBounds
from fairlead_testing.worlds.cluster_worlds import ClusterWorld
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted, wanted_pool

S = InstanceState
NOW = 1000.0
STOPPED = Halt(former_hash="old", regressed=True)
OLD, NEW = "old", "new"


def rolling(replicas: int, halt: Halt | None) -> DesiredPool:
    return DesiredPool(roles=(wanted(replicas, spec_hash=NEW, rollout=RolloutBounds(halt=halt)),))


def created(desired: DesiredPool, *here: ObservedInstance) -> list[str]:
    """Return the templates of the instances that are created now."""
    known = answer(*(seen(one.id) for one in here))
    actions = next_actions(desired, here, known, NOW, last_ordinal=9)
    return [action.spec_hash for action in actions if isinstance(action, CreateInstance)]


def lost(name: str, spec_hash: str) -> ObservedInstance:
    return instance(name, S.LOST, spec_hash=spec_hash, health=PodHealth.FAILED)


@pytest.mark.parametrize("template", [OLD, NEW])
def test_after_a_regression_whoever_is_lost_is_replaced_with_the_former_template(template: str) -> None:
    assert created(rolling(2, STOPPED), instance("a", spec_hash=OLD), lost("b", template)) == [OLD]


def test_after_a_regression_added_instances_get_the_former_template() -> None:
    assert created(rolling(4, STOPPED), instance("a", spec_hash=OLD), instance("b", spec_hash=NEW)) == [OLD, OLD]


def test_paused_a_lost_instance_is_replaced_with_the_template_it_had() -> None:
    paused = rolling(3, Halt(former_hash=OLD, updated=1))
    old, new = instance("a", spec_hash=OLD), instance("b", spec_hash=NEW)
    assert created(paused, old, new, lost("c", OLD)) == [OLD]
    assert created(paused, old, instance("b", spec_hash=OLD), lost("c", NEW)) == [NEW]


def test_paused_before_anything_was_updated_the_new_template_is_used_by_nobody() -> None:
    assert created(rolling(3, Halt(former_hash=OLD)), instance("a", spec_hash=OLD)) == [OLD, OLD]


def test_without_a_known_former_template_the_present_one_is_used() -> None:
    assert created(rolling(2, Halt(regressed=True)), instance("a", spec_hash=OLD)) == [NEW]


@pytest.mark.parametrize(("halt", "goes"), [(STOPPED, "new"), (Halt(former_hash=OLD, updated=1), "old"), (None, "old")])
def test_scaling_in_takes_what_made_it_worse_after_a_regression_and_what_is_outdated_otherwise(halt: Halt | None, goes: str) -> None:
    here = (instance("old", spec_hash=OLD), instance("more", spec_hash=OLD), instance("new", spec_hash=NEW))
    actions = next_actions(rolling(1, halt), here, answer(seen("old"), seen("more", sessions=9), seen("new")), NOW)
    assert [action.instance for action in actions if isinstance(action, Drain)] == [goes]


def test_a_surge_that_failed_is_not_made_again_once_the_rollout_is_stopped() -> None:
    here = (instance("a", spec_hash=OLD), instance("b", spec_hash=OLD), lost("c", NEW))
    actions = next_actions(rolling(2, STOPPED), here, answer(seen("a"), seen("b")), NOW)
    assert [type(action) for action in actions] == [DeleteInstance]


def test_a_stopped_rollout_outlives_every_loss_on_the_former_template_and_goes_on_after_it() -> None:
    world = ClusterWorld(desired=wanted_pool(3))
    for _ in range(10):
        world.quiet_round()
    world.desired = DesiredPool(roles=(wanted(3, spec_hash=NEW),))
    for _ in range(6):
        world.quiet_round()
    assert Counter(pod.spec_hash for pod in world.pods.values() if pod.draining_since is None) == {"one": 2, NEW: 1}
    world.desired = DesiredPool(roles=(wanted(3, spec_hash=NEW, rollout=RolloutBounds(halt=Halt(former_hash="one", regressed=True))),))
    for name in list(world.pods):
        world.change(name, health=PodHealth.FAILED)
        for _ in range(30):
            world.quiet_round()
    assert Counter(pod.spec_hash for pod in world.pods.values()) == {"one": 3}
    world.desired = DesiredPool(roles=(wanted(3, spec_hash=NEW),))
    for _ in range(60):
        world.quiet_round()
    assert world.is_settled()
