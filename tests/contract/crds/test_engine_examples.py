"""The examples of engines on real nodes: an API server takes each object, and the pods that the operator makes of them.

A pod template is free in a pool's schema, so only a pod made from it shows a misspelt field. `Strict` refuses it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.pools import parse_spec
from fairlead_operator.manifests import group, pod
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_testing.running.operator_process import ROOT, eventually, running_kubernetes_api
from fairlead_testing.running.workloads import LEADER_WORKER_SETS, define_leader_worker_sets
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

FILES = sorted((ROOT / "examples" / "engines").glob("*.yaml"))
PLACES = {
    "InferencePool": "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "LeaderWorkerSet": LEADER_WORKER_SETS,
    "Pod": "/api/v1/namespaces/default/pods",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesClient]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as kubeconfig:
        yield KubernetesClient.of(kubeconfig)


def apply(client: KubernetesClient, body: dict[str, Any]) -> dict[str, Any]:
    """Create an object as a strict client does, and return it as stored."""
    return client.call("POST", f"{PLACES[body['kind']]}?fieldValidation=Strict", body)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def engine_pod(pool: dict[str, Any]) -> dict[str, Any]:
    """Return the first pod that the operator makes of a pool."""
    spec = parse_spec(pool["spec"])
    identity = identity_of(pool)
    turns = spec.roles[0].turns
    return pod(
        identity,
        spec,
        role=spec.roles[0].name,
        ordinal=1,
        image="fairlead/engine:1",
        reason="PoolCreated",
        now="2026-11-29T00:00:00Z",
        claim="" if turns is None else turns.claims[0],
    )


def identity_of(pool: dict[str, Any]) -> PoolIdentity:
    return PoolIdentity(namespace="default", name=pool["metadata"]["name"], uid=pool["metadata"]["uid"])


def volume(made: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's volume and the engine's mount of it; a real API server adds a token's volume."""
    [mount] = [one for one in engine(made)["volumeMounts"] if one["mountPath"] != "/var/run/secrets/kubernetes.io/serviceaccount"]
    [found] = [one for one in made["spec"]["volumes"] if one["name"] == mount["name"]]
    return {**found, "readOnly": mount.get("readOnly", False)}


def engine(made: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = made["spec"]["containers"][0]
    return container


def limits(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = engine(made)["resources"]["limits"]
    return found


def secret_of(container: dict[str, Any]) -> Any:
    return next((one["valueFrom"]["secretKeyRef"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})), None)


CLAIMS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "weights-from-a-claim": lambda made: volume(made)["persistentVolumeClaim"]["claimName"] == "qwen3-8b" and volume(made)["readOnly"],
    "weights-from-an-image": lambda made: (
        volume(made)["image"]["reference"].startswith("registry.example.com/") and volume(made)["readOnly"]
    ),
    "weights-by-a-downloader": lambda made: (
        secret_of(made["spec"]["initContainers"][0]) == {"name": "hugging-face", "key": "token"} and secret_of(engine(made)) is None
    ),
    "gpu-nodes": lambda made: (
        limits(made)["nvidia.com/gpu"] == "2"
        and engine(made)["resources"]["requests"]["nvidia.com/gpu"] == "2"
        and made["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        and {one.get("key") for one in made["spec"]["tolerations"]} > {"nvidia.com/gpu", "team"}
    ),
    "device-claim": lambda made: (
        made["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "one-large-gpu"}]
        and engine(made)["resources"]["claims"] == [{"name": "gpu"}]
    ),
    "shared-device": lambda made: (
        made["spec"]["resourceClaims"] == [{"name": "fairlead-turn", "resourceClaimName": "shared-gpu-0"}]
        and engine(made)["resources"] == {"requests": {"memory": "96Gi"}, "claims": [{"name": "fairlead-turn"}]}
    ),
    "host-network": lambda made: (
        made["spec"]["hostNetwork"]
        and [port["hostPort"] for port in engine(made)["ports"]] == [8000, 5600]
        and limits(made)["rdma/ib"] == "1"
    ),
    "autoscaled-nodes": lambda made: made["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true",
    "kueue": lambda made: made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "inference",
}
"""Promises of each example, checked on the pod as an API server stores it."""
GROUPS = ("two-nodes",)
"""The examples whose instances are groups."""


def test_every_example_of_an_engine_promises_something() -> None:
    assert [path.stem for path in FILES] == sorted({*CLAIMS, *GROUPS})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_and_the_pod_made_of_it_are_taken(path: Path, client: KubernetesClient) -> None:
    stored = [apply(client, document) for document in documents(path)]
    if path.stem not in GROUPS:
        assert CLAIMS[path.stem](apply(client, engine_pod(stored[-1])))


@pytest.mark.parametrize("name", GROUPS)
def test_an_example_of_several_nodes_becomes_groups_whose_pods_know_each_other(name: str, client: KubernetesClient) -> None:
    define_leader_worker_sets(client)
    pool = client.call("GET", f"{PLACES['InferencePool']}/{name}")
    spec, identity = parse_spec(pool["spec"]), identity_of(pool)
    made = apply(client, group(identity, spec, engine_pod(pool), spec.roles[0].name, nodes=2))["metadata"]["name"]
    address, path = f"{made}-0.{made}.default", PLACES["Pod"]
    for index, pod_name in enumerate((f"{made}-0", f"{made}-0-1")):
        found = eventually(lambda pod_name=pod_name: found_pod(client, f"{path}/{pod_name}"), f"{pod_name} is there")  # type: ignore[misc]
        variables = {one["name"]: one.get("value") for one in engine(found)["env"]}
        assert variables.items() >= {"LWS_LEADER_ADDRESS": address, "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(index)}.items()
        assert limits(found)["nvidia.com/gpu"] == "8"
        assert ("--headless" in engine(found)["args"]) is bool(index)
        assert ("readinessProbe" in engine(found)) is not bool(index)


def found_pod(client: KubernetesClient, path: str) -> dict[str, Any] | None:
    response = client.session.get(client.server + path, timeout=PATIENCE_SECONDS)
    document: dict[str, Any] | None = response.json() if response.ok else None
    return document


def test_a_field_that_no_pod_has_is_refused_once_a_pod_is_made(client: KubernetesClient) -> None:
    [pool] = documents(ROOT / "examples" / "engines" / "gpu-nodes.yaml")
    pool["metadata"]["name"] = "misspelt"
    pool["spec"]["roles"][0]["template"]["spec"]["nodeSelectors"] = {}
    stored = apply(client, pool)
    with pytest.raises(AssertionError, match=r"unknown field .*nodeSelectors"):
        apply(client, engine_pod(stored))
