"""Deletion: finalizers, preconditions, owners, namespaces."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from processkube.testing.waiting import PATIENCE_SECONDS

MERGE = {"Content-Type": "application/merge-patch+json"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def make(api: httpx.Client, core: str, name: str, *owners: dict[str, Any], finalizers: tuple[str, ...] = ()) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for one in owners
    ]
    metadata = {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}
    answer = api.post(f"{core}/configmaps", json={"metadata": metadata})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def delete(api: httpx.Client, path: str, **options: Any) -> httpx.Response:
    return api.request("DELETE", path, json={"kind": "DeleteOptions", "apiVersion": "v1", **options})


def gone(api: httpx.Client, path: str) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if api.get(path).status_code == 404:
            return True
    return False


def test_a_deleted_object_is_reported_and_gone(api: httpx.Client, core: str) -> None:
    made = make(api, core, "a")
    answer = delete(api, f"{core}/configmaps/a").json()
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert delete(api, f"{core}/configmaps/a").status_code == 404


def test_finalizers_hold_an_object_until_the_last_is_gone(api: httpx.Client, core: str) -> None:
    make(api, core, "a", finalizers=("x.dev/one",))
    marked = delete(api, f"{core}/configmaps/a").json()
    assert marked["metadata"]["deletionTimestamp"]
    again = delete(api, f"{core}/configmaps/a").json()
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    body = json.dumps({"metadata": {"finalizers": ["x.dev/one", "x.dev/two"]}})
    refused = api.patch(f"{core}/configmaps/a", content=body, headers=MERGE)
    assert refused.json()["details"]["causes"][0]["field"] == "metadata.finalizers"
    assert api.patch(f"{core}/configmaps/a", content=b'{"metadata":{"finalizers":[]}}', headers=MERGE).status_code == 200
    assert api.get(f"{core}/configmaps/a").status_code == 404


def test_preconditions_protect_a_namesake(api: httpx.Client, core: str) -> None:
    made = make(api, core, "a")
    refused = delete(api, f"{core}/configmaps/a", preconditions={"uid": "other"})
    assert refused.status_code == 409
    assert refused.json()["message"].startswith(
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (other) does not match the UID in record'
    )
    assert delete(api, f"{core}/configmaps/a", preconditions={"resourceVersion": "1"}).status_code == 409
    assert delete(api, f"{core}/configmaps/a", preconditions={"uid": made["metadata"]["uid"]}).status_code == 200


def test_options_that_do_not_exist_are_refused(api: httpx.Client, core: str) -> None:
    make(api, core, "a")
    assert delete(api, f"{core}/configmaps/a", propagationPolicy="Sideways").status_code == 400
    assert delete(api, f"{core}/configmaps/a", gracePeriodSeconds="soon").status_code == 400
    assert api.get(f"{core}/configmaps/a").status_code == 200


def test_dependents_follow_their_owner_through_generations(api: httpx.Client, core: str) -> None:
    parent = make(api, core, "parent")
    child = make(api, core, "child", parent)
    make(api, core, "grandchild", child)
    delete(api, f"{core}/configmaps/parent")
    assert gone(api, f"{core}/configmaps/child")
    assert gone(api, f"{core}/configmaps/grandchild")


def test_a_dependent_stays_while_one_owner_lives(api: httpx.Client, core: str) -> None:
    first, second = make(api, core, "first"), make(api, core, "second")
    make(api, core, "child", first, second)
    delete(api, f"{core}/configmaps/first")
    end = time.monotonic() + PATIENCE_SECONDS
    references: list[Any] = []
    while time.monotonic() < end and len(references) != 1:
        references = api.get(f"{core}/configmaps/child").json()["metadata"].get("ownerReferences", [])
    assert [one["name"] for one in references] == ["second"]
    delete(api, f"{core}/configmaps/second")
    assert gone(api, f"{core}/configmaps/child")


def test_an_object_whose_owner_never_was_is_collected(api: httpx.Client, core: str) -> None:
    make(api, core, "child", {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}})
    assert gone(api, f"{core}/configmaps/child")


def test_a_namespaces_first_service_account_is_made_again(api: httpx.Client, core: str) -> None:
    first = api.get(f"{core}/serviceaccounts/default").json()["metadata"]["uid"]
    assert delete(api, f"{core}/serviceaccounts/default").status_code == 200
    assert api.get(f"{core}/serviceaccounts/default").json()["metadata"]["uid"] != first


def test_an_object_whose_owners_kind_nobody_serves_waits_until_somebody_does(api: httpx.Client, core: str) -> None:
    owner = {"apiVersion": "late.dev/v1", "kind": "Late", "name": "ghost", "uid": "00000000-0000-4000-8000-000000000001"}
    answer = api.post(f"{core}/configmaps", json={"metadata": {"name": "child", "ownerReferences": [owner]}})
    assert answer.status_code == 201
    make(api, core, "sibling", {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}})
    assert gone(api, f"{core}/configmaps/sibling")  # made later, so by now the child has been looked at
    assert api.get(f"{core}/configmaps/child").status_code == 200
    definition = {
        "metadata": {"name": "lates.late.dev"},
        "spec": {
            "group": "late.dev",
            "scope": "Namespaced",
            "names": {"plural": "lates", "kind": "Late"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    try:
        assert api.post(DEFINITIONS, json=definition).status_code == 201
        assert gone(api, f"{core}/configmaps/child")
        late = core.replace("/api/v1/", "/apis/late.dev/v1/") + "/lates"
        made = api.post(late, json={"metadata": {"name": "one"}}).json()["metadata"]
        owned = {"metadata": {"name": "owned", "ownerReferences": [{**owner, "name": "one", "uid": made["uid"]}]}}
        assert api.post(f"{core}/configmaps", json=owned).status_code == 201
    finally:
        api.delete(f"{DEFINITIONS}/lates.late.dev")
    assert gone(api, f"{core}/configmaps/owned")  # its owner is known to be gone, though nobody serves its kind any more


def test_a_dependent_that_is_to_leave_its_own_behind_does_so(api: httpx.Client, core: str) -> None:
    parent = make(api, core, "parent")
    child = make(api, core, "child", parent, finalizers=("orphan",))
    make(api, core, "grandchild", child)
    delete(api, f"{core}/configmaps/parent")
    assert gone(api, f"{core}/configmaps/child")
    assert "ownerReferences" not in api.get(f"{core}/configmaps/grandchild").json()["metadata"]


def test_orphans_outlive_their_owner(api: httpx.Client, core: str) -> None:
    parent = make(api, core, "parent")
    make(api, core, "child", parent)
    delete(api, f"{core}/configmaps/parent", propagationPolicy="Orphan")
    assert gone(api, f"{core}/configmaps/parent")
    assert "ownerReferences" not in api.get(f"{core}/configmaps/child").json()["metadata"]


def test_a_foreground_deletion_waits_for_the_dependents(api: httpx.Client, core: str) -> None:
    parent = make(api, core, "parent")
    make(api, core, "child", parent, finalizers=("x.dev/hold",))
    marked = delete(api, f"{core}/configmaps/parent", propagationPolicy="Foreground").json()
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and not api.get(f"{core}/configmaps/child").json()["metadata"].get("deletionTimestamp"):
        pass
    assert api.get(f"{core}/configmaps/parent").status_code == 200
    api.patch(f"{core}/configmaps/child", content=b'{"metadata":{"finalizers":null}}', headers=MERGE)
    assert gone(api, f"{core}/configmaps/parent")


def test_a_namespace_goes_with_all_it_holds(api: httpx.Client, core: str, namespace: str, widgets: str) -> None:
    make(api, core, "a")
    make(api, core, "held", finalizers=("x.dev/hold",))
    api.post(widgets, json={"metadata": {"name": "w"}, "spec": {"image": "x"}})
    answer = api.delete(f"/api/v1/namespaces/{namespace}").json()
    assert answer["status"]["phase"] == "Terminating"
    assert gone(api, f"{widgets}/w")
    refused = api.post(f"{core}/configmaps", json={"metadata": {"name": "late"}})
    assert refused.status_code == 403
    assert refused.json()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert api.get(f"/api/v1/namespaces/{namespace}").status_code == 200
    api.patch(f"{core}/configmaps/held", content=b'{"metadata":{"finalizers":[]}}', headers=MERGE)
    assert gone(api, f"/api/v1/namespaces/{namespace}")


@pytest.mark.parametrize("name", ["default", "kube-system"])
def test_the_first_namespaces_stay(api: httpx.Client, name: str) -> None:
    assert api.delete(f"/api/v1/namespaces/{name}").status_code == 403


def test_a_collection_is_deleted_by_selector(api: httpx.Client, core: str) -> None:
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        api.post(f"{core}/configmaps", json={"metadata": {"name": name, "labels": {"app": app}}})
    answer = api.delete(f"{core}/configmaps", params={"labelSelector": "app=x"}).json()
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in api.get(f"{core}/configmaps").json()["items"]] == ["b"]
