"""ReplicaSets keep their number of pods, and choose which to delete first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from processkube.testing.clients import KubernetesClient
from processkube.testing.waiting import PATIENCE_SECONDS
from processkube.testing.workloads import LABELS, Document, WorkloadNamespace, pod_template, replica_set

COST = "controller.kubernetes.io/pod-deletion-cost"


def names(namespace: WorkloadNamespace) -> set[str]:
    return {pod["metadata"]["name"] for pod in namespace.pods()}


def with_pods(namespace: WorkloadNamespace, count: int) -> list[str]:
    """Create a ReplicaSet and return its pods' names."""
    namespace.create("replicasets", replica_set("web", count))
    namespace.until(lambda: len(namespace.pods()) == count, "all pods are there")
    return sorted(names(namespace))


def left_after_scaling_in(namespace: WorkloadNamespace, count: int) -> set[str]:
    namespace.scale("replicasets", "web", count)
    namespace.until(lambda: len(namespace.pods()) == count, "the others are gone")
    return names(namespace)


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def bind(client: KubernetesClient, namespace: WorkloadNamespace, pod: str) -> None:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": "somewhere"}}
    client.call("POST", namespace.path("pods", pod, "binding"), body)


def test_a_deleted_or_finished_pod_is_replaced(namespace: WorkloadNamespace) -> None:
    first, second = with_pods(namespace, 2)
    namespace.delete("pods", first)
    namespace.until(lambda: len(namespace.pods()) == 2, "the deleted one is replaced")
    namespace.end(second, "Failed")
    namespace.until(lambda: len(namespace.pods()) == 3, "the failed one is replaced, and stays to be looked at")
    status = namespace.until(
        lambda: (found := namespace.get("replicasets", "web")["status"]).get("fullyLabeledReplicas") == 2 and found, "two count"
    )
    assert status["replicas"] == 2


def test_the_scale_tells_the_size_and_the_selector(namespace: WorkloadNamespace, client: KubernetesClient) -> None:
    with_pods(namespace, 2)
    scale = namespace.until(
        lambda: (found := client.call("GET", namespace.path("replicasets", "web", "scale")))["status"]["replicas"] == 2 and found,
        "the status has counted",
    )
    assert scale["status"] == {"replicas": 2, "selector": "app=web"}


def test_pods_without_a_node_go_before_pods_that_are_only_not_ready(namespace: WorkloadNamespace, client: KubernetesClient) -> None:
    pods = with_pods(namespace, 3)
    for pod in pods[:2]:
        bind(client, namespace, pod)
    namespace.start(pods[2])
    assert left_after_scaling_in(namespace, 2) == set(pods[:2])


def test_pending_pods_go_before_running_ones_and_these_before_ready_ones(namespace: WorkloadNamespace) -> None:
    pods = with_pods(namespace, 3)
    namespace.start(pods[0], ready=False)
    namespace.start(pods[1])
    assert left_after_scaling_in(namespace, 2) == set(pods[:2])
    assert left_after_scaling_in(namespace, 1) == {pods[1]}


def test_of_ready_pods_the_cheapest_to_delete_goes_first(namespace: WorkloadNamespace) -> None:
    pods = with_pods(namespace, 4)
    costs = dict(zip(pods, ("10", "-5", "7", None), strict=True))
    for pod, cost in costs.items():
        namespace.patch("pods", pod, {"metadata": {"annotations": {COST: cost} if cost else {}}})
        namespace.start(pod, since=ago(1000))
    assert left_after_scaling_in(namespace, 3) == {pods[0], pods[2], pods[3]}
    assert left_after_scaling_in(namespace, 2) == {pods[0], pods[2]}, "without the annotation, the cost is 0"
    assert left_after_scaling_in(namespace, 1) == {pods[0]}


def test_the_cost_counts_among_pods_of_one_kind_only(namespace: WorkloadNamespace) -> None:
    pods = with_pods(namespace, 2)
    namespace.patch("pods", pods[0], {"metadata": {"annotations": {COST: "2147483647"}}})
    namespace.start(pods[1])
    assert left_after_scaling_in(namespace, 1) == {pods[1]}, "a pending pod goes first, whatever it costs"


def test_of_equal_pods_the_one_that_became_ready_last_goes_first(namespace: WorkloadNamespace) -> None:
    pods = with_pods(namespace, 3)
    for pod, seconds in zip(pods, (10_000, 100, 2_000), strict=True):
        namespace.start(pod, since=ago(seconds))
    assert left_after_scaling_in(namespace, 2) == {pods[0], pods[2]}
    assert left_after_scaling_in(namespace, 1) == {pods[0]}


def test_of_pods_ready_for_as_long_the_one_that_restarted_more_goes_first(namespace: WorkloadNamespace) -> None:
    pods = with_pods(namespace, 2)
    since = ago(100)
    for pod, restarts in zip(pods, (3, 0), strict=True):
        container: Document = {"name": "web", "image": "web:1", "imageID": "", "ready": True, "restartCount": restarts}
        namespace.start(pod, since=since, containerStatuses=[container])
    assert left_after_scaling_in(namespace, 1) == {pods[1]}


@pytest.mark.parametrize("cost", ["1.5", "+3", "007", "2147483648", "cheap"])
def test_a_cost_that_is_no_32_bit_number_is_refused(namespace: WorkloadNamespace, cost: str) -> None:
    pod = {"metadata": {"name": "p", "annotations": {COST: cost}}, "spec": pod_template()["spec"]}
    refused = f'metadata.annotations[{COST}]: Invalid value: "{cost}": must be a 32bit integer'
    namespace.until(lambda: refused in refusal_once_served(namespace, pod), "it is refused by its cost")


def refusal_once_served(namespace: WorkloadNamespace, pod: Document) -> str:
    """Return the refusal of a pod, once the new namespace has the ServiceAccount without which no pod is checked."""
    answer = namespace.client.session.post(namespace.client.server + namespace.path("pods"), json=pod, timeout=PATIENCE_SECONDS)
    return str(answer.json()["message"]) if answer.status_code == 422 else ""


def test_an_orphan_that_fits_is_adopted_and_a_pod_that_no_longer_fits_is_released(namespace: WorkloadNamespace) -> None:
    pod = {"metadata": {"name": "orphan", "labels": dict(LABELS)}, "spec": pod_template()["spec"]}
    namespace.until(
        lambda: namespace.client.session.post(namespace.client.server + namespace.path("pods"), json=pod, timeout=PATIENCE_SECONDS).ok,
        "the namespace takes pods",
    )
    namespace.create("replicasets", replica_set("web", 2))
    namespace.until(lambda: len(namespace.pods()) == 2, "one pod is added")
    owner = namespace.get("replicasets", "web")["metadata"]["uid"]
    (reference,) = namespace.until(lambda: namespace.get("pods", "orphan")["metadata"].get("ownerReferences"), "the orphan is adopted")
    assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == (owner, True, True)

    namespace.patch("pods", "orphan", {"metadata": {"labels": {"app": "debugged"}}})
    namespace.until(lambda: len(namespace.pods()) == 3, "another takes its place")
    assert "ownerReferences" not in namespace.get("pods", "orphan")["metadata"]
