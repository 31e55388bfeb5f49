"""Cordoned instances: they get no new requests, keep running, and are the first to be removed."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import CreateInstance, Drain, RecordState
from fairlead.reconciling.next_actions import next_actions
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pool

S = InstanceState
NOW = 1000.0


@pytest.mark.parametrize("state", [S.SERVING, S.WARMING])
def test_a_cordon_takes_an_instance_out_of_service(state: InstanceState) -> None:
    assert next_actions(wanted_pool(1), (instance("a", state, cordoned=True),), answer(seen("a")), NOW) == (
        RecordState(instance="a", before=state, state=S.CORDONED, reason="Cordoned"),
    )


def test_an_instance_that_becomes_ready_under_a_cordon_never_accepts() -> None:
    starting = instance("a", S.STARTING, health=instance("b").health, cordoned=True)
    [record] = next_actions(wanted_pool(1), (starting,), answer(seen("a")), NOW)
    assert isinstance(record, RecordState)
    assert record.state is S.CORDONED


def test_without_its_cordon_it_serves_again() -> None:
    assert next_actions(wanted_pool(1), (instance("a", S.CORDONED),), answer(seen("a")), NOW) == (
        RecordState(instance="a", before=S.CORDONED, state=S.SERVING, reason="Uncordoned"),
    )


def test_a_cordoned_instance_is_not_replaced() -> None:
    observed = (instance("a"), instance("b", S.CORDONED, cordoned=True))
    assert next_actions(wanted_pool(2), observed, answer(seen("a"), seen("b")), NOW) == ()
    assert [type(action) for action in next_actions(wanted_pool(3), observed, answer(), NOW)] == [CreateInstance]


def test_scaling_in_takes_the_cordoned_first_whatever_it_costs() -> None:
    observed = (instance("a"), instance("b"), instance("c", S.CORDONED, cordoned=True))
    [drain] = next_actions(wanted_pool(2), observed, answer(seen("a"), seen("b"), seen("c", sessions=99, cache=10**6)), NOW)
    assert isinstance(drain, Drain)
    assert drain.instance == "c"


def test_a_draining_instance_that_was_lost_drains_on_when_it_is_back() -> None:
    back = instance("a", S.LOST, health=instance("b").health)
    draining = replace(back, draining_since=900.0)
    assert next_actions(wanted_pool(0), (draining,), answer(seen("a")), NOW) == (
        RecordState(instance="a", before=S.LOST, state=S.DRAINING, reason="BackWhileDraining"),
    )
