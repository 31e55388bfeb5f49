"""Definitions are judged as a real API server (1.36) judges them, before any object of theirs exists."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = "spec.validation.openAPIV3Schema.properties[spec]"
NUMBER = {"type": "integer"}
TEXT = {"type": "string"}


def fields(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def ruled(rule: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": rule, "message": "m", **more}]}


def list_map(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item, **more}


BOUNDS = fields(
    {"name": TEXT, "lo": {"type": "integer", "default": 0}, "hi": {"type": "integer", "default": 9}},
    required=["name"],
    **ruled("self.lo <= self.hi"),
)
PAIR = fields({"lo": NUMBER, "hi": NUMBER}, **ruled("self.lo <= self.hi"))


def definition(spec: dict[str, Any], **version: Any) -> dict[str, Any]:
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": fields({"spec": spec, "status": status})}
    return {
        "metadata": {"name": "things.probe.dev"},
        "spec": {
            "group": "probe.dev",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


def refusals(api: httpx.Client, crd: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the field and message of each cause; empty for an accepted definition. Nothing is stored."""
    answer = api.post(CRDS, json=crd, params={"dryRun": "All"})
    assert answer.status_code in {201, 422}, answer.text
    if answer.status_code == 201:
        return []
    assert answer.json()["reason"] == "Invalid"
    return [(one["field"], one["message"]) for one in answer.json()["details"]["causes"]]


def test_a_default_is_checked_before_the_defaults_nested_in_it_are_filled_in(api: httpx.Client) -> None:
    roles = {"type": "array", "maxItems": 4, "items": BOUNDS}
    assert refusals(api, definition(fields({"roles": {**roles, "default": [{"name": "both"}]}}))) == [
        (f"{SPEC}.properties[roles].default[0]", 'Invalid value: "object": no such key: lo evaluating rule: m')
    ]
    assert refusals(api, definition(fields({"roles": {**roles, "default": [{"name": "both", "lo": 0, "hi": 9}]}}))) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({**PAIR, "default": {"lo": 5, "hi": 1}}, "Invalid value: m"),
        ({"type": "string", "enum": ["a", "b"], "default": "c"}, 'Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "integer", "default": "1"}, 'Invalid value: "string":  in body must be of type integer: "string"'),
        (fields({"a": NUMBER}, default={"b": 1}), 'Invalid value: {"b":1}: must not have unknown fields'),
        ({"type": "integer", "minimum": 3, "default": 1}, "Invalid value: 1:  in body should be greater than or equal to 3"),
        ({"type": "integer", "default": 3, **ruled("self > 5")}, "Invalid value: 3: m"),
    ],
)
def test_a_default_must_satisfy_its_own_schema_and_rules(api: httpx.Client, schema: dict[str, Any], message: str) -> None:
    assert refusals(api, definition(fields({"m": schema}))) == [(f"{SPEC}.properties[m].default", message)]


@pytest.mark.parametrize(
    ("schema", "field", "message"),
    [
        ({"description": "no type"}, ".type", "Required value: must not be empty for specified object fields"),
        ({"type": "array"}, ".items", "Required value: must be specified"),
        (
            fields({"a": TEXT}, additionalProperties=TEXT),
            ".additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        ({"type": "string", "anyOf": [{"type": "string"}]}, ".anyOf[0].type", "Forbidden: must be empty to be structural"),
        ({"type": "string", "pattern": "("}, ".pattern", "must be a valid regular expression, but isn't"),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            ".uniqueItems",
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            {"type": "array", "items": TEXT, "x-kubernetes-list-type": "bag"},
            ".x-kubernetes-list-type",
            'Unsupported value: "bag": supported values: "atomic", "set", "map"',
        ),
        (
            list_map(fields({"name": TEXT})),
            ".items.properties[name].default",
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            list_map(fields({"other": TEXT})),
            ".x-kubernetes-list-map-keys",
            'Invalid value: "array": entries must all be names of item properties',
        ),
        (list_map(TEXT), ".items.type", 'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type is map'),
    ],
)
def test_a_schema_must_be_structural_and_its_lists_of_a_known_kind(
    api: httpx.Client, schema: dict[str, Any], field: str, message: str
) -> None:
    found = refusals(api, definition(fields({"m": schema})))
    assert any(at == f"{SPEC}.properties[m]{field}" and message in text for at, text in found), found


