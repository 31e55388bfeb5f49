"""The official Python client, as Fairlead's own processes use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import kubernetes
import pytest
from kubernetes.client.exceptions import ApiException

from processkube.kubernetes_api.serving.server import RunningServer


@pytest.fixture(scope="module")
def connection(server: RunningServer) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(config_file=str(server.kubeconfig)) as client:
        yield client


def test_typed_calls_create_patch_list_and_delete_pods(connection: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(connection)
    container = kubernetes.client.V1Container(name="c", image="i:1", ports=[kubernetes.client.V1ContainerPort(container_port=80)])
    metadata = kubernetes.client.V1ObjectMeta(name="web", labels={"app": "web"})
    pod = kubernetes.client.V1Pod(metadata=metadata, spec=kubernetes.client.V1PodSpec(containers=[container]))
    made = core.create_namespaced_pod(namespace, pod)
    assert (made.status.phase, made.spec.containers[0].ports[0].protocol) == ("Pending", "TCP")
    core.patch_namespaced_pod("web", namespace, {"metadata": {"annotations": {"a": "b"}}})
    core.patch_namespaced_pod_status("web", namespace, {"status": {"phase": "Running"}})
    listed = core.list_namespaced_pod(namespace, label_selector="app=web").items
    assert [(one.metadata.annotations, one.status.phase) for one in listed] == [({"a": "b"}, "Running")]
    core.delete_namespaced_pod("web", namespace, grace_period_seconds=0)
    with pytest.raises(ApiException) as refusal:
        core.read_namespaced_pod("web", namespace)
    assert refusal.value.status == 404


def test_a_watch_streams_typed_events(connection: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(connection)
    for name in ("a", "b"):
        core.create_namespaced_config_map(namespace, kubernetes.client.V1ConfigMap(metadata=kubernetes.client.V1ObjectMeta(name=name)))
    stream = kubernetes.watch.Watch().stream(core.list_namespaced_config_map, namespace, timeout_seconds=1)
    assert [(event["type"], event["object"].metadata.name) for event in stream] == [("ADDED", "a"), ("ADDED", "b")]


def test_the_dynamic_client_finds_custom_resources_and_applies(connection: Any, namespace: str, widgets: str, api: httpx.Client) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(connection)
    resource = dynamic.resources.get(api_version="acme.dev/v1", kind="Widget")
    body = {"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"image": "x", "replicas": 2}}
    for _ in range(2):
        made = dynamic.server_side_apply(resource, body=body, name="a", namespace=namespace, field_manager="test")
        assert made.spec.replicas == 2
    assert api.get(f"{widgets}/a").json()["metadata"]["generation"] == 1
    custom = kubernetes.client.CustomObjectsApi(connection)
    custom.patch_namespaced_custom_object_scale("acme.dev", "v1", namespace, "widgets", "a", {"spec": {"replicas": 3}})
    assert api.get(f"{widgets}/a").json()["spec"]["replicas"] == 3


def test_access_and_leader_leases_work(connection: Any, namespace: str) -> None:
    review = kubernetes.client.V1SelfSubjectAccessReview(
        spec=kubernetes.client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=kubernetes.client.V1ResourceAttributes(verb="get", resource="pods")
        )
    )
    assert kubernetes.client.AuthorizationV1Api(connection).create_self_subject_access_review(review).status.allowed is True
    leases = kubernetes.client.CoordinationV1Api(connection)
    lease = kubernetes.client.V1Lease(
        metadata=kubernetes.client.V1ObjectMeta(name="leader"),
        spec=kubernetes.client.V1LeaseSpec(holder_identity="a", lease_duration_seconds=5),
    )
    made = leases.create_namespaced_lease(namespace, lease)
    made.spec.holder_identity = "b"
    leases.replace_namespaced_lease("leader", namespace, made)
    with pytest.raises(ApiException) as refusal:
        leases.replace_namespaced_lease("leader", namespace, made)
    assert refusal.value.status == 409
