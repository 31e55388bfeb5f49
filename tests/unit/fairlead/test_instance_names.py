"""Names of instances: equal for all operators with equal observations, and never given twice."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState, Role, instance_name, ordinal_of_name
from fairlead.reconciling.actions import CreateInstance
from fairlead.reconciling.next_actions import next_actions
from fairlead.reconciling.observed import ObservedInstance
from fairlead_testing.examples import examples
from fairlead_testing.worlds.pool_worlds import answer, instance, wanted_pool


def test_a_name_is_the_pool_the_role_letter_and_five_characters() -> None:
    name = instance_name("chat", "uid-1", Role.BOTH, 1)
    assert re.fullmatch(r"chat-b[bcdfghjklmnpqrstvwxz2456789]{5}", name)
    assert name == instance_name("chat", "uid-1", Role.BOTH, 1)
    assert name != instance_name("chat", "uid-2", Role.BOTH, 1), "a namesake made later has other names"
    assert instance_name("chat", "uid-1", Role.PREFILL, 1).startswith("chat-p")


@given(st.text(min_size=1, max_size=40), st.integers(1, 14_000_000))
def test_no_two_instances_of_a_pool_share_a_name(uid: str, first: int) -> None:
    assert len({instance_name("chat", uid, Role.BOTH, first + step) for step in range(500)}) == 500


@given(st.text(min_size=1, max_size=40), st.sampled_from(Role), st.integers(1, 14_000_000))
def test_a_name_says_its_ordinal_to_its_own_pool_only(uid: str, role: Role, ordinal: int) -> None:
    name = instance_name("chat", uid, role, ordinal)
    assert ordinal_of_name(name, "chat", uid, role) == ordinal
    assert ordinal_of_name(name, "chat", f"{uid}-other", role) != ordinal
    assert ordinal_of_name(name, "chatty", uid, role) is None
    assert all(ordinal_of_name(name, "chat", uid, other) is None for other in Role if other is not role)


@pytest.mark.parametrize("name", ["", "chat", "chat-b", "chat-bbbbb", "chat-bbbbbbb", "chat-baeiou", "other-bbbbbb"])
def test_what_is_no_instances_name_has_no_ordinal(name: str) -> None:
    assert ordinal_of_name(name, "chat", "uid-1", Role.BOTH) is None


def creations(replicas: int, observed: tuple[ObservedInstance, ...], last: int = 0) -> list[int]:
    actions = next_actions(wanted_pool(replicas), observed, answer(), 1000.0, last_ordinal=last)
    return [action.ordinal for action in actions if isinstance(action, CreateInstance)]


def numbered(*ordinals: int, terminating: frozenset[int] = frozenset()) -> tuple[ObservedInstance, ...]:
    return tuple(
        replace(instance(f"i{ordinal}", InstanceState.STARTING, since=999.5), ordinal=ordinal, terminating=ordinal in terminating)
        for ordinal in ordinals
    )


def test_ordinals_go_on_after_the_highest_ever_seen_also_when_it_ends_or_is_gone() -> None:
    assert creations(3, numbered(1)) == [2, 3]
    assert creations(2, numbered(1, 2, terminating=frozenset({2}))) == [3]
    assert creations(2, (), last=9) == [10, 11]


@examples(200)
@given(st.integers(0, 6), st.integers(0, 12), st.data())
def test_two_operators_never_make_more_than_wanted_however_their_looks_interleave(before: int, replicas: int, data: st.DataObject) -> None:
    """Each operator lists instances, then creates one after the other. The other may list between any two creations.

    An instance whose name exists is not created again.
    """
    pods = list(range(1, before + 1))
    todo: dict[str, list[int]] = {"one": [], "other": []}
    for _ in range(40):
        who: str = data.draw(st.sampled_from(["one", "other"]))
        creates: bool = data.draw(st.booleans())
        if todo[who] and creates:
            ordinal = todo[who].pop(0)
            if ordinal not in pods:
                pods.append(ordinal)
        else:
            todo[who] = creations(replicas, numbered(*pods))
        assert len(pods) <= max(before, replicas)
