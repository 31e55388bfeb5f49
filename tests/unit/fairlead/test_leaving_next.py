"""Instances that will soon be drained are known in advance: those that a rollout replaces, and those that a person
wants removed.
"""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead.reconciling.actions import Drain, DrainReason
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import Halt, ObservedInstance, RolloutBounds
from fairlead.reconciling.rollouts import leaving_next
from fairlead_testing.examples import examples
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pool

STATES = st.sampled_from([InstanceState.SERVING, InstanceState.CORDONED, InstanceState.WARMING])


@st.composite
def pools(draw: st.DrawFn) -> tuple[ObservedInstance, ...]:
    count = draw(st.integers(1, 5))
    return tuple(
        instance(f"i{number}", draw(STATES), spec_hash=draw(st.sampled_from(["one", "old"])), drain_requested=draw(st.booleans()))
        for number in range(count)
    )


@given(pools(), st.integers(1, 5), st.booleans())
@examples(300)
def test_nobody_is_drained_for_a_rollout_or_on_request_who_was_not_known_to_leave(
    observed: tuple[ObservedInstance, ...], replicas: int, halted: bool
) -> None:
    desired = wanted_pool(replicas, rollout=RolloutBounds(halt=Halt() if halted else None))
    actions = next_actions(desired, observed, answer(*(seen(one.id) for one in observed)), 1000.0)
    drained = {one.instance for one in actions if isinstance(one, Drain) and one.reason in (DrainReason.OUTDATED, DrainReason.REQUESTED)}
    assert drained <= leaving_next(desired.roles, observed, halted=halted)


def test_what_has_the_present_template_stays_and_so_does_everything_while_the_rollout_is_halted() -> None:
    observed = (instance("new"), instance("old", spec_hash="old"), instance("asked", drain_requested=True))
    roles = wanted_pool(2).roles
    assert leaving_next(roles, observed, halted=False) == {"old", "asked"}
    assert leaving_next(roles, observed, halted=True) == {"asked"}
    assert leaving_next((), observed, halted=False) == {"asked"}
