"""Reading a Pod: fields that are understood, and fields that are refused rather than ignored."""

from typing import Any

import pytest

from processkube.kubelet.pod_specs import StopHook, read_pod
from processkube.kubelet.probe_specs import ProbeSpec
from processkube.kubelet.refusals import PodRefused
from processkube.kubelet.volume_specs import TOKEN_MOUNT, AccountToken, ClusterAuthority, MountSpec, PodFields, StoredKeys, VolumeSpec


def manifest(container: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    engine = {"name": "engine", "image": "acme/engine", "ports": [{"name": "http", "containerPort": 8000}], **(container or {})}
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


def test_probes_by_command_and_over_tls_are_understood() -> None:
    container = {
        "startupProbe": {"exec": {"command": ["pg_isready"]}, "periodSeconds": 2},
        "readinessProbe": {"httpGet": {"port": 1, "scheme": "HTTPS"}},
    }
    (read,) = read_pod(manifest(container)).containers
    assert read.startup == ProbeSpec(command=("pg_isready",), period=2.0)
    assert read.readiness == ProbeSpec(port=1, path="/", tls=True)


def test_a_pod_sees_its_account_when_it_asks_for_it_and_its_volumes_where_they_are_mounted() -> None:
    spec = {
        "automountServiceAccountToken": True,
        "serviceAccountName": "operator",
        "securityContext": {"runAsUser": 10001, "runAsGroup": 10001},
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            {"name": "keys", "secret": {"secretName": "gateway-keys", "defaultMode": 0o440}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}}]}},
        ],
    }
    mounts = [{"name": "keys", "mountPath": "/etc/keys", "readOnly": True}, {"name": "data", "mountPath": "/data", "subPath": "pg"}]
    container = {"volumeMounts": mounts, "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": 7}}
    pod = read_pod(manifest(container, spec))
    assert pod.service_account == "operator"
    assert pod.volumes == (
        VolumeSpec(name="tmp"),
        VolumeSpec(name="keys", sources=(StoredKeys(kind="Secret", name="gateway-keys"),), mode=0o440),
        VolumeSpec(name="data", claim="data-0"),
        VolumeSpec(name="all", sources=(StoredKeys(kind="ConfigMap", name="c", items=(("a", "b", None),)),)),
        VolumeSpec(
            name="kube-api-access",
            sources=(
                AccountToken(path="token"),
                ClusterAuthority(path="ca.crt"),
                PodFields(items=(("namespace", "metadata.namespace"),)),
            ),
        ),
    )
    (read,) = pod.containers
    assert (read.user, read.group, read.read_only_root) == (7, 10001, True)
    assert read.mounts == (
        MountSpec(volume="keys", path="/etc/keys", read_only=True),
        MountSpec(volume="data", path="/data", sub_path="pg"),
        MountSpec(volume="kube-api-access", path=TOKEN_MOUNT, read_only=True),
    )


def test_a_plain_engine_needs_no_enclosure() -> None:
    assert not read_pod(manifest()).containers[0].is_enclosed


def test_init_containers_and_stop_hooks_are_understood() -> None:
    pod = read_pod(
        manifest({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}, {"initContainers": [{"name": "first", "image": "acme/api"}]})
    )
    assert [one.name for one in pod.every_container] == ["first", "engine"]
    assert pod.containers[0].before_stop == StopHook(sleep_seconds=5.0)


@pytest.mark.parametrize(
    ("container", "spec", "message"),
    [
        ({}, {"initContainers": [{"name": "x", "restartPolicy": "Always"}]}, "container x: restartPolicy: .* no sidecars"),
        ({"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}, {}, "preStop with sleep or exec only"),
        ({"lifecycle": {"preStop": {"httpGet": {"port": 1}}}}, {}, "preStop with sleep or exec only"),
        ({"readinessProbe": {"grpc": {"port": 1}}}, {}, "readinessProbe: .* httpGet, tcpSocket and exec only"),
        ({}, {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, "volume v: nfs is not known"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, {}, "volumeMounts: 'v' is not one of the pod's volumes"),
        ({"readinessProbe": {"httpGet": {"port": "metrics"}}}, {}, "port 'metrics' is not the name"),
    ],
)
def test_what_the_kubelet_cannot_honour_is_refused(container: dict[str, Any], spec: dict[str, Any], message: str) -> None:
    with pytest.raises(PodRefused, match=message):
        read_pod(manifest(container, spec))
