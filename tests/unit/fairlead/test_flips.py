"""Instances that change their role: they drain in one role, then the same pod serves in the other."""

from dataclasses import replace

import pytest

from fairlead.instances import InstanceState, Role
from fairlead.reconciling.actions import CreateInstance, DeleteInstance, DeletionReason, Drain, DrainReason, FlipRole
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import ObservedInstance, PodHealth, RoleChange
from fairlead_testing.worlds.pool_worlds import answer, instance, seen, wanted_pair

S = InstanceState
NOW = 1000.0
PREFILL, DECODE = Role.PREFILL, Role.DECODE


def pair(prefill: int, decode: int) -> tuple[ObservedInstance, ...]:
    """Return this many serving instances p0, p1, … and d0, d1, …"""
    return (
        *(instance(f"p{number}", role=PREFILL) for number in range(prefill)),
        *(instance(f"d{number}", role=DECODE) for number in range(decode)),
    )


ALL = answer(*(seen(f"{letter}{number}", sessions=9 - number) for letter in "pd" for number in range(6)))


def flipping(name: str = "p1", *, health: PodHealth = PodHealth.READY, spec_hash: str = "one") -> ObservedInstance:
    return instance(name, S.DRAINING, role=PREFILL, since=NOW - 5, flip_to=DECODE, health=health, spec_hash=spec_hash)


def test_one_too_many_here_and_one_too_few_there_is_one_flip_of_the_cheapest() -> None:
    [drain] = next_actions(wanted_pair(1, 3), pair(2, 2), ALL, NOW)
    assert isinstance(drain, Drain)
    assert (drain.instance, drain.reason, drain.flip_to) == ("p1", DrainReason.ROLE_FLIP, DECODE)


def test_by_replace_the_new_one_comes_and_the_old_one_is_drained() -> None:
    create, drain = next_actions(wanted_pair(1, 3, role_change=RoleChange.REPLACE), pair(2, 2), ALL, NOW)
    assert isinstance(drain, Drain)
    assert drain.flip_to is None
    assert isinstance(create, CreateInstance)
    assert create.role is DECODE


def test_templates_that_differ_are_never_flipped() -> None:
    here = tuple(replace(pod, spec_hash="two") if pod.role is DECODE else pod for pod in pair(2, 2))
    create, drain = next_actions(wanted_pair(1, 3, hashes=("one", "two")), here, ALL, NOW)
    assert isinstance(drain, Drain)
    assert drain.flip_to is None
    assert isinstance(create, CreateInstance)


def test_a_flip_waits_until_the_instance_is_empty_and_then_changes_role_and_state_at_once() -> None:
    here = (*pair(1, 2), flipping())
    busy = answer(seen("p1", in_flight=1), *(seen(name) for name in ("p0", "d0", "d1")))
    assert next_actions(wanted_pair(1, 3), here, busy, NOW) == ()
    assert next_actions(wanted_pair(1, 3), here, ALL, NOW) == (FlipRole(instance="p1", before=PREFILL, role=DECODE),)


def test_at_the_drain_timeout_it_flips_with_what_still_runs_there() -> None:
    here = (*pair(1, 2), flipping())
    busy = answer(seen("p1", in_flight=1), *(seen(name) for name in ("p0", "d0", "d1")))
    assert next_actions(wanted_pair(1, 3), here, busy, NOW + 120) == (FlipRole(instance="p1", before=PREFILL, role=DECODE),)


def test_the_next_flip_begins_when_the_last_one_serves() -> None:
    first, *_ = next_actions(wanted_pair(1, 5), pair(3, 3), ALL, NOW)
    assert isinstance(first, Drain)
    under_way = (*pair(1, 3), instance("p1", role=PREFILL), flipping("p2"))
    assert next_actions(wanted_pair(1, 5), under_way, answer(seen("p2", in_flight=1), seen("p0"), seen("p1")), NOW) == ()
    warming = (*pair(2, 3), instance("p2", S.WARMING, role=DECODE))
    assert next_actions(wanted_pair(1, 5), warming, answer(seen("p2", acknowledged=False), seen("p0"), seen("p1")), NOW) == ()
    [second] = next_actions(wanted_pair(1, 5), (*pair(2, 3), instance("p2", role=DECODE)), ALL, NOW)
    assert isinstance(second, Drain)


def test_a_wish_taken_back_in_mid_flip_returns_the_instance_to_its_own_role() -> None:
    here = (*pair(1, 2), flipping())
    assert next_actions(wanted_pair(2, 2), here, ALL, NOW) == (FlipRole(instance="p1", before=PREFILL, role=PREFILL),)


def test_without_a_place_anywhere_the_drained_instance_goes() -> None:
    assert next_actions(wanted_pair(1, 2), (*pair(1, 2), flipping()), ALL, NOW) == (
        DeleteInstance(instance="p1", reason=DeletionReason.DRAINED),
    )


def test_a_new_template_in_mid_flip_replaces_the_instance() -> None:
    actions = next_actions(wanted_pair(1, 3), (*pair(1, 2), flipping(spec_hash="old")), ALL, NOW)
    assert [type(action) for action in actions] == [CreateInstance, DeleteInstance]


def test_what_does_not_serve_is_given_up_instead_of_flipped() -> None:
    here = (*pair(1, 2), instance("p9", S.STARTING, role=PREFILL))
    actions = next_actions(wanted_pair(1, 3), here, ALL, NOW)
    assert [type(action) for action in actions] == [CreateInstance, DeleteInstance]


def test_while_the_control_api_is_silent_no_flip_starts_and_what_a_role_lacks_is_created() -> None:
    [create] = next_actions(wanted_pair(1, 3), pair(2, 2), None, NOW)
    assert isinstance(create, CreateInstance)
    assert create.role is DECODE
    assert next_actions(wanted_pair(1, 3), (*pair(1, 2), flipping()), None, NOW) == (), "one under way counts there already"


@pytest.mark.parametrize("health", [PodHealth.RUNNING, PodHealth.PENDING])
def test_an_engine_that_is_not_ready_does_not_flip(health: PodHealth) -> None:
    actions = next_actions(wanted_pair(1, 3), (*pair(1, 2), flipping(health=health)), ALL, NOW)
    assert [type(action) for action in actions] == [CreateInstance, DeleteInstance]


def test_an_instance_whose_label_names_a_role_the_pool_does_not_have_is_drained() -> None:
    [drain] = next_actions(wanted_pair(1, 1), (*pair(1, 1), instance("x")), answer(seen("x")), NOW)
    assert isinstance(drain, Drain)
    assert drain.instance == "x"
