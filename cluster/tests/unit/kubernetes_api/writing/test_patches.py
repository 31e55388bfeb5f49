"""Patches as functions: members merged, members replaced, and laws that hold for any patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.objects.errors import ApiError
from processkube.kubernetes_api.objects.objects import copy_of
from processkube.kubernetes_api.schemas.builtin import resolved
from processkube.kubernetes_api.writing.patches import json_patch, merge_patch, strategic_merge_patch
from processkube.testing.examples import examples

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1, max_size=1), inner, max_size=3)),
    max_leaves=8,
)
objects = st.dictionaries(st.text("abc", min_size=1, max_size=1), values, max_size=3)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def difference(old: Any, new: Any) -> Any:
    """Return the merge patch from `old` to `new`; neither may hold nulls in its maps."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    patch |= {key: difference(old.get(key), value) for key, value in new.items() if key not in old or old[key] != value}
    return patch


@examples(150)
@given(objects.map(without_nulls), objects.map(without_nulls))
def test_a_merge_patch_leads_from_any_object_to_any_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy_of(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


@examples(100)
@given(objects, objects)
def test_a_merge_patch_is_idempotent(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_the_examples_of_rfc_7386_hold(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_a_json_patch_leaves_its_target_alone() -> None:
    target = {"a": {"b": 1}}
    assert json_patch(target, [{"op": "replace", "path": "/a/b", "value": 2}]) == {"a": {"b": 2}}
    assert target == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([{"op": "remove", "path": "/nothing"}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "replace", "path": "", "value": 3}], 422),
        ([{"op": "dance", "path": "/a"}], 400),
        ({"a": 1}, 400),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(operations: Any, code: int) -> None:
    with pytest.raises(ApiError) as refusal:
        json_patch({"a": 1}, operations)
    assert refusal.value.code == code


POD = resolved("io.k8s.api.v1.Pod")


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def test_containers_merge_by_name_and_environment_by_variable() -> None:
    old = pod({"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "b"})
    change = pod({"name": "a", "env": [{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]})
    merged = strategic_merge_patch(old, change, POD)["spec"]["containers"]
    assert merged == [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]},
        {"name": "b"},
    ]


def test_directives_delete_replace_retain_and_order() -> None:
    old = pod({"name": "a"}, {"name": "b"}, volumes=[{"name": "v", "emptyDir": {}}])
    assert strategic_merge_patch(old, pod({"name": "a", "$patch": "delete"}), POD) == pod({"name": "b"}, volumes=old["spec"]["volumes"])
    replaced = strategic_merge_patch(old, pod({"$patch": "replace"}, {"name": "c"}), POD)
    assert replaced["spec"]["containers"] == [{"name": "c"}]
    change = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}
    assert strategic_merge_patch(old, change, POD)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
    ordered = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "containers": [{"name": "c"}]}}
    assert [one["name"] for one in strategic_merge_patch(old, ordered, POD)["spec"]["containers"]] == ["c", "b", "a"]


def test_finalizers_are_a_set_and_tolerations_one_value() -> None:
    old = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"tolerations": [{"key": "x"}]}}
    change = {"metadata": {"finalizers": ["b", "c"]}, "spec": {"tolerations": [{"key": "y"}]}}
    assert strategic_merge_patch(old, change, POD) == {
        "metadata": {"finalizers": ["a", "b", "c"]},
        "spec": {"tolerations": [{"key": "y"}]},
    }
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge_patch(old, removal, POD)["metadata"] == {"finalizers": ["b"]}


def test_a_list_item_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        strategic_merge_patch(pod({"name": "a"}), pod({"image": "x"}), POD)
