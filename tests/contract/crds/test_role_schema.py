"""The CRD of InferencePoolRole on a strict Kubernetes API: it can be scaled, and it refuses invalid objects."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fairlead_testing.running.operator_process import ROLES, running_kubernetes_api
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesClient]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as kubeconfig:
        yield KubernetesClient.of(kubeconfig)


def made(client: KubernetesClient, pool: str, **spec: Any) -> str:
    """Create an object and return its path."""
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePoolRole", "metadata": {"name": f"{pool}-prefill"}}
    client.call("POST", ROLES + "?fieldValidation=Strict", {**body, "spec": {"pool": pool, "role": "prefill", **spec}})
    return f"{ROLES}/{pool}-prefill"


def patched(client: KubernetesClient, path: str, spec: dict[str, Any]) -> requests.Response:
    return client.session.patch(client.server + path, json={"spec": spec}, headers=MERGE, timeout=PATIENCE_SECONDS)


def test_its_scale_is_read_and_written_as_autoscalers_do(client: KubernetesClient) -> None:
    path = made(client, "free", replicas=2)
    client.merge(f"{path}/status", {"status": {"replicas": 2, "selector": "fairlead.dev/pool=free,llm-d.ai/role=prefill"}})
    scale = client.call("GET", f"{path}/scale")
    assert (scale["kind"], scale["spec"], scale["status"]["replicas"]) == ("Scale", {"replicas": 2}, 2)
    assert scale["status"]["selector"] == "fairlead.dev/pool=free,llm-d.ai/role=prefill"
    client.call("PUT", f"{path}/scale?fieldManager=autoscaler", {**scale, "spec": {"replicas": 5}})
    found = client.call("GET", path)
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 2)
    owners = [item["manager"] for item in found["metadata"]["managedFields"] if "f:replicas" in item["fieldsV1"].get("f:spec", {})]
    assert owners == ["autoscaler"], "who scaled is who owns the number now"


def test_scaling_what_the_pool_declares_is_refused_with_the_remedy(client: KubernetesClient) -> None:
    path = made(client, "declared", replicas=2, pinned=2)
    refused = patched(client, f"{path}/scale", {"replicas": 3})
    assert refused.status_code == 422
    assert "the InferencePool declares the replicas of this role; change roles[].replicas of the InferencePool" in refused.json()["message"]
    assert patched(client, path, {"replicas": 4, "pinned": 4}).ok, "the operator moves both"
    assert patched(client, path, {"pinned": None}).ok
    assert patched(client, f"{path}/scale", {"replicas": 3}).ok


@pytest.mark.parametrize(
    ("subresource", "spec", "message"),
    [
        ("", {"pool": "other"}, "pool cannot be changed"),
        ("", {"role": "decode"}, "role cannot be changed"),
        ("", {"role": "both"}, "supported values"),
        ("/scale", {"replicas": 0}, "should be greater than or equal to 1"),
    ],
)
def test_a_change_that_no_pool_could_follow_is_refused(
    client: KubernetesClient, subresource: str, spec: dict[str, Any], message: str
) -> None:
    path = f"{ROLES}/fixed-prefill"
    if not client.session.get(client.server + path, timeout=PATIENCE_SECONDS).ok:
        made(client, "fixed", replicas=2)
    refused = patched(client, path + subresource, spec)
    assert refused.status_code == 422
    assert message in refused.json()["message"]


def test_an_object_of_another_name_is_refused(client: KubernetesClient) -> None:
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePoolRole", "metadata": {"name": "mine"}}
    answer = client.session.post(
        client.server + ROLES, json={**body, "spec": {"pool": "p", "role": "decode", "replicas": 1}}, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 422
    assert "metadata.name must be <pool>-<role>" in answer.json()["message"]
