"""Instances whose engine makes no progress, as routers observe it, are replaced a few at a time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.pool_states import InstanceTrouble
from fairlead.reconciling.actions import Action, CreateInstance, Drain, DrainReason
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import ObservedInstance
from fairlead.reports.engines import EngineTrouble
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pool

S = InstanceState
NOW = 1000.0


def plan(
    *here: ObservedInstance,
    stalled: tuple[str, ...] = (),
    seconds: float = 61.0,
    trouble: EngineTrouble = EngineTrouble.ENGINE_STALLED,
    after: float = 60.0,
    api: bool = True,
    replicas: int | None = None,
) -> tuple[Action, ...]:
    pool = wanted_pool(len(here) if replicas is None else replicas)
    desired = replace(pool, roles=tuple(replace(role, replace_stalled_after_seconds=after) for role in pool.roles))
    troubles = tuple(InstanceTrouble(instance=one, trouble=trouble, words="it moves nothing", seconds=seconds) for one in stalled)
    known = replace(answer(*(seen(one.id) for one in here)), troubled_engines=troubles) if api else None
    return next_actions(desired, here, known, NOW, last_ordinal=len(here))


def drains(actions: tuple[Action, ...]) -> list[tuple[str, DrainReason]]:
    return [(one.instance, one.reason) for one in actions if isinstance(one, Drain)]


def test_a_stalled_instance_is_drained_and_another_is_made() -> None:
    actions = plan(instance("a"), instance("b"), instance("c"), stalled=("b",))
    assert drains(actions) == [("b", DrainReason.STALLED)]
    assert sum(isinstance(one, CreateInstance) for one in actions) == 1


def test_also_the_only_one_since_it_serves_nothing() -> None:
    assert drains(plan(instance("a"), stalled=("a",))) == [("a", DrainReason.STALLED)]


def test_nothing_is_drained_for_less() -> None:
    here = (instance("a"), instance("b"))
    assert plan(*here, stalled=("a",), seconds=59.0) == ()
    assert plan(*here, stalled=("a",), seconds=0.0) == (), "nobody is certain"
    assert plan(*here, stalled=("a",), trouble=EngineTrouble.ENGINE_SLOW) == ()
    assert plan(*here, stalled=("a",), after=0.0) == (), "the pool does not want it"
    assert plan(*here, stalled=("a",), api=False) == ()


def test_pods_of_others_stay_theirs() -> None:
    adopted = replace(instance("a"), adopted=True)
    assert drains(plan(adopted, instance("b"), stalled=("a",))) == []


@pytest.mark.parametrize(("replicas", "at_once"), [(1, 1), (3, 1), (7, 1), (8, 2), (12, 3)])
def test_where_all_are_stalled_at_once_a_quarter_is_drained_and_the_rest_waits(replicas: int, at_once: int) -> None:
    here = tuple(instance(f"i{number:02}") for number in range(replicas))
    assert len(drains(plan(*here, stalled=tuple(one.id for one in here)))) == at_once


@given(
    states=st.lists(st.sampled_from((S.SERVING, S.SERVING, S.SERVING, S.LOST, S.STARTING, S.DRAINING)), min_size=1, max_size=16),
    stalled=st.sets(st.integers(0, 15)),
)
def test_never_more_than_a_quarter_is_away_for_it(states: list[InstanceState], stalled: set[int]) -> None:
    here = tuple(instance(f"i{number:02}", state, since=NOW - 1) for number, state in enumerate(states))
    named = tuple(one.id for number, one in enumerate(here) if number in stalled)
    taken = [one for one, reason in drains(plan(*here, stalled=named)) if reason is DrainReason.STALLED]
    assert set(taken) <= set(named)
    serving = sum(one.state is S.SERVING for one in here) - len(taken)
    assert not taken or len(here) - serving <= max(1, len(here) // 4)
