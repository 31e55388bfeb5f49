"""A rule that accepted an object is not evaluated again for the same members, but for others it is."""

from __future__ import annotations

from typing import Any

import pytest

from processkube.kubernetes_api.cel.rules import check_rules, compile_rules, members_read, parsed
from processkube.kubernetes_api.schemas.validation import ABSENT


@pytest.mark.parametrize(
    ("rule", "members"),
    [
        ("size(self.metadata.name) <= 52", {"metadata"}),
        ("!has(self.a) || self.a.b == oldSelf.c", {"a", "c"}),
        ("self.roles.all(role, role.name == 'both')", {"roles"}),
        ("1 < 2", set()),
        ("self == oldSelf", None),
        ("has(self.a) && self.all(key, key != 'b')", None),
        ("self[0] == 1", None),
        ("self.__in__ == 1", None),
    ],
)
def test_the_members_that_a_rule_reads_are_known_from_its_text(rule: str, members: set[str] | None) -> None:
    found = members_read(parsed(rule))
    assert (found if found is None else set(found)) == members


def schema(*rules: dict[str, Any]) -> dict[str, Any]:
    number = {"type": "integer"}
    return {"type": "object", "properties": {"a": number, "b": number}, "x-kubernetes-validations": list(rules)}


def messages(rules: list[dict[str, Any]], *writes: tuple[Any, Any]) -> list[list[str]]:
    """Return the messages of one definition for each (value, old value) in turn."""
    tree = compile_rules(schema(*rules))
    assert tree is not None
    return [[cause.message for cause in check_rules(value, tree, "spec", old)] for value, old in writes]


def test_a_value_that_passed_does_not_hide_one_that_fails() -> None:
    right, wrong = {"a": 1, "b": 1}, {"a": 2, "b": 1}
    found = messages([{"rule": "self.a < 2", "message": "too large"}], (right, ABSENT), (wrong, right), (right, wrong), (wrong, ABSENT))
    assert [bool(causes) for causes in found] == [False, True, False, True]


def test_a_change_elsewhere_is_right_as_before_and_every_rule_counts() -> None:
    rules = [{"rule": "self.a < 2"}, {"rule": "!has(self.b) || self.b < 2"}]
    found = messages(rules, ({"a": 1}, ABSENT), ({"a": 1, "b": 1}, {"a": 1}), ({"a": 1, "b": 2}, {"a": 1, "b": 1}))
    assert [bool(causes) for causes in found] == [False, False, True]


def test_the_same_value_may_be_a_wrong_change_of_another() -> None:
    rules = [{"rule": "self.a >= oldSelf.a", "message": "it may only grow"}]
    found = messages(rules, ({"a": 2}, ABSENT), ({"a": 2}, {"a": 1}), ({"a": 2}, {"a": 3}))
    assert [bool(causes) for causes in found] == [False, False, True]


def test_a_message_may_tell_of_members_that_its_rule_does_not_read() -> None:
    rules = [{"rule": "self.a < 2", "messageExpression": "'b is ' + string(self.b)"}]
    assert messages(rules, ({"a": 2, "b": 7}, ABSENT)) == [["Invalid value: b is 7"]]