def test_a_junctor_at_the_root_speaks_only_of_fields_there_are(api: httpx.Client) -> None:
    crd = definition(fields({}))
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["oneOf"] = [{"properties": {"other": {"minLength": 1}}}]
    root = "spec.validation.openAPIV3Schema"
    because = f"Required value: because it is defined in {root}.oneOf[0].properties[other]"
    assert refusals(api, crd) == [(f"{root}.properties[other]", because)]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.b > 0", "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 0\n | ....^"),
        ("self.a + 1", "cel expression must evaluate to a bool"),
        ("self.a == 'x'", "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'"),
        ("nosuch(self.a)", "ERROR: <input>:1:7: undeclared reference to 'nosuch' (in container '')"),
        ("other.a > 0", "ERROR: <input>:1:1: undeclared reference to 'other' (in container '')"),
        ("self.a >", "Syntax error"),
    ],
)
def test_a_rule_must_compile_to_a_boolean_over_the_fields_there_are(api: httpx.Client, rule: str, message: str) -> None:
    ((field, text),) = refusals(api, definition(fields({"a": NUMBER}, **ruled(rule))))
    assert field == f"{SPEC}.x-kubernetes-validations[0].rule"
    assert message in text


def test_a_rule_over_unbounded_lists_is_too_dear(api: httpx.Client) -> None:
    lists = {"type": "array", "items": {"type": "array", "items": TEXT}}
    rule = "self.a.all(x, x.all(y, self.a.all(z, z.all(w, w != y))))"
    at = f"{SPEC}.x-kubernetes-validations[0].rule"
    remedy = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    assert refusals(api, definition(fields({"a": lists}, **ruled(rule)))) == [
        (at, f"Forbidden: estimated rule cost exceeds budget by factor of more than 100x {remedy}"),
        (at, "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"),
        (
            "spec.validation.openAPIV3Schema",
            "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of "
            f"more than 100x {remedy}",
        ),
    ]
    short = {"type": "array", "maxItems": 4, "items": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 9}}}
    assert refusals(api, definition(fields({"a": short}, **ruled(rule)))) == []


def test_many_affordable_rules_may_be_too_dear_together(api: httpx.Client) -> None:
    one = {"type": "array", "items": TEXT, **ruled("self.all(x, x.size() > 1 && x.size() > 2)")}
    few = fields({f"a{number}": one for number in range(5)})
    many = fields({f"a{number}": one for number in range(20)})
    assert refusals(api, definition(few)) == []
    found = refusals(api, definition(many))
    assert [field for field, _ in found if "properties" not in field] == ["spec.validation.openAPIV3Schema"]
    assert not any("estimated rule cost exceeds" in text for _, text in found), "each is within its own budget"


def test_a_rule_compares_with_the_past_only_where_old_and_new_belong_together(api: httpx.Client) -> None:
    frozen = {"type": "string", "maxLength": 3, **ruled("self == oldSelf")}
    ((field, text),) = refusals(api, definition(fields({"a": {"type": "array", "maxItems": 3, "items": frozen}})))
    assert field == f"{SPEC}.properties[a].items.x-kubernetes-validations[0].rule"
    assert text.endswith(f"oldSelf cannot be used on the uncorrelatable portion of the schema within {SPEC}.properties[a]")
    kept = list_map(fields({"name": TEXT, "a": frozen}, required=["name"]), maxItems=3)
    assert refusals(api, definition(fields({"a": kept}))) == []


def test_a_definition_has_one_name_and_one_storage_version(api: httpx.Client) -> None:
    crd = definition(fields({}))
    misnamed = {**crd, "metadata": {"name": "others.probe.dev"}}
    assert refusals(api, misnamed) == [("metadata.name", 'Invalid value: "others.probe.dev": must be spec.names.plural+"."+spec.group')]
    twice = copy.deepcopy(crd)
    twice["spec"]["versions"].append({**twice["spec"]["versions"][0], "name": "v2"})
    assert refusals(api, twice) == [("spec.versions", 'Invalid value: "array": must have exactly one version marked as storage version')]


