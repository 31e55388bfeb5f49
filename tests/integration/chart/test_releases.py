"""A release's whole life by Helm, in a Kubernetes API: installed, upgraded, rolled back, uninstalled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from fairlead_sandbox.kubernetes_api.serving.server import RunningServer
from fairlead_testing.running.helm import CHART, Document, Helm, HelmRefused, stored_release
from fairlead_testing.running.operator_process import eventually
from fairlead_testing.worlds.chart_values import BUNDLED, EVERYTHING, merged
from fairlead_testing.worlds.pod_phases import KubernetesClient

NAMESPACE = "fairlead-system"
RELEASE = "fairlead"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/fairlead-migrations"
POOLS = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools"
ROUTERS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/fairlead-router"
TOKENS = f"/api/v1/namespaces/{NAMESPACE}/secrets/fairlead-tokens"

Outcome = Callable[[], str]
"""`Complete` or `Failed`: what becomes of the next Job of migrations."""


@contextmanager
def controllers(client: KubernetesClient, outcome: Outcome) -> Iterator[list[Document]]:
    """Plays the controllers that the sandbox has not: workloads are ready, each Job of migrations ends.

    Yields the Jobs it saw.
    """
    ending, seen = threading.Event(), list[Document]()

    def run() -> None:
        while not ending.wait(0.05):
            for kind in ("deployments", "statefulsets"):
                path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}"
                for workload in client.call("GET", path)["items"]:
                    _say(client, f"{path}/{workload['metadata']['name']}", workload, _ready(workload))
            answer = client.session.get(client.server + JOB, timeout=60)
            job = answer.json() if answer.ok else {}
            if job and not job["status"].get("conditions"):
                seen.append(job)
                condition = {"type": outcome(), "status": "True", "lastTransitionTime": job["metadata"]["creationTimestamp"]}
                _say(client, JOB, job, {"conditions": [condition], "succeeded": int(condition["type"] == "Complete")})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield seen
    ending.set()
    thread.join()


def _ready(workload: Document) -> Document:
    replicas, metadata = workload["spec"]["replicas"], workload["metadata"]
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "currentReplicas"), replicas)
    revisions = {"currentRevision": "1", "updateRevision": "1"}
    if workload["kind"] == "Deployment":
        del counts["currentReplicas"]
        since = {"status": "True", "lastTransitionTime": metadata["creationTimestamp"]}
        conditions = [{"type": "Available", **since}, {"type": "Progressing", "reason": "NewReplicaSetAvailable", **since}]
        return {"observedGeneration": metadata["generation"], **counts, "conditions": conditions}
    return {"observedGeneration": metadata["generation"], **counts, **revisions}


def _say(client: KubernetesClient, path: str, item: Document, status: Document) -> None:
    """Write the status, unless it says so already; the object may be gone."""
    if not status.items() <= item.get("status", {}).items():
        headers = {"Content-Type": "application/merge-patch+json"}
        client.session.patch(f"{client.server}{path}/status", json={"status": status}, headers=headers, timeout=60)


@pytest.fixture
def helm(server: RunningServer, client: KubernetesClient) -> Iterator[Helm]:
    """In a namespace of its own, uninstalled afterwards with what Helm keeps."""
    helm = Helm(server.kubeconfig, NAMESPACE)
    yield helm
    if client.session.get(f"{client.server}{ROUTERS}", timeout=60).ok:
        helm.uninstall(RELEASE)
    for name in ("inferencepools.fairlead.dev", "inferencepoolroles.fairlead.dev"):
        client.session.delete(f"{client.server}{CRDS}/{name}", timeout=60)
    eventually(lambda: not client.session.get(client.server + POOLS, timeout=60).ok, "the definitions are gone")


@pytest.fixture
def former_chart(tmp_path: Path) -> Path:
    """The chart of a version before: its CRD lacks a field, its routers have another command."""
    former = tmp_path / "former"
    for path in CHART.rglob("*"):
        if path.is_file():
            target = former / path.relative_to(CHART)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    metadata = yaml.safe_load((former / "Chart.yaml").read_text(encoding="utf-8"))
    (former / "Chart.yaml").write_text(yaml.safe_dump(metadata | {"version": "0.0.9", "appVersion": "0.0.9"}), encoding="utf-8")
    crd = former / "files/crds/inferencepools.fairlead.dev.yaml"
    definition = yaml.safe_load(crd.read_text(encoding="utf-8"))
    del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["drain"]
    crd.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return former


def knows_drains(client: KubernetesClient) -> bool:
    definition = client.call("GET", f"{CRDS}/inferencepools.fairlead.dev")
    return "drain" in definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def image(client: KubernetesClient) -> str:
    found: str = client.call("GET", ROUTERS)["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


def status(client: KubernetesClient, version: int) -> str:
    found = stored_release(client, NAMESPACE, RELEASE, version)
    assert found is not None
    return found.status


def test_an_upgrade_brings_crds_and_images_and_keeps_tokens_and_pools(helm: Helm, client: KubernetesClient, former_chart: Path) -> None:
    helm.install(RELEASE, BUNDLED, former_chart, create_namespace=True, server_side_apply=True)
    assert (image(client), knows_drains(client)) == ("fairlead/router:0.0.9", False)
    tokens = client.call("GET", TOKENS)["data"]
    pool = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": "kept"}, "spec": {"model": "m"}}
    eventually(lambda: client.session.get(client.server + POOLS, timeout=60).ok, "the definition is served")
    client.call("POST", POOLS, pool)

    helm.upgrade(RELEASE, BUNDLED)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert (image(client), knows_drains(client)) == (f"fairlead/router:{version}", True)
    assert client.call("GET", TOKENS)["data"] == tokens
    assert (status(client, 1), status(client, 2)) == ("superseded", "deployed")

    helm.uninstall(RELEASE)
    assert [one["metadata"]["name"] for one in client.call("GET", POOLS)["items"]] == ["kept"], "pools outlive the release"
    client.call("DELETE", f"{POOLS}/kept")


def test_uninstalling_leaves_nothing_but_the_definitions(helm: Helm, client: KubernetesClient, server: RunningServer) -> None:
    with controllers(client, lambda: "Complete"):
        helm.install(RELEASE, EVERYTHING, create_namespace=True, server_side_apply=True, wait=True, timeout=60)
    release = stored_release(client, NAMESPACE, RELEASE, 1)
    assert release is not None
    helm.uninstall(RELEASE)
    left = set()
    for document in release.every():
        kind = server.api.registry.by_kind(document["apiVersion"], document["kind"])
        assert kind is not None
        stored = server.api.store.get(kind.storage, document["metadata"].get("namespace", ""), document["metadata"]["name"])
        if stored is not None:
            left.add((document["kind"], document["metadata"]["name"]))
    definitions = {"inferencepools.fairlead.dev", "inferencepoolroles.fairlead.dev"}
    assert left == {("CustomResourceDefinition", name) for name in definitions}
    assert server.api.store.list("secrets", NAMESPACE) == []


def test_migrations_come_before_anything_of_a_newer_version(helm: Helm, client: KubernetesClient, former_chart: Path) -> None:
    images: list[str] = []

    def complete() -> str:
        images.append(image(client) if client.session.get(f"{client.server}{ROUTERS}", timeout=60).ok else "none")
        return "Complete"

    with controllers(client, complete) as jobs:
        helm.install(RELEASE, EVERYTHING, former_chart, create_namespace=True, server_side_apply=True)
        helm.upgrade(RELEASE, EVERYTHING)
    assert images == ["none", "fairlead/router:0.0.9"]
    assert len(jobs) == 2
    assert not client.session.get(client.server + JOB, timeout=60).ok, "a Job that succeeded is deleted"


def test_when_migrations_fail_the_release_goes_back_to_what_it_was(helm: Helm, client: KubernetesClient, former_chart: Path) -> None:
    outcomes = iter(["Complete", "Failed", "Complete"])
    with controllers(client, lambda: next(outcomes)):
        helm.install(RELEASE, EVERYTHING, former_chart, create_namespace=True, server_side_apply=True)
        with pytest.raises(HelmRefused, match=r"fairlead-migrations not ready. status: Failed"):
            helm.upgrade(RELEASE, merged(EVERYTHING, {"router": {"replicas": 5}}), rollback_on_failure=True, timeout=60)
    assert client.call("GET", ROUTERS)["spec"]["replicas"] == 2
    assert image(client) == "fairlead/router:0.0.9"
    assert [status(client, version) for version in (1, 2, 3)] == ["superseded", "failed", "deployed"]


def test_the_routers_volumes_cannot_be_changed_in_place_and_helm_says_so(helm: Helm, client: KubernetesClient) -> None:
    """As a cluster does: docs/install.md says what to do instead."""
    helm.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    with pytest.raises(HelmRefused, match="updates to statefulset spec for fields other than"):
        helm.upgrade(RELEASE, merged(BUNDLED, {"router": {"spool": {"persistent": True}}}))
    headers = {"Content-Type": "application/json"}
    body = {"propagationPolicy": "Orphan"}
    client.session.delete(f"{client.server}{ROUTERS}", json=body, headers=headers, timeout=60).raise_for_status()
    helm.upgrade(RELEASE, merged(BUNDLED, {"router": {"spool": {"persistent": True}}}))
    assert client.call("GET", ROUTERS)["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "spool"


def test_a_second_release_in_another_namespace_shares_the_definitions(helm: Helm, server: RunningServer, client: KubernetesClient) -> None:
    helm.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    other = Helm(server.kubeconfig, "second")
    with pytest.raises(HelmRefused, match="invalid ownership metadata"):
        other.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    limited = merged(BUNDLED, {"crds": {"install": False}, "operator": {"watchNamespaces": ["second"]}})
    other.install("limited", limited, create_namespace=True, server_side_apply=True)
    assert client.call("GET", "/apis/apps/v1/namespaces/second/deployments/limited-fairlead-operator")["spec"]["replicas"] == 2
    other.uninstall("limited")
