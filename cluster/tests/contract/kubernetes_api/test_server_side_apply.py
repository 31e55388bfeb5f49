"""Server-side apply: ownership, conflicts, force, and fields that an apply removes."""

from __future__ import annotations

from typing import Any

import httpx
import yaml

APPLY = {"Content-Type": "application/apply-patch+yaml"}


def apply(api: httpx.Client, path: str, manager: str, spec: dict[str, Any], *, force: bool = False) -> httpx.Response:
    name = path.rsplit("/", 1)[1]
    body = {"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
    query = {"fieldManager": manager, **({"force": "true"} if force else {})}
    return api.patch(path, content=yaml.safe_dump(body), headers=APPLY, params=query)


def owners(item: dict[str, Any]) -> dict[str, list[str]]:
    """Return the members of the spec that each manager owns."""
    entries = item["metadata"]["managedFields"]
    return {entry["manager"]: sorted(entry["fieldsV1"].get("f:spec", {})) for entry in entries}


def test_an_apply_creates_and_owns(api: httpx.Client, widgets: str) -> None:
    answer = apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    assert answer.status_code == 201
    assert owners(answer.json()) == {"gitops": ["f:image", "f:replicas"]}
    assert answer.json()["spec"]["mode"] == "fast"


def test_the_same_apply_again_changes_nothing(api: httpx.Client, widgets: str) -> None:
    first = apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    assert apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2}).json() == first.json()


def test_a_conflict_names_the_owner_and_the_field(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    answer = apply(api, f"{widgets}/a", "other", {"image": "x", "replicas": 3})
    assert answer.status_code == 409
    causes = answer.json()["details"]["causes"]
    assert causes == [{"reason": "FieldManagerConflict", "message": 'conflict with "gitops"', "field": ".spec.replicas"}]
    assert answer.json()["message"] == 'Apply failed with 1 conflict: conflict with "gitops": .spec.replicas'


def test_several_conflicts_are_listed_by_their_owners(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2, "mode": "fast"})
    answer = apply(api, f"{widgets}/a", "other", {"image": "x", "replicas": 3, "mode": "slow"})
    assert answer.json()["message"] == 'Apply failed with 2 conflicts: conflicts with "gitops":\n- .spec.mode\n- .spec.replicas'


