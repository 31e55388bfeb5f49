"""Kinds that change bounds, pace, sessions, draining, fairness and classes: their patches and their sentences."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import parse_spec
from fairlead.tables import PriorityClass
from fairlead_api.plans.kinds.bounds import bounds_in_words, bounds_patch
from fairlead_api.plans.kinds.classes import classes_effect
from fairlead_api.plans.kinds.sessions import sessions_effect
from fairlead_api.plans.merge_patches import merged
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_testing.examples import examples

BOTH = {"model": "m", "replicas": 4, "roles": [{"name": "both", "minReplicas": 2, "maxReplicas": 8}]}
PAIR = {"model": "m", "roles": [{"name": "prefill", "replicas": 2, "maxReplicas": 8}, {"name": "decode", "maxReplicas": 8}]}


def after(spec: dict[str, Any], role: Role | None = None, **fields: Any) -> dict[str, Any]:
    return merged(spec, bounds_patch(PlanRequest(kind=PlanKind.BOUNDS, role=role, fields=fields), spec))


@examples(100)
@given(least=st.integers(0, 20), more=st.integers(0, 20), declared=st.integers(0, 20))
def test_bounds_never_leave_the_declared_number_outside(least: int, more: int, declared: int) -> None:
    spec = {**BOTH, "replicas": declared, "roles": [{"name": "both"}]}
    found = after(spec, minReplicas=least, maxReplicas=least + more)
    parse_spec(found)
    assert found["replicas"] == max(least, min(least + more, declared))


def test_bounds_of_one_role_leave_the_other_alone() -> None:
    found = after(PAIR, Role.PREFILL, minReplicas=3)
    assert found["roles"] == [{"name": "prefill", "replicas": 3, "minReplicas": 3, "maxReplicas": 8}, PAIR["roles"][1]]
    assert len(bounds_in_words(parse_spec(found))) == 2


def test_bounds_of_a_pool_that_declares_no_roles_are_written() -> None:
    assert after({"model": "m"}, minReplicas=2) == {"model": "m", "replicas": 2, "roles": [{"name": "both", "minReplicas": 2}]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"minReplicas": -1}, "minReplicas: -1 cannot be used; write a whole number from 0"),
        ({"maxReplicas": 2.5}, "maxReplicas: 2.5"),
        ({"maxReplicas": True}, "maxReplicas: True"),
        ({"warm": {"asleep": 65}}, "warm.asleep: 65 cannot be used; write a whole number from 0 to 64"),
        ({"warm": {"asleep": "many"}}, "warm.asleep: 'many'"),
        ({"warm": 2}, "warm.asleep: 2"),
        ({"warm": {"asleep": 1, "level": 2}}, "warm.asleep"),
        ({"replicas": 3}, "fields.replicas: 3 cannot be used; remove it"),
    ],
)
def test_what_is_no_bound_is_refused_by_its_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        after(BOTH, **fields)


def test_a_change_of_sleepers_keeps_the_turns_that_the_role_takes() -> None:
    turns = {"claims": ["gpu-0"]}
    [role] = cast("list[dict[str, Any]]", BOTH["roles"])
    both = {**BOTH, "roles": [{**role, "maxReplicas": 1, "warm": {"asleep": 1, "turns": turns}}]}
    assert after(both, warm={"asleep": 3})["roles"][0]["warm"] == {"asleep": 3, "turns": turns}
    for nothing in (None, {"asleep": 0}):
        with pytest.raises(InvalidInput, match="takes turns on its devices"):
            after(both, warm=nothing)


@pytest.mark.parametrize("nothing", [None, {"asleep": None}])
def test_how_many_sleep_is_written_said_and_taken_out(nothing: object) -> None:
    found = after(BOTH, warm={"asleep": 2})
    (role,) = cast("list[dict[str, object]]", BOTH["roles"])
    assert found["roles"] == [{**role, "warm": {"asleep": 2}}]
    assert "Up to 2 more sleep instead of being deleted." in bounds_in_words(parse_spec(found))[0]
    assert after(found, warm=nothing) == BOTH


def test_a_pair_is_asked_which_role() -> None:
    with pytest.raises(InvalidInput, match=r"role: .*write prefill or decode"):
        after(PAIR, minReplicas=1)


def test_a_shorter_ttl_and_another_header_say_who_loses_what() -> None:
    before = parse_spec({"model": "m"}).facts()
    same = sessions_effect(7, before, before)
    assert (same.warnings, len(same.notes)) == ([], 1)
    other = parse_spec({"model": "m", "routing": {"session": {"ttl": "5m", "header": "x-chat"}}}).facts()
    assert [line[:12] for line in sessions_effect(7, before, other).warnings] == ["Of 7 session", "Requests tha"]


def test_a_class_that_goes_is_named() -> None:
    before, now = (
        (PriorityClass(name="batch", priority=-1), PriorityClass(name="live", priority=9)),
        (PriorityClass(name="live", priority=9),),
    )
    assert "batch" in classes_effect(before, now).warnings[0]
    assert classes_effect((), before).notes == ["Waiting requests are sent in the order live, batch."]
    assert classes_effect((), ()).notes == ["All requests are alike."]