def test_what_versions_say_alike_is_reported_once_and_otherwise_at_its_version(api: httpx.Client) -> None:
    crd = definition(fields({"m": {"description": "no type"}}))
    alike = copy.deepcopy(crd)
    alike["spec"]["versions"].append({**alike["spec"]["versions"][0], "name": "v2", "storage": False})
    assert [field for field, _ in refusals(api, alike)] == [f"{SPEC}.properties[m].type"]
    different = copy.deepcopy(alike)
    del different["spec"]["versions"][1]["schema"]
    different["spec"]["versions"][1]["schema"] = {"openAPIV3Schema": fields({"spec": fields({})})}
    assert [field for field, _ in refusals(api, different)] == [
        "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[m].type"
    ]


def test_null_counts_as_not_written(api: httpx.Client) -> None:
    schema = {"type": "string", "anyOf": None, "enum": ["a"], "properties": None, "default": None}
    assert refusals(api, definition(fields({"m": schema}))) == []


def test_an_embedded_resource_names_its_kind_also_in_a_default(api: httpx.Client) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    at = f"{SPEC}.properties[m].default"
    missing = {(f"{at}.apiVersion", "Required value"), (f"{at}.kind", "Required value")}
    assert set(refusals(api, definition(fields({"m": {**embedded, "default": {"a": 1}}})))) == missing
    assert refusals(api, definition(fields({"m": {**embedded, "default": {"apiVersion": "v1", "kind": "Pod"}}}))) == []


def test_metadata_may_restrict_an_objects_name_and_nothing_else(api: httpx.Client) -> None:
    def told(metadata: dict[str, Any]) -> list[str]:
        crd = definition(fields({}))
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = metadata
        return [text for _, text in refusals(api, crd)]

    assert told(fields({"name": {"type": "string", "maxLength": 5}})) == []
    forbidden = ["Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"]
    assert told(fields({"labels": fields({})})) == forbidden
    assert told({"type": "object", "minProperties": 0}) == forbidden


def test_a_pattern_is_what_go_takes_for_a_regular_expression(api: httpx.Client) -> None:
    assert refusals(api, definition(fields({"m": {"type": "string", "pattern": r"^\p{L}+$"}}))) == []
    ((field, text),) = refusals(api, definition(fields({"m": {"type": "string", "pattern": "(?=a)"}})))
    assert field == f"{SPEC}.properties[m].pattern"
    assert "must be a valid regular expression, but isn't: error parsing regexp" in text


def test_scale_paths_and_columns_are_checked(api: httpx.Client) -> None:
    scale = {"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ".status.y"}}
    columns = [{"name": "A", "type": "text", "jsonPath": "spec.x"}]
    assert refusals(api, definition(fields({}), subresources=scale, additionalPrinterColumns=columns)) == [
        ("spec.subresources.scale.specReplicasPath", 'Invalid value: ".status.x": should be a json path under .spec'),
        ("spec.additionalPrinterColumns[0].type", 'Invalid value: "text": must be one of boolean,date,integer,number,string'),
        ("spec.additionalPrinterColumns[0].JSONPath", 'Invalid value: "spec.x": must be a simple json path starting with .'),
    ]


def test_a_whole_number_is_held_against_a_bound_without_its_decimals(api: httpx.Client, namespace: str) -> None:
    crd = definition(fields({"share": {"type": "number", "minimum": 0.01, "maximum": 1.5}, "mode": TEXT}))
    assert api.post(CRDS, json=crd).status_code == 201
    things = f"/apis/probe.dev/v1/namespaces/{namespace}/things"

    def told(**spec: Any) -> tuple[int, str]:
        answer = api.post(things, json={"metadata": {"name": "a"}, "spec": spec}, params={"dryRun": "All"})
        return answer.status_code, answer.json().get("message", "")

    assert told(share=0)[0] == 201, "a real server compares 0 with 0"
    assert told(share=1)[0] == 201
    assert told(share=2)[0] == 422
    assert told(share=0.001)[0] == 422
    assert told(share=0.0)[0] == 422
    assert "spec.mode in body must be of type string" in told(mode=False)[1], "what Off is without quotes"
