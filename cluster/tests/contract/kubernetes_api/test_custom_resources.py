"""Custom resources: served on creation, defaulted, pruned, validated, scaled."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import httpx
import pytest

from processkube.testing.waiting import PATIENCE_SECONDS

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}


def patch(api: httpx.Client, path: str, body: Any) -> httpx.Response:
    return api.patch(path, content=json.dumps(body), headers=MERGE)


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"image": "x:1", **spec}}


def causes(answer: httpx.Response) -> list[tuple[str, str, str]]:
    assert answer.status_code == 422, answer.text
    return [(cause["field"], cause["reason"], cause["message"]) for cause in answer.json()["details"]["causes"]]


def definition(plural: str, schema: dict[str, Any], **extra: Any) -> dict[str, Any]:
    kind = plural.capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", **schema}}, **extra}
            ],
        },
    }


def test_a_definition_is_established_and_its_resource_discovered(api: httpx.Client) -> None:
    crd = api.get(f"{CRDS}/widgets.acme.dev").json()
    conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["storedVersions"] == ["v1"]
    names = [one["name"] for one in api.get("/apis/acme.dev/v1").json()["resources"]]
    assert names == ["widgets", "widgets/status", "widgets/scale"]


@pytest.mark.parametrize(("media", "number"), [("json", "9223372036854775808"), ("yaml", "1" + "0" * 30)])
def test_an_integer_beyond_64_bits_becomes_a_float(api: httpx.Client, widgets: str, media: str, number: str) -> None:
    body = json.dumps(widget("big", free={"any": 0})).replace('"any": 0', f'"any": {number}')
    answer = api.post(widgets, content=body, headers={"Content-Type": f"application/{media}"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["free"]["any"] == float(number)


def test_a_number_beyond_every_float_is_a_bad_request_in_json_and_text_in_yaml(api: httpx.Client, widgets: str) -> None:
    body = json.dumps(widget("huge", free={"any": 0})).replace('"any": 0', f'"any": {"1" * 400}')
    answer = api.post(widgets, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    answer = api.post(widgets, content=body, headers={"Content-Type": "application/yaml"})
    assert answer.json()["spec"]["free"]["any"] == "1" * 400


def test_defaults_fill_in_and_unknown_fields_go(api: httpx.Client, widgets: str) -> None:
    body = widget("a", parts=[{"name": "p", "other": 1}], free={"any": {"thing": 1}}, nonsense=1, mode=None)
    spec = api.post(widgets, json=body).json()["spec"]
    assert spec == {
        "image": "x:1",
        "replicas": 1,
        "maxReplicas": 4,
        "mode": "fast",
        "parts": [{"name": "p", "size": 1}],
        "free": {"any": {"thing": 1}},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"mode": "bad"}, ("spec.mode", "FieldValueNotSupported", 'Unsupported value: "bad": supported values: "fast", "slow"')),
        ({"replicas": -1}, ("spec.replicas", "FieldValueInvalid", "Invalid value: -1: spec.replicas in body should be greater than or equal to 0")),
        ({"maxReplicas": 101}, ("spec.maxReplicas", "FieldValueInvalid", "Invalid value: 101: spec.maxReplicas in body should be less than or equal to 100")),
        ({"image": "NO"}, ("spec.image", "FieldValueInvalid", "Invalid value: \"NO\": spec.image in body should match '^[a-z0-9:./-]+$'")),
        ({"every": "soon"}, ("spec.every", "FieldValueInvalid", 'Invalid value: "soon": spec.every in body must be of type duration: "soon"')),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, ("spec.parts[1]", "FieldValueDuplicate", 'Duplicate value: "{\\"name\\":\\"a\\"}"')),
        ({"tags": ["a", "a"]}, ("spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"')),
        ({"replicas": 5}, ("spec", "FieldValueInvalid", 'Invalid value: replicas must not exceed maxReplicas')),
    ],
)  # fmt: skip
def test_each_rule_is_reported_in_the_servers_words(
    api: httpx.Client, widgets: str, spec: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert causes(api.post(widgets, json=widget("a", **spec))) == [expected]


def test_rules_wait_until_the_shape_is_right(api: httpx.Client, widgets: str) -> None:
    found = causes(api.post(widgets, json=widget("a", replicas="five")))
    assert [(field, reason) for field, reason, _ in found] == [("spec.replicas", "FieldValueTypeInvalid"), ("<nil>", "FieldValueInvalid")]
    assert "some validation rules were not checked" in found[1][2]


def test_all_faults_are_reported_at_once(api: httpx.Client, widgets: str) -> None:
    answer = api.post(widgets, json={**widget("a", mode="bad", replicas=-1)})
    assert {field for field, _, _ in causes(answer)} == {"spec.mode", "spec.replicas"}
    assert answer.json()["message"].startswith('Widget.acme.dev "a" is invalid: [spec.')


def test_transition_rules_see_the_old_value_also_of_list_items(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json=widget("a", parts=[{"name": "p", "size": 5}, {"name": "q", "size": 1}]))
    assert causes(patch(api, f"{widgets}/a", {"spec": {"image": "y"}}))[0][2] == "Invalid value: image is immutable"
    shrunk = [{"name": "q", "size": 1}, {"name": "p", "size": 4}]
    assert causes(patch(api, f"{widgets}/a", {"spec": {"parts": shrunk}})) == [
        ("spec.parts[1].size", "FieldValueInvalid", "Invalid value: 4: size must not shrink")
    ]
    assert patch(api, f"{widgets}/a", {"spec": {"parts": [{"name": "r", "size": 0}]}}).status_code == 200


def test_scaling_answers_to_schema_and_rules(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json=widget("a"))
    scaled = patch(api, f"{widgets}/a/scale", {"spec": {"replicas": 3}})
    assert (scaled.json()["kind"], scaled.json()["spec"]) == ("Scale", {"replicas": 3})
    assert causes(patch(api, f"{widgets}/a/scale", {"spec": {"replicas": 7}}))[0][2].endswith("replicas must not exceed maxReplicas")
    assert causes(patch(api, f"{widgets}/a/scale", {"spec": {"replicas": -1}}))[0][0] == "spec.replicas"
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}
    assert api.put(f"{widgets}/a/scale", json=stale).status_code == 409
    assert api.get(f"{widgets}/a").json()["spec"]["replicas"] == 3


def test_an_object_without_a_number_of_replicas_has_no_scale_to_read(api: httpx.Client) -> None:
    free = {"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    assert api.post(CRDS, json=definition("scalables", free, subresources={"scale": scale})).status_code == 201
    path = "/apis/test.dev/v1/scalables"
    api.post(path, json={"metadata": {"name": "a"}, "spec": {}})
    answer = api.get(f"{path}/a/scale")
    assert answer.status_code == 500
    assert answer.json()["message"] == 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    assert patch(api, f"{path}/a/scale", {"spec": {"replicas": 2}}).status_code == 200
    assert api.get(f"{path}/a/scale").json()["spec"] == {"replicas": 2}


def test_what_was_valid_may_stay_when_the_schema_grows_stricter(api: httpx.Client) -> None:
    text: dict[str, Any] = {"properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}}
    crd = definition("ratchets", text)
    assert api.post(CRDS, json=crd).status_code == 201
    api.post("/apis/test.dev/v1/ratchets", json={"metadata": {"name": "x"}, "spec": {"a": "long text", "b": "1"}})
    stricter = copy.deepcopy(text)
    stricter["properties"]["spec"]["properties"]["a"] = {"type": "string", "maxLength": 3}
    version = {**crd["spec"]["versions"][0], "schema": {"openAPIV3Schema": {"type": "object", **stricter}}}
    assert patch(api, f"{CRDS}/ratchets.test.dev", {"spec": {"versions": [version]}}).status_code == 200
    assert patch(api, "/apis/test.dev/v1/ratchets/x", {"spec": {"b": "2"}}).status_code == 200
    assert causes(patch(api, "/apis/test.dev/v1/ratchets/x", {"spec": {"a": "other text"}}))[0][1] == "FieldValueTooLong"


@pytest.mark.parametrize(
    ("schema", "fragment"),
    [
        ({"x-kubernetes-validations": [{"rule": "self.a >"}]}, "Syntax error"),
        ({"x-kubernetes-validations": [{"rule": "nosuch(self)"}]}, "undeclared reference to 'nosuch'"),
        ({"x-kubernetes-validations": [{"rule": "self == oldSelf", "optionalOldSelf": True}]}, "is not supported by this server"),
        ({"properties": {"a": {}}}, "must not be empty for specified object fields"),
        ({"properties": {"a": {"type": "array"}}}, "items: Required value"),
    ],
)
def test_a_definition_that_cannot_be_served_is_refused(api: httpx.Client, schema: dict[str, Any], fragment: str) -> None:
    answer = api.post(CRDS, json=definition("broken", schema))
    assert answer.status_code == 422
    assert fragment in answer.json()["message"]
    assert api.get("/apis/test.dev/v1/broken").status_code == 404


def test_a_misnamed_definition_is_refused(api: httpx.Client) -> None:
    crd = {**definition("things", {}), "metadata": {"name": "other.test.dev"}}
    assert causes(api.post(CRDS, json=crd))[0][0] == "metadata.name"


def test_versions_are_spellings_of_one_object(api: httpx.Client) -> None:
    crd = definition("twins", {"x-kubernetes-preserve-unknown-fields": True})
    old = {**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    crd["spec"]["versions"].append(old)
    assert api.post(CRDS, json=crd).status_code == 201
    assert api.post("/apis/test.dev/v1beta1/twins", json={"metadata": {"name": "x"}, "spec": {"a": 1}}).status_code == 201
    read = api.get("/apis/test.dev/v1/twins/x").json()
    assert (read["apiVersion"], read["spec"]) == ("test.dev/v1", {"a": 1})
    assert api.get("/apis/test.dev/v1beta1/twins").json()["items"][0]["apiVersion"] == "test.dev/v1beta1"
    group = api.get("/apis/test.dev").json()
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]


def test_a_deleted_definition_takes_its_objects_with_it(api: httpx.Client) -> None:
    crd = definition("mayflies", {"x-kubernetes-preserve-unknown-fields": True})
    api.post(CRDS, json=crd)
    api.post("/apis/test.dev/v1/mayflies", json={"metadata": {"name": "x"}})
    assert api.delete(f"{CRDS}/mayflies.test.dev").status_code == 200
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and api.get(f"{CRDS}/mayflies.test.dev").status_code != 404:
        time.sleep(0.01)
    assert api.get("/apis/test.dev/v1/mayflies").status_code == 404
    assert api.post(CRDS, json=crd).status_code == 201
    assert api.get("/apis/test.dev/v1/mayflies").json()["items"] == []


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("self.when < timestamp('2027-01-01T00:00:00Z')", {"when": "2026-05-01T00:00:00Z"}, True),
        ("self.every <= duration('1m')", {"every": "2m"}, False),
        ("self.names.exists_one(n, n.startsWith('a'))", {"names": ["ab", "b"]}, True),
        ("self.names.join('-').lowerAscii() == 'x-y'", {"names": ["X", "Y"]}, True),
        ("quantity(self.size).isLessThan(quantity('1Gi'))", {"size": "500Mi"}, True),
        ("!has(self.size) || self.size.matches('^[0-9]+$')", {}, True),
        ("self.ratio > 0.5", {"ratio": 1}, True),
        ("self.__namespace__ == 'a' && self.with__dash__dash == 1", {"namespace": "a", "with-dash": 1}, True),
        ("self.size == 'x'", {}, False),
    ],
)
def test_rules_know_the_types_of_the_schema(api: httpx.Client, rule: str, value: dict[str, Any], holds: bool) -> None:
    properties = {
        "when": {"type": "string", "format": "date-time"},
        "every": {"type": "string", "format": "duration"},
        "names": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 20}},
        "size": {"type": "string"},
        "ratio": {"type": "number"},
        "namespace": {"type": "string"},
        "with-dash": {"type": "integer"},
    }
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule, "message": "no"}]}
    crd = definition("rules", {"properties": {"spec": spec}})
    if api.get(f"{CRDS}/rules.test.dev").status_code == 404:
        assert api.post(CRDS, json=crd).status_code == 201
    else:
        assert patch(api, f"{CRDS}/rules.test.dev", {"spec": crd["spec"]}).status_code == 200
    answer = api.post("/apis/test.dev/v1/rules", json={"metadata": {"name": "x"}, "spec": value}, params={"dryRun": "All"})
    assert (answer.status_code == 201) is holds, answer.text
