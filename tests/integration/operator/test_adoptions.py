"""A Deployment with its controller is adopted, scaled in by pod-deletion-cost, and released as it was."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.running.workloads import DEPLOYMENTS, make_workload

PODS = "/api/v1/namespaces/default/pods"
NAME = "team-engines"


def pods_of(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.client.call("GET", f"{PODS}?labelSelector=app={NAME}")["items"]
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def essence(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a pool that people may change, without its status."""
    metadata = pod["metadata"]
    told = {name: metadata.get(name) or None for name in ("labels", "annotations", "ownerReferences", "finalizers")}
    return {**told, "spec": {**pod["spec"], "nodeName": None}}


def of_the_deployment(stage: Stage) -> dict[str, Any]:
    found = stage.client.call("GET", f"{DEPLOYMENTS}/{NAME}")
    metadata = {name: found["metadata"].get(name) or None for name in ("labels", "annotations", "ownerReferences", "finalizers")}
    return {**metadata, "spec": {**found["spec"], "replicas": None}}


@pytest.fixture
def deployment(stage: Stage) -> Iterator[Stage]:
    make_workload(stage.client, "Deployment", NAME, 3)
    eventually(lambda: len(pods_of(stage)) == 3, "its controller made its pods")
    yield stage
    stage.client.call("DELETE", f"{DEPLOYMENTS}/{NAME}", {"propagationPolicy": "Background"})
    eventually(lambda: not pods_of(stage), "its pods are gone")


def test_a_deployment_is_adopted_scaled_in_by_deletion_cost_and_released_with_nothing_of_it_changed(deployment: Stage) -> None:
    stage, name = deployment, "adopted"
    before = {pod["metadata"]["name"]: essence(pod) for pod in pods_of(stage)}
    whole = of_the_deployment(stage)
    role = {
        "name": "both",
        "selector": {"matchLabels": {"app": NAME}},
        "scaleTargetRef": {"kind": "Deployment", "name": NAME},
        "minReplicas": 1,
    }
    stage.apply(name, replicas=3, roles=[role])
    eventually(lambda: stage.status(name).get("serving") == 3, "its pods serve")
    assert stage.names(name) == set(before)
    busy, cold = sorted(before)[1:], sorted(before)[0]
    stage.api.state.pretence.in_flight = {**dict.fromkeys(busy, 5), cold: 1}
    stage.edit(name, {"replicas": 2})
    eventually(lambda: stage.marked(name) == {cold}, "the coldest drains")
    marked = stage.client.call("GET", f"{PODS}/{cold}")["metadata"]["annotations"]
    assert marked["controller.kubernetes.io/pod-deletion-cost"] == "-2147483648"
    assert len(pods_of(stage)) == 3, "it is not empty yet"
    stage.api.state.pretence.in_flight = dict.fromkeys(busy, 5)
    eventually(lambda: {pod["metadata"]["name"] for pod in pods_of(stage)} == set(busy), "the ReplicaSet ended the emptied pod")
    eventually(lambda: stage.status(name).get("serving") == 2, "the others serve")
    stage.api.state.pretence.in_flight = {}
    stage.delete(name)
    eventually(lambda: stage.pool(name) is None, "the pool is gone")
    left = {pod["metadata"]["name"]: essence(pod) for pod in pods_of(stage)}
    assert left == {one: before[one] for one in busy}
    assert of_the_deployment(stage) == whole
    assert stage.client.call("GET", f"{DEPLOYMENTS}/{NAME}")["spec"]["replicas"] == 2
    assert "ERROR" not in stage.operator.log.read_text(encoding="utf-8")