def test_force_takes_the_field_over(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    answer = apply(api, f"{widgets}/a", "other", {"replicas": 3, "image": "x"}, force=True).json()
    assert answer["spec"]["replicas"] == 3
    assert owners(answer) == {"gitops": ["f:image"], "other": ["f:image", "f:replicas"]}


def test_agreeing_managers_share_a_field(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "one", {"image": "x", "replicas": 2})
    assert apply(api, f"{widgets}/a", "two", {"image": "x", "replicas": 2}).status_code == 200
    after = apply(api, f"{widgets}/a", "one", {"image": "x"}).json()
    assert after["spec"]["replicas"] == 2
    after = apply(api, f"{widgets}/a", "two", {"image": "x"}).json()
    assert after["spec"]["replicas"] == 1  # the default, once nobody wants 2


def test_list_items_are_owned_one_by_one(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "one", {"image": "x", "parts": [{"name": "p", "size": 2}]})
    both = apply(api, f"{widgets}/a", "two", {"image": "x", "parts": [{"name": "q", "size": 3}]}).json()
    assert both["spec"]["parts"] == [{"name": "p", "size": 2}, {"name": "q", "size": 3}]
    left = apply(api, f"{widgets}/a", "one", {"image": "x"}).json()
    assert left["spec"]["parts"] == [{"name": "q", "size": 3}]


def test_a_plain_write_takes_ownership_of_what_it_changes(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = api.patch(f"{widgets}/a", content=b'{"spec":{"replicas":4}}', headers=headers, params={"fieldManager": "ui"})
    assert owners(answer.json()) == {"gitops": ["f:image"], "ui": ["f:replicas"]}
    refused = apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    assert refused.json()["details"]["causes"][0]["message"] == 'conflict with "ui" using acme.dev/v1'


def test_the_status_is_applied_apart(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x"})
    body = {"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"phase": "A"}}
    answer = api.patch(f"{widgets}/a/status", content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": "op"})
    assert answer.json()["status"] == {"phase": "A"}
    entry = next(one for one in answer.json()["metadata"]["managedFields"] if one["manager"] == "op")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:phase": {}}})


def scale(api: httpx.Client, path: str, manager: str, replicas: int) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    answer = api.patch(f"{path}/scale", json={"spec": {"replicas": replicas}}, headers=headers, params={"fieldManager": manager})
    assert answer.status_code == 200, answer.text


def test_a_scale_has_an_entry_of_its_own_without_a_time_and_takes_the_replicas_from_who_had_them(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    scale(api, f"{widgets}/a", "kubectl", 3)
    fields = api.get(f"{widgets}/a").json()["metadata"]["managedFields"]
    assert owners({"metadata": {"managedFields": fields}}) == {"gitops": ["f:image"], "kubectl": ["f:replicas"]}
    assert fields[1] == {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "acme.dev/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }


def test_the_last_of_two_who_scale_owns_the_replicas(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    scale(api, f"{widgets}/a", "kubectl", 3)
    scale(api, f"{widgets}/a", "autoscaler", 1)
    assert owners(api.get(f"{widgets}/a").json()) == {"gitops": ["f:image"], "autoscaler": ["f:replicas"]}


def test_an_apply_over_a_scale_is_a_conflict_without_a_time_to_tell(api: httpx.Client, widgets: str) -> None:
    apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    scale(api, f"{widgets}/a", "kubectl", 3)
    refused = apply(api, f"{widgets}/a", "gitops", {"image": "x", "replicas": 2})
    assert refused.json()["details"]["causes"][0]["message"] == 'conflict with "kubectl" with subresource "scale" using acme.dev/v1'


def test_an_apply_names_no_field_that_its_kind_does_not_have(api: httpx.Client, widgets: str, namespace: str) -> None:
    answer = apply(api, f"{widgets}/a", "gitops", {"image": "x", "replica": 2, "free": {"any": 1}, "parts": [{"name": "p", "colour": 1}]})
    assert answer.status_code == 500
    assert answer.json()["message"] == (
        f"failed to create typed patch object ({namespace}/a; acme.dev/v1, Kind=Widget): errors:\n"
        '  .spec.parts[name="p"].colour: field not declared in schema\n'
        "  .spec.replica: field not declared in schema"
    )
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "label": {}}, "data": {"any": "1"}}
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    answer = api.patch(path, content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": "gitops", "fieldValidation": "Ignore"})
    why = f"failed to create typed patch object ({namespace}/a; /v1, Kind=ConfigMap): .metadata.label: field not declared in schema"
    assert (answer.status_code, answer.json()["message"]) == (500, why)
    assert api.get(path).status_code == 404


def test_the_items_of_an_applied_list_are_told_apart_by_their_keys(api: httpx.Client, widgets: str, core: str) -> None:
    def refusal(**spec: Any) -> str:
        answer = apply(api, f"{widgets}/a", "gitops", {"image": "x", **spec})
        assert answer.status_code == 500
        return str(answer.json()["message"]).partition("Kind=Widget): ")[2]

    assert refusal(parts=[{"name": "p"}, {"name": "p"}]) == '.spec.parts: duplicate entries for key [name="p"]'
    assert refusal(tags=["t", "t"]) == '.spec.tags: duplicate entries for key [="t"]'
    omits = (
        '.spec.parts: element 0: associative list with keys has an element that omits key field "name" (and doesn\'t have default value)'
    )
    assert refusal(parts=[{"size": 1}]) == omits
    ports = [{"port": 53}, {"port": 53, "protocol": "TCP"}]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": ports}}
    answer = api.patch(f"{core}/services/a", content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": "gitops"})
    assert answer.json()["message"].endswith('.spec.ports: duplicate entries for key [port=53,protocol="TCP"]')


def test_an_apply_does_not_create_again_what_it_knew_by_its_uid(api: httpx.Client, core: str) -> None:
    def applied(**metadata: str) -> httpx.Response:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
        return api.patch(f"{core}/configmaps/a", content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": "gitops"})

    gone = applied(uid="00000000-0000-4000-8000-000000000000")
    assert gone.status_code == 409
    assert gone.json()["message"] == (
        'Operation cannot be fulfilled on configmaps "a": uid mismatch: the provided object specified uid '
        "00000000-0000-4000-8000-000000000000, and no existing object was found"
    )
    assert applied(resourceVersion="1").status_code == 201


def test_an_apply_needs_a_manager(api: httpx.Client, widgets: str) -> None:
    answer = api.patch(f"{widgets}/a", content=b"{}", headers=APPLY)
    assert answer.status_code == 400
    assert "fieldManager" in answer.json()["message"]


def test_ports_of_one_number_and_two_protocols_stay_apart(api: httpx.Client, core: str) -> None:
    ports = [{"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns"}, "spec": {"ports": ports}}
    for _ in range(2):
        answer = api.patch(f"{core}/services/dns", content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": "m"})
        assert [(one["name"], one["protocol"]) for one in answer.json()["spec"]["ports"]] == [("tcp", "TCP"), ("udp", "UDP")]


def test_what_counts_as_one_value_is_owned_and_replaced_as_one(api: httpx.Client, core: str) -> None:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}

    def applied(manager: str, selector: dict[str, str]) -> httpx.Response:
        text = yaml.safe_dump({**body, "spec": {**body["spec"], "selector": selector}})
        return api.patch(f"{core}/services/s", content=text, headers=APPLY, params={"fieldManager": manager})

    assert applied("one", {"app": "a"}).status_code == 201
    refused = applied("two", {"app": "a", "tier": "b"})
    assert (refused.status_code, refused.json()["details"]["causes"][0]["field"]) == (409, ".spec.selector")
    assert applied("one", {"tier": "b"}).json()["spec"]["selector"] == {"tier": "b"}
    owned = api.get(f"{core}/services/s").json()["metadata"]["managedFields"][0]["fieldsV1"]
    assert owned["f:spec"]["f:selector"] == {}


def test_a_reference_to_an_owner_is_taken_over_as_a_whole(api: httpx.Client, core: str) -> None:
    uid = api.post(f"{core}/configmaps", json={"metadata": {"name": "owner"}}).json()["metadata"]["uid"]

    def applied(manager: str, *, blocks: bool) -> httpx.Response:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": blocks}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": [reference]}}
        return api.patch(f"{core}/configmaps/c", content=yaml.safe_dump(body), headers=APPLY, params={"fieldManager": manager})

    assert applied("one", blocks=True).status_code == 201
    assert applied("two", blocks=True).status_code == 200
    refused = applied("two", blocks=False)
    assert (refused.status_code, refused.json()["details"]["causes"][0]["field"]) == (409, f'.metadata.ownerReferences[uid="{uid}"]')


def test_writes_without_a_manager_are_the_accounts_own(api: httpx.Client, core: str) -> None:
    body = {"metadata": {"name": "a"}, "data": {"x": "y"}}
    answer = api.post(f"{core}/configmaps", json=body)
    assert answer.json()["metadata"]["managedFields"][0]["manager"] == "system:admin"
    named = {"User-Agent": "kubectl/v1.32.4 (linux/amd64)"}
    body["metadata"] = {"name": "b"}
    answer = api.post(f"{core}/configmaps", json=body, headers=named)
    assert answer.json()["metadata"]["managedFields"][0]["manager"] == "kubectl"
