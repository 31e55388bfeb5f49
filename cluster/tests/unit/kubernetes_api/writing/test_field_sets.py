"""Field paths and ownership: laws that hold for any object."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.objects.errors import Conflict
from processkube.kubernetes_api.objects.objects import copy_of
from processkube.kubernetes_api.writing.field_sets import changed_fields, field_set, from_fields_v1, path_text, to_fields_v1
from processkube.kubernetes_api.writing.server_side_apply import (
    APPLY,
    UPDATE,
    Manager,
    Ownership,
    apply,
    read_ownership,
    record_update,
    write_ownership,
)
from processkube.testing.examples import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "integer"},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "integer"}},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}},
                },
            },
        }
    },
}
numbers = st.integers(0, 3)
parts = st.dictionaries(st.sampled_from("pqr"), st.dictionaries(st.just("size"), numbers, max_size=1), min_size=1, max_size=3).map(
    lambda found: [{"name": name, **rest} for name, rest in found.items()]
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "a": numbers,
        "b": numbers,
        "tags": st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True),
        "plain": st.lists(numbers, min_size=1, max_size=2),
        "parts": parts,
    },
).filter(bool)
objects = specs.map(lambda spec: {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec})


def manager(name: str, operation: str = APPLY) -> Manager:
    return Manager(name=name, operation=operation, api_version="x/v1", subresource="", time="2026-01-01T00:00:00Z")


def plain(value: Any) -> Any:
    """Return the value without regard to the order of keyed lists and sets."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {item["name"]: plain(item) for item in value}
    return sorted(value, key=str) if isinstance(value, list) and value and isinstance(value[0], str) else value


@examples(100)
@given(objects)
def test_field_sets_survive_their_wire_form(item: dict[str, Any]) -> None:
    paths = field_set(item, SCHEMA)
    assert from_fields_v1(to_fields_v1(paths)) == paths
    owners: Ownership = {manager("m").identity: (manager("m"), frozenset(paths))}
    assert read_ownership(write_ownership(owners)) == owners


@examples(100)
@given(objects, objects)
def test_changes_are_fields_of_the_new_object_and_none_when_equal(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert changed_fields(old, new, SCHEMA) <= field_set(new, SCHEMA)
    assert changed_fields(old, copy_of(old), SCHEMA) == set()


@examples(100)
@given(objects, objects)
def test_the_last_apply_of_a_lone_manager_is_the_whole_truth(first: dict[str, Any], second: dict[str, Any]) -> None:
    live, owners = apply(None, first, {}, manager("m"), SCHEMA, force=False)
    live, owners = apply(live, second, owners, manager("m"), SCHEMA, force=False)
    assert plain(live["spec"]) == plain(second["spec"])


@examples(150)
@given(objects, objects)
def test_an_apply_conflicts_exactly_over_fields_it_would_change(first: dict[str, Any], second: dict[str, Any]) -> None:
    live, owners = apply(None, first, {}, manager("one"), SCHEMA, force=False)
    shared = field_set(first["spec"], SCHEMA["properties"]["spec"]) & field_set(second["spec"], SCHEMA["properties"]["spec"])
    contested = {path for path in shared if path in changed_fields(first["spec"], second["spec"], SCHEMA["properties"]["spec"])}
    try:
        merged, after = apply(live, second, owners, manager("two"), SCHEMA, force=False)
    except Conflict as conflict:
        fields = {cause["field"] for cause in (conflict.details or {})["causes"]}
        assert fields == {path_text(("f:spec", *path)) for path in contested}
        merged, after = apply(live, second, owners, manager("two"), SCHEMA, force=True)
    else:
        assert contested == set()
    wanted = field_set(second, SCHEMA) - {("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name")}
    assert after[manager("two").identity][1] == wanted
    assert merged["spec"].get("a", 0) == second["spec"].get("a", first["spec"].get("a", 0))


@examples(100)
@given(objects, objects)
def test_after_a_plain_write_every_changed_field_has_one_owner(first: dict[str, Any], second: dict[str, Any]) -> None:
    live, owners = apply(None, first, {}, manager("gitops"), SCHEMA, force=False)
    after = record_update(owners, manager("ui", UPDATE), live, second, SCHEMA)
    present = field_set({"spec": second["spec"]}, SCHEMA)
    held = [path for _, paths in after.values() for path in paths]
    assert set(held) == present
    assert len(held) == len(set(held))


def test_paths_read_like_the_conflicts_of_the_real_server() -> None:
    assert path_text(("f:spec", 'k:{"name":"a"}', "f:image")) == '.spec[name="a"].image'
    assert path_text(("f:tags", 'v:"x"')) == '.tags[="x"]'
