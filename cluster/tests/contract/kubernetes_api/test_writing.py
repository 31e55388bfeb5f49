"""Creating, reading and changing objects of every kind."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


def patch(api: httpx.Client, path: str, body: Any, headers: dict[str, str] = MERGE, **query: str) -> httpx.Response:
    return api.patch(path, content=json.dumps(body), headers=headers, params=query)


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"image": "x:1", **spec}}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_created_object_carries_what_the_server_adds(api: httpx.Client, widgets: str, namespace: str) -> None:
    answer = api.post(widgets, json=widget("a"))
    metadata = answer.json()["metadata"]
    assert answer.status_code == 201
    assert metadata["generation"] == 1
    assert metadata["namespace"] == namespace
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert api.get(f"{widgets}/a").json() == answer.json()


def test_a_name_is_used_once(api: httpx.Client, core: str) -> None:
    api.post(f"{core}/configmaps", json=config_map("a"))
    answer = api.post(f"{core}/configmaps", json=config_map("a"))
    assert answer.status_code == 409
    assert answer.json()["reason"] == "AlreadyExists"
    assert answer.json()["message"] == 'configmaps "a" already exists'


def test_generated_names_differ(api: httpx.Client, core: str) -> None:
    body = {"metadata": {"generateName": "g-"}}
    names = {api.post(f"{core}/configmaps", json=body).json()["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


def test_what_does_not_exist_is_not_found(api: httpx.Client, core: str) -> None:
    answer = api.get(f"{core}/pods/none")
    assert answer.status_code == 404
    assert answer.json()["details"] == {"name": "none", "kind": "pods"}
    assert api.get(f"{core}/nonsense").status_code == 404
    assert api.get("/apis/nonsense.dev/v1/things").status_code == 404


def test_a_missing_namespace_is_named(api: httpx.Client) -> None:
    answer = api.post("/api/v1/namespaces/nowhere/configmaps", json=config_map("a"))
    assert answer.status_code == 404
    assert answer.json()["message"] == 'namespaces "nowhere" not found'


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Bad_Name"}, "metadata.name"),
        ({"name": "a", "labels": {"x": "not ok"}}, "metadata.labels"),
        ({"name": "a", "finalizers": ["no/t/ok"]}, "metadata.finalizers"),
        ({"name": "a", "ownerReferences": [{"kind": "X", "name": "x", "uid": "u"}]}, "metadata.ownerReferences[0].apiVersion"),
        ({}, "metadata.name"),
    ],
)
def test_bad_metadata_is_refused_by_field(api: httpx.Client, core: str, metadata: dict[str, Any], field: str) -> None:
    answer = api.post(f"{core}/configmaps", json={"metadata": metadata})
    assert answer.status_code == 422
    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == [field]


def test_a_wrong_type_is_refused_while_decoding(api: httpx.Client, core: str) -> None:
    answer = api.post(f"{core}/configmaps", json={"metadata": {"name": "a"}, "data": {"n": 1}})
    assert answer.status_code == 400
    assert "cannot unmarshal number into Go struct field ConfigMap.data.n of type string" in answer.json()["message"]


def test_the_wrong_kind_in_the_body_is_refused(api: httpx.Client, core: str) -> None:
    answer = api.post(f"{core}/configmaps", json={"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    assert answer.status_code == 400


def test_a_broken_body_is_refused(api: httpx.Client, core: str) -> None:
    answer = api.post(f"{core}/configmaps", content=b"{not json", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["reason"] == "BadRequest"


def test_a_replacement_with_an_old_resource_version_conflicts(api: httpx.Client, core: str) -> None:
    old = api.post(f"{core}/configmaps", json=config_map("a", x="1")).json()
    assert api.put(f"{core}/configmaps/a", json={**old, "data": {"x": "2"}}).status_code == 200
    answer = api.put(f"{core}/configmaps/a", json={**old, "data": {"x": "3"}})
    assert answer.status_code == 409
    assert answer.json()["reason"] == "Conflict"
    assert "the object has been modified" in answer.json()["message"]


def test_a_custom_resource_is_replaced_only_with_a_resource_version(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json=widget("a"))
    answer = api.put(f"{widgets}/a", json=widget("a", replicas=2))
    assert answer.status_code == 422
    assert "must be specified for an update" in answer.json()["message"]


def test_a_write_that_changes_nothing_keeps_the_resource_version(api: httpx.Client, widgets: str) -> None:
    before = api.post(widgets, json=widget("a", replicas=3)).json()
    after = patch(api, f"{widgets}/a", {"spec": {"replicas": 3}}).json()
    assert after == before


def test_the_generation_counts_changes_of_the_desired_state_only(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json=widget("a"))
    assert patch(api, f"{widgets}/a", {"metadata": {"labels": {"x": "y"}}}).json()["metadata"]["generation"] == 1
    assert patch(api, f"{widgets}/a/status", {"status": {"x": 1}}).json()["metadata"]["generation"] == 1
    assert patch(api, f"{widgets}/a", {"spec": {"replicas": 2}}).json()["metadata"]["generation"] == 2


def test_status_and_spec_are_written_apart(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json={**widget("a"), "status": {"phase": "Forged"}})
    assert "status" not in api.get(f"{widgets}/a").json()
    both = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 4}, "status": {"phase": "A"}}
    answer = patch(api, f"{widgets}/a/status", both).json()
    assert (answer["status"], answer["spec"]["replicas"], answer["metadata"].get("labels")) == ({"phase": "A"}, 1, None)
    answer = patch(api, f"{widgets}/a", {"status": {"phase": "B"}}).json()
    assert answer["status"] == {"phase": "A"}


def test_a_failed_test_in_a_json_patch_is_unprocessable(api: httpx.Client, widgets: str) -> None:
    api.post(widgets, json=widget("a"))
    operations = [{"op": "test", "path": "/spec/replicas", "value": 9}, {"op": "replace", "path": "/spec/replicas", "value": 2}]
    assert patch(api, f"{widgets}/a", operations, JSON_PATCH).status_code == 422
    operations[0]["value"] = 1
    assert patch(api, f"{widgets}/a", operations, JSON_PATCH).json()["spec"]["replicas"] == 2


def test_the_servers_fields_cannot_be_forged(api: httpx.Client, widgets: str) -> None:
    before = api.post(widgets, json=widget("a")).json()["metadata"]
    forged = {"metadata": {"generation": 99, "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}}
    assert patch(api, f"{widgets}/a", forged).json()["metadata"] == before


def test_a_dry_run_answers_like_a_write_and_stores_nothing(api: httpx.Client, core: str) -> None:
    path = f"{core}/configmaps"
    assert api.post(path, json=config_map("a", x="1"), params={"dryRun": "All"}).status_code == 201
    assert api.get(f"{path}/a").status_code == 404
    api.post(path, json=config_map("b", x="1"))
    assert patch(api, f"{path}/b", {"data": {"x": "2"}}, dryRun="All").json()["data"] == {"x": "2"}
    assert api.delete(f"{path}/b", params={"dryRun": "All"}).status_code == 200
    assert api.get(f"{path}/b").json()["data"] == {"x": "1"}
    assert api.post(path, json=config_map("c"), params={"dryRun": "Some"}).status_code == 400


def test_unknown_fields_warn_or_are_refused_as_asked(api: httpx.Client, core: str) -> None:
    path, body = f"{core}/configmaps", {**config_map("a"), "colour": "red"}
    refused = api.post(path, json=body, params={"fieldValidation": "Strict"})
    assert refused.status_code == 400
    assert 'strict decoding error: unknown field "colour"' in refused.json()["message"]
    warned = api.post(path, json=body)
    assert warned.headers["Warning"] == '299 - "unknown field \\"colour\\""'
    assert "colour" not in warned.json()
    body["metadata"]["name"] = "b"
    assert "Warning" not in api.post(path, json=body, params={"fieldValidation": "Ignore"}).headers


def test_a_deployment_gets_its_defaults_and_is_merged_by_container_name(api: httpx.Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    containers = [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    spec = api.post(path, json=body).json()["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], [one["imagePullPolicy"] for one in pod["containers"]]) == ("Always", ["IfNotPresent", "Always"])
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}, {"name": "d", "$patch": "delete"}]}}}}
    answer = patch(api, f"{path}/web", change, STRATEGIC).json()
    assert [(one["name"], one["image"]) for one in answer["spec"]["template"]["spec"]["containers"]] == [("c", "i:2")]
    wrong = {"spec": {"selector": {"matchLabels": {"a": "c"}}}}
    fields = [cause["field"] for cause in patch(api, f"{path}/web", wrong).json()["details"]["causes"]]
    assert fields == ["spec.template.metadata.labels", "spec.selector"]


def test_a_quantity_may_be_written_as_a_number(api: httpx.Client, core: str) -> None:
    limits = {"limits": {"cpu": 2, "memory": "1Gi"}}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]}}
    answer = api.post(f"{core}/pods", json=body).json()
    assert answer["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert answer["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_services_get_addresses_of_their_own(api: httpx.Client, core: str) -> None:
    def make(name: str, **spec: Any) -> dict[str, Any]:
        answer = api.post(f"{core}/services", json={"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}})
        found: dict[str, Any] = answer.json()["spec"]
        return found

    first, second, headless = make("a"), make("b", type="NodePort"), make("c", clusterIP="None")
    assert first["clusterIP"] != second["clusterIP"]
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert second["ports"][0]["nodePort"] >= 30000
    assert headless["clusterIP"] == "None"
    assert patch(api, f"{core}/services/a", {"spec": {"clusterIP": "10.96.9.9"}}).status_code == 422


def test_a_service_is_completed_by_its_type(api: httpx.Client, core: str) -> None:
    def made(name: str, **spec: Any) -> dict[str, Any]:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}], **spec}}
        found: dict[str, Any] = api.post(f"{core}/services", json=body).json()["spec"]
        return found

    assert "internalTrafficPolicy" not in made("a", type="ExternalName", externalName="x.dev")
    assert made("b", type="LoadBalancer")["allocateLoadBalancerNodePorts"] is True
    sticky = made("c", sessionAffinity="ClientIP")
    assert (sticky["internalTrafficPolicy"], sticky["sessionAffinityConfig"]) == ("Cluster", {"clientIP": {"timeoutSeconds": 10800}})


def test_secrets_take_plain_text_and_keep_base64(api: httpx.Client, core: str) -> None:
    answer = api.post(f"{core}/secrets", json={"metadata": {"name": "a"}, "stringData": {"k": "v"}}).json()
    assert (answer["data"], answer["type"], "stringData" in answer) == ({"k": "dg=="}, "Opaque", False)


def test_both_event_groups_show_one_event(api: httpx.Client, core: str, namespace: str) -> None:
    target = {"kind": "Pod", "name": "p", "namespace": namespace}
    body = {"metadata": {"name": "e"}, "involvedObject": target, "reason": "R", "message": "m", "type": "Normal"}
    assert api.post(f"{core}/events", json=body).status_code == 201
    other = api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").json()
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert [(one["regarding"], one["note"]) for one in other["items"]] == [(target, "m")]
    chosen = api.get(f"{core}/events", params={"fieldSelector": "involvedObject.name=p,reason=R"}).json()["items"]
    assert [one["metadata"]["name"] for one in chosen] == ["e"]


def test_an_event_belongs_to_the_namespace_of_what_it_is_about(api: httpx.Client, core: str, namespace: str) -> None:
    target = {"kind": "Pod", "name": "p", "namespace": namespace}
    for wrong in ({**target, "namespace": "default"}, {"kind": "Node", "name": "n"}):
        refused = api.post(f"{core}/events", json={"metadata": {"name": "e"}, "involvedObject": wrong})
        assert refused.status_code == 422
        assert "involvedObject.namespace: Invalid value" in refused.json()["message"]
    of_node = {"metadata": {"generateName": "e-"}, "involvedObject": {"kind": "Node", "name": "n"}}
    assert api.post("/api/v1/namespaces/default/events", json=of_node).status_code == 201


def test_the_newer_group_of_events_is_stricter(api: httpx.Client, core: str, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    body = {"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": namespace}, "note": "n" * 1025}
    refused = api.post(path, json={**body, "eventTime": "2026-01-01T00:00:00.000000Z", "deprecatedCount": 1})
    fields = {cause["field"] for cause in refused.json()["details"]["causes"]}
    assert fields == {"reportingController", "reportingInstance", "action", "reason", "message", "type", "count"}
    good = {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.dev/b", "reportingInstance": "i", "action": "a"}
    made = api.post(path, json={**body, **good, "reason": "R", "type": "Normal", "note": "n"}).json()
    changed = api.put(f"{path}/e", json={**made, "note": "m", "series": {"count": 1, "lastObservedTime": good["eventTime"]}})
    assert [cause["field"] for cause in changed.json()["details"]["causes"]] == ["series.count", "message"]


def test_a_lease_is_taken_by_one_of_two(api: httpx.Client, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = api.post(path, json={"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 5}}).json()
    answers = [api.put(f"{path}/l", json={**lease, "spec": {"holderIdentity": who}}).status_code for who in ("a", "b")]
    assert answers == [200, 409]


def test_yaml_bodies_are_read(api: httpx.Client, core: str) -> None:
    text = "metadata: {name: a}\ndata: {k: v}\n"
    answer = api.post(f"{core}/configmaps", content=text, headers={"Content-Type": "application/yaml"})
    assert answer.json()["data"] == {"k": "v"}
    of_yaml = {"Content-Type": "application/yaml"}
    assert api.post(f"{core}/configmaps", content="metadata: {name: y}\n", headers=of_yaml).status_code == 400  # y is true


def test_unread_formats_are_refused(api: httpx.Client, core: str, widgets: str) -> None:
    api.post(widgets, json=widget("a"))
    assert patch(api, f"{widgets}/a", {"spec": {}}, STRATEGIC).status_code == 415
    assert api.post(f"{core}/configmaps", content=b"x", headers={"Content-Type": "application/cbor"}).status_code == 415
    assert api.get(f"{core}/configmaps", headers={"Accept": "text/html"}).status_code == 406
    assert api.request("PUT", f"{core}/configmaps", json={}).status_code == 405


def test_the_data_of_a_revision_stay_the_text_that_was_sent(api: httpx.Client, core: str) -> None:
    """As observed with Kubernetes 1.36: a merge patch leaves the data as they were, a strategic one writes them
    anew.
    """
    revisions = core.replace("/api/v1/", "/apis/apps/v1/") + "/controllerrevisions"
    for name, data, strategic in (("in-order", {"a": 1, "b": 2}, 200), ("mixed", {"b": 2, "a": 1}, 422)):
        body = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name}, "revision": 1, "data": data}
        assert api.post(revisions, json=body).status_code == 201
        assert patch(api, f"{revisions}/{name}", {"revision": 2}).status_code == 200
        answer = patch(api, f"{revisions}/{name}", {"revision": 3}, STRATEGIC)
        assert answer.status_code == strategic
        changed = patch(api, f"{revisions}/{name}", {"data": {"a": 2}})
        assert changed.status_code == 422
        assert "data: Invalid value" in changed.json()["message"]
        assert "field is immutable" in changed.json()["message"]


def test_another_objects_uid_is_an_invalid_patch_and_a_conflict_when_the_object_is_replaced(api: httpx.Client, core: str) -> None:
    """As observed with Kubernetes 1.36, for built-in kinds and custom resources alike."""
    made = api.post(f"{core}/configmaps", json=config_map("a")).json()
    patched = patch(api, f"{core}/configmaps/a", {"metadata": {"uid": "another"}})
    assert patched.status_code == 422
    assert patched.json()["message"] == 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "another": field is immutable'
    assert patch(api, f"{core}/configmaps/a", {"metadata": {"uid": "another", "resourceVersion": "1"}}).status_code == 409
    assert api.put(f"{core}/configmaps/a", json=made | {"metadata": made["metadata"] | {"uid": "another"}}).status_code == 409
