"""Schemas: pruning, defaulting, validation, and the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.kinds.kinds import builtin_kinds
from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.objects.objects import copy_of
from processkube.kubernetes_api.schemas import generator as schema_generator
from processkube.kubernetes_api.schemas.builtin import definitions
from processkube.kubernetes_api.schemas.decoding import decode_typed
from processkube.kubernetes_api.schemas.schemas import apply_defaults, prune
from processkube.kubernetes_api.schemas.validation import validate
from processkube.testing.examples import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "default": 1, "minimum": 0},
        "inner": {"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"c": {"type": "object"}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"d": {"type": "integer", "default": 2}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "boolean"}}}},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True, "default": "y"},
    },
}
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "x"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "c", "inner", "free", "map", "list", "other"]), inner, max_size=4)
    ),
    max_leaves=10,
)  # fmt: skip
objects = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), values, max_size=5)


@examples(150)
@given(objects)
def test_pruning_and_defaulting_come_to_rest(value: dict[str, Any]) -> None:
    prune(value, SCHEMA)
    apply_defaults(value, SCHEMA)
    settled = copy_of(value)
    assert prune(value, SCHEMA) == []
    apply_defaults(value, SCHEMA)
    assert value == settled
    assert "b" in value["inner"] if isinstance(value["inner"], dict) else True


@examples(100)
@given(objects)
def test_an_unchanged_value_has_no_faults_whatever_it_is(value: dict[str, Any]) -> None:
    assert validate(value, SCHEMA, "", copy_of(value)) == []


def test_what_is_kept_and_what_goes() -> None:
    value = {"a": 1, "other": 1, "free": {"x": 1, "c": {"y": 1}}, "map": {"k": {"d": 1, "z": 1}}, "list": [{"e": True, "f": 1}]}
    assert sorted(prune(value, SCHEMA)) == ["free.c.y", "list[0].f", "map.k.z", "other"]
    assert value == {"a": 1, "free": {"x": 1, "c": {}}, "map": {"k": {"d": 1}}, "list": [{"e": True}]}


def test_null_means_the_default_unless_null_is_allowed() -> None:
    value: dict[str, Any] = {"a": None, "maybe": None}
    apply_defaults(value, SCHEMA)
    assert value == {"a": 1, "inner": {"b": "x"}, "maybe": None}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "x", 'Invalid value: "string": f in body must be of type integer: "string"'),
        ({"type": "integer"}, True, 'Invalid value: "boolean": f in body must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'Invalid value: "null": f in body must be of type string: "null"'),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3, "Invalid value: 3: f in body should be less than 3"),
        ({"type": "number", "multipleOf": 0.5}, 0.7, "Invalid value: 0.7: f in body should be a multiple of 0.5"),
        ({"type": "string", "minLength": 2}, "x", 'Invalid value: "x": f in body should be at least 2 chars long'),
        ({"type": "string", "maxLength": 1}, "xy", "Too long: may not be more than 1 bytes"),
        ({"type": "string", "format": "ipv4"}, "1.2.3", 'Invalid value: "1.2.3": f in body must be of type ipv4: "1.2.3"'),
        ({"type": "array", "minItems": 1, "items": {}}, [], 'Invalid value: "array": f in body should have at least 1 items'),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "Too many: 1: must have at most 0 items"),
        ({"x-kubernetes-int-or-string": True}, 1.5, 'Invalid value: "number": f in body must be of type integer,string: "number"'),
        ({"type": "string", "enum": ["a"]}, "b", 'Unsupported value: "b": supported values: "a"'),
        ({"type": "string", "pattern": "^a$"}, "a\n", "Invalid value: \"a\n\": f in body should match '^a$'"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1.5, "Invalid value: 1.5: f in body must validate at least one schema (anyOf)"),
    ],
)  # fmt: skip
def test_every_fault_has_the_servers_wording(schema: dict[str, Any], value: Any, message: str) -> None:
    assert [cause.message for cause in validate(value, schema, "f")] == [message]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, 1),
        ({"type": "integer"}, 2.0),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "80%"),
        ({"type": "string", "format": "duration"}, "1h30m"),
        ({"type": "string", "format": "quantity"}, "1.5Gi"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05.678Z"),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}),
    ],
)
def test_what_is_right_passes(schema: dict[str, Any], value: Any) -> None:
    assert validate(value, schema, "f") == []


def test_the_built_in_schemas_are_those_of_the_installed_client() -> None:
    assert Path(schema_generator.__file__).with_name("builtin_schemas.json") == schema_generator.TARGET
    assert schema_generator.TARGET.read_text(encoding="utf-8") == schema_generator.render(), (
        "run python -m processkube.kubernetes_api.schemas.generator"
    )


def test_every_built_in_kind_has_its_schema_and_its_list_keys_exist() -> None:
    for kind in builtin_kinds():
        assert {"apiVersion", "kind", "metadata"} <= kind.schema["properties"].keys()
    for model, field in schema_generator.LIST_KEYS:
        assert field in definitions()[schema_generator.definition_name(model)]["properties"]


def test_typed_decoding_drops_nulls_and_reports_the_first_wrong_type() -> None:
    pods = next(kind for kind in builtin_kinds() if kind.plural == "pods")
    body = {
        "metadata": {"creationTimestamp": None, "labels": None},
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80.0}]}]},
    }
    decoded, unknown = decode_typed(body, pods.schema, path="", struct="Pod")
    assert decoded == {"metadata": {}, "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}
    assert unknown == []
    with pytest.raises(BadRequest, match=r"cannot unmarshal string into Go struct field Pod\.spec\.containers of type \[\]"):
        decode_typed({"spec": {"containers": "none"}}, pods.schema, path="", struct="Pod")


@pytest.mark.parametrize(
    ("value", "schema", "holds"),
    [
        (0, {"type": "number", "minimum": 0.01}, True),
        (0.0, {"type": "number", "minimum": 0.01}, False),
        (-1, {"type": "number", "minimum": -0.5}, False),
        (1, {"type": "number", "maximum": 1.5}, True),
        (2, {"type": "number", "maximum": 1.5}, False),
        (0, {"type": "number", "minimum": 0.5, "exclusiveMinimum": True}, False),
        ("b", {"type": "string", "enum": []}, True),
        ("b", {"type": "string", "enum": ["a"]}, False),
        ({}, {"type": "object", "x-kubernetes-int-or-string": True}, True),
        ({}, {"x-kubernetes-int-or-string": True}, False),
    ],
)
def test_odd_bounds_and_types_are_held_as_the_real_server_holds_them(value: Any, schema: dict[str, Any], holds: bool) -> None:
    assert (validate(value, schema, "spec") == []) is holds


LEASE = definitions()["io.k8s.api.v1.LeaseSpec"]
META = definitions()["io.k8s.api.v1.ObjectMeta"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-01-01T01:30:00Z", "2026-01-01T01:30:00Z"),
        ("2026-01-01T01:30:00.987654321Z", "2026-01-01T01:30:00Z"),
        ("2026-01-01T01:30:00+02:00", "2025-12-31T23:30:00Z"),
    ],
)
def test_a_time_is_kept_in_utc_with_whole_seconds(given: str, kept: str) -> None:
    assert decode_typed({"creationTimestamp": given}, META, path="metadata", struct="ObjectMeta")[0] == {"creationTimestamp": kept}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "soon",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
        "20260101T000000Z",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_a_time_that_is_no_moment_is_refused(given: str) -> None:
    with pytest.raises(BadRequest, match=r'metadata.creationTimestamp: parsing time ".*" as "2006-01-02T15:04:05Z07:00": '):
        decode_typed({"creationTimestamp": given}, META, path="metadata", struct="ObjectMeta")


def test_a_time_of_a_lease_has_six_digits_after_the_second() -> None:
    def kept(time: str) -> str:
        decoded = decode_typed({"renewTime": time}, LEASE, path="spec", struct="Lease")[0]
        return str(decoded["renewTime"])

    assert kept("2026-01-01T00:00:00.000000Z") == "2026-01-01T00:00:00.000000Z"
    assert kept("2026-01-01T00:00:00.120000+01:00") == "2025-12-31T23:00:00.120000Z"
    for time in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.1234567Z"):
        with pytest.raises(BadRequest, match=r"2006-01-02T15:04:05\.000000Z07:00"):
            kept(time)
