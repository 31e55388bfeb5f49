"""Access to the server, and its discovery documents."""

from __future__ import annotations

import base64
import stat
from typing import Any

import httpx
import pytest
import yaml

from processkube.kubernetes_api.serving.server import RunningServer

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize("headers", [{"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}])
def test_without_a_token_nothing_but_health_is_told(api: httpx.Client, headers: dict[str, str]) -> None:
    for path in ("/healthz", "/readyz", "/livez"):
        assert api.get(path, headers=headers).text == "ok"
    for path in ("/", "/api", "/version", "/openapi/v3", "/api/v1/pods"):
        answer = api.get(path, headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


def test_each_account_has_a_kubeconfig_only_its_owner_reads(server: RunningServer) -> None:
    folder = server.kubeconfig.parent
    accounts = {"admin", "acme-operator", "acme-api", "kubelet"}
    assert {path.name.removeprefix("kubeconfig-") for path in folder.glob("kubeconfig-*")} == accounts
    for name in accounts:
        path = folder / f"kubeconfig-{name}"
        config = yaml.safe_load(path.read_text())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert config["users"][0]["user"]["token"] == server.token(name)
        assert config["clusters"][0]["cluster"]["server"] == server.url
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        assert authority == server.certificate_authority.read_bytes()
    assert server.kubeconfig.read_text() == (folder / "kubeconfig-admin").read_text()


def review(api: httpx.Client, group: str, kind: str, spec: dict[str, Any], token: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = api.post(f"/apis/{group}/v1/{kind.lower()}s", json={"spec": spec}, headers=headers)
    assert answer.status_code == 201, answer.text
    status: dict[str, Any] = answer.json()["status"]
    return status


def test_reviews_answer_who_and_whether(api: httpx.Client, server: RunningServer) -> None:
    authorization, authentication = "authorization.k8s.io", "authentication.k8s.io"
    question = {"resourceAttributes": {"verb": "delete", "resource": "pods"}}
    assert review(api, authorization, "SelfSubjectAccessReview", question)["allowed"] is True
    assert review(api, authorization, "SubjectAccessReview", {**question, "user": "nobody"})["allowed"] is False
    operator = "system:serviceaccount:acme:operator"
    assert review(api, authorization, "SubjectAccessReview", {**question, "user": operator})["allowed"] is True
    found = review(api, authentication, "TokenReview", {"token": server.token("acme-operator")})
    assert (found["authenticated"], found["user"]["username"]) == (True, operator)
    assert review(api, authentication, "TokenReview", {"token": "wrong"})["authenticated"] is False
    myself = review(api, authentication, "SelfSubjectReview", {}, token=server.token("kubelet"))
    assert myself["userInfo"]["username"] == "system:node:sandbox"
    assert api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json={"spec": {}}).status_code == 422


def test_who_acts_as_another_may_do_what_the_other_may(api: httpx.Client, core: str, namespace: str) -> None:
    robot = {"Impersonate-User": f"system:serviceaccount:{namespace}:robot"}
    refused = api.get(f"{core}/pods", headers=robot)
    assert refused.status_code == 403
    assert f'User "system:serviceaccount:{namespace}:robot" cannot list resource "pods"' in refused.json()["message"]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.post(f"{rbac}/roles", json={"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})
    everyone = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    api.post(f"{rbac}/rolebindings", json={"metadata": {"name": "b"}, "roleRef": reference, "subjects": [everyone]})
    assert api.get(f"{core}/pods", headers={**robot, "Impersonate-Group": "team"}).status_code == 200
    assert api.get(f"{core}/pods", headers={"Impersonate-Group": "team"}).status_code == 400
    api.post(f"{core}/serviceaccounts", json={"metadata": {"name": "robot"}})
    token = api.post(f"{core}/serviceaccounts/robot/token", json={"spec": {}}).json()["status"]["token"]
    climbing = {"Authorization": f"Bearer {token}", "Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
    assert 'cannot impersonate resource "users"' in api.get(f"{core}/pods", headers=climbing).json()["message"]


def test_a_token_is_good_for_those_it_was_made_for(api: httpx.Client, core: str, server: RunningServer) -> None:
    def token(**spec: Any) -> str:
        answer = api.post(f"{core}/serviceaccounts/robot/token", json={"spec": spec}).json()
        assert answer["spec"]["audiences"] == spec.get("audiences", [default])
        return str(answer["status"]["token"])

    def known(token: str, *audiences: str) -> list[str] | None:
        found = review(api, "authentication.k8s.io", "TokenReview", {"token": token, **({"audiences": audiences} if audiences else {})})
        assert ("error" in found) != found["authenticated"]
        return found.get("audiences")

    default = "https://kubernetes.default.svc"
    api.post(f"{core}/serviceaccounts", json={"metadata": {"name": "robot"}})
    vault, usual = token(audiences=["vault", "acme"]), token()
    assert known(vault, "acme", "other") == ["acme"]
    assert known(vault, "other") is None
    assert known(vault) is None
    assert (known(usual), known(usual, "vault")) == ([default], None)
    assert (known(server.token("kubelet")), known(server.token("kubelet"), "vault")) == ([default], None)
    codes = [api.get("/api", headers={"Authorization": f"Bearer {one}"}).status_code for one in (usual, vault)]
    assert codes == [200, 401]


def test_a_right_to_one_object_is_a_right_to_list_it_by_its_name(api: httpx.Client, core: str, namespace: str) -> None:
    group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]}
    api.post(f"{core}/serviceaccounts", json={"metadata": {"name": "robot"}})
    api.post(f"{group}/roles", json={"metadata": {"name": "one"}, "rules": [rule]})
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]
    bound = {"metadata": {"name": "one"}, "subjects": subjects, "roleRef": {"kind": "Role", "name": "one"}}
    api.post(f"{group}/rolebindings", json=bound)
    token = api.post(f"{core}/serviceaccounts/robot/token", json={"spec": {}}).json()["status"]["token"]

    def listed(selector: str, **query: str) -> int:
        params = {"fieldSelector": selector, **query} if selector else query
        return api.get(f"{core}/configmaps", params=params, headers={"Authorization": f"Bearer {token}"}).status_code

    assert listed("metadata.name=mine") == 200
    assert listed("metadata.name==mine", watch="true", timeoutSeconds="1") == 200
    assert [listed(selector) for selector in ("", "metadata.name=other", "metadata.name!=mine", "metadata.name=")] == [403] * 4


def test_both_forms_of_discovery_list_the_same_resources(api: httpx.Client) -> None:
    plain: set[tuple[str, str, str]] = set()
    groups = api.get("/apis").json()["groups"]
    for path, group in [("/api/v1", ""), *((f"/apis/{one['preferredVersion']['groupVersion']}", one["name"]) for one in groups)]:
        for resource in api.get(path).json()["resources"]:
            if "/" not in resource["name"]:
                plain.add((group, resource["name"], resource["kind"]))
    aggregated = {
        (item["metadata"]["name"], resource["resource"], resource["responseKind"]["kind"])
        for root in ("/api", "/apis")
        for item in api.get(root, headers={"Accept": AGGREGATED}).json()["items"]
        for resource in item["versions"][0]["resources"]
    }
    assert aggregated == plain
    assert {("", "pods", "Pod"), ("apps", "deployments", "Deployment"), ("acme.dev", "widgets", "Widget")} <= plain
    assert api.get("/api", headers={"Accept": AGGREGATED}).headers["Content-Type"] == AGGREGATED


def test_every_openapi_document_is_closed_under_reference(api: httpx.Client) -> None:
    paths = api.get("/openapi/v3").json()["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/acme.dev/v1"} <= paths.keys()
    for entry in paths.values():
        document = api.get(entry["serverRelativeURL"]).json()
        schemas = document["components"]["schemas"]
        missing = {name for name in _references(document) if name.removeprefix("#/components/schemas/") not in schemas}
        assert missing == set()


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return {name for item in node for name in _references(item)}
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
    return own | {name for value in node.values() for name in _references(value)}


def test_writes_are_documented_with_what_kubectl_looks_for(api: httpx.Client) -> None:
    document = api.get("/openapi/v3/apis/acme.dev/v1").json()
    operation = document["paths"]["/apis/acme.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {"group": "acme.dev", "version": "v1", "kind": "Widget"}
    assert {"fieldValidation", "dryRun", "fieldManager", "force"} == {one["name"] for one in operation["parameters"]}
    assert document["components"]["schemas"]["dev.acme.v1.Widget"]["properties"]["spec"]["description"] == "What the widget should be."


def test_the_second_version_of_openapi_holds_every_kind_in_one_closed_document(api: httpx.Client) -> None:
    document = api.get("/openapi/v2").json()
    assert document["swagger"] == "2.0"
    missing = {name for name in _references(document) if name.removeprefix("#/definitions/") not in document["definitions"]}
    assert missing == set()
    assert "components" not in str(document["paths"])
    widget = document["definitions"]["dev.acme.v1.Widget"]
    assert widget["x-kubernetes-group-version-kind"] == [{"group": "acme.dev", "version": "v1", "kind": "Widget"}]
    assert widget["properties"]["metadata"]["$ref"] == "#/definitions/io.k8s.api.v1.ObjectMeta"
    patch = document["paths"]["/apis/acme.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/apply-patch+yaml" in patch["consumes"]
    assert {one["name"] for one in patch["parameters"]} == {"body", "dryRun", "fieldManager", "fieldValidation", "force"}


def test_what_the_second_version_cannot_say_is_left_out(api: httpx.Client) -> None:
    spec = api.get("/openapi/v2").json()["definitions"]["dev.acme.v1.Widget"]["properties"]["spec"]
    assert spec["properties"]["free"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert spec["properties"]["replicas"]["type"] == "integer"


def test_the_second_version_is_not_written_as_protobuf(api: httpx.Client) -> None:
    wanted = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert api.get("/openapi/v2", headers={"Accept": wanted}).status_code == 406
