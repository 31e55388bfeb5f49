"""Reading a Pod: what is understood, and what is refused rather than ignored."""

from typing import Any

import pytest

from fairlead_sandbox.kubelet.pod_specs import PodRefused, ProbeSpec, read_pod


def manifest(container: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    engine = {"name": "engine", "image": "fairlead/engine", "ports": [{"name": "http", "containerPort": 8000}], **(container or {})}
    return {
        "metadata": {"name": "chat-b1", "namespace": "default", "uid": "u1", **metadata},
        "spec": {"containers": [engine], **(spec or {})},
    }


def test_probes_take_kubernetes_defaults_and_named_ports() -> None:
    pod = read_pod(
        manifest({"readinessProbe": {"httpGet": {"port": "http", "path": "/health"}}, "livenessProbe": {"tcpSocket": {"port": 9}}})
    )
    assert pod.containers[0].readiness == ProbeSpec(port=8000, path="/health")
    assert pod.containers[0].liveness == ProbeSpec(port=9, path=None, period=10.0, timeout=1.0, failure_threshold=3)


def test_a_pod_being_deleted_has_the_grace_of_its_deletion() -> None:
    alive = read_pod(manifest(spec={"terminationGracePeriodSeconds": 120}))
    assert not alive.deleted
    assert alive.grace_seconds == 120.0
    deleted = read_pod(
        manifest(spec={"terminationGracePeriodSeconds": 120}, deletionTimestamp="2026-01-01T00:00:05Z", deletionGracePeriodSeconds=5)
    )
    assert deleted.deleted
    assert deleted.grace_seconds == 5.0


@pytest.mark.parametrize(
    ("container", "spec", "message"),
    [
        ({}, {"initContainers": [{"name": "x"}]}, "init containers"),
        ({"envFrom": [{"configMapRef": {"name": "x"}}]}, {}, "envFrom is not supported"),
        ({"lifecycle": {"preStop": {}}}, {}, "lifecycle hooks"),
        ({"readinessProbe": {"exec": {"command": ["true"]}}}, {}, "readinessProbe: .* httpGet and tcpSocket only"),
        ({"readinessProbe": {"httpGet": {"port": 1, "scheme": "HTTPS"}}}, {}, "plain HTTP only"),
        ({"readinessProbe": {"httpGet": {"port": "metrics"}}}, {}, "port 'metrics' is not the name"),
    ],
)
def test_what_the_kubelet_cannot_honour_is_refused(container: dict[str, Any], spec: dict[str, Any], message: str) -> None:
    with pytest.raises(PodRefused, match=message):
        read_pod(manifest(container, spec))
