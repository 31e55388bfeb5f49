"""A release's whole life by Helm, in a Kubernetes API: installed, upgraded, rolled back, uninstalled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml

from fairlead_testing.running.chart import is_there, place_of, remove
from fairlead_testing.running.helm import CHART, Helm, HelmRefused, stored_release
from fairlead_testing.running.operator_process import DEFINITIONS, eventually, skip_where_kubelets_run
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.chart_values import BUNDLED, EVERYTHING, merged
from processkube.testing.clients import KubernetesClient
from processkube.testing.workloads import WorkloadNamespace

NAMESPACE = "fairlead-releases-tests"
SECOND = f"{NAMESPACE}-second"
NUMBER = "123"
RELEASE = "fairlead"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/fairlead-migrations"
POOLS = f"/apis/fairlead.dev/v1alpha1/namespaces/{NAMESPACE}/inferencepools"
ROUTERS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/fairlead-router"
TOKENS = f"/api/v1/namespaces/{NAMESPACE}/secrets/fairlead-tokens"

Outcome = Callable[[], str]
"""The end of the pods of the next Job of migrations: `Succeeded` or `Failed`."""


@contextmanager
def kubelet(client: KubernetesClient, outcome: Outcome) -> Iterator[list[str]]:
    """Play the kubelet of the release's pods: they start, but pods of a Job of migrations end.

    Yields the uids of the Jobs with such pods.
    """
    ending, outcomes = threading.Event(), dict[str, str]()
    seen: list[str] = []
    session = requests.Session()  # of its own, as it is used on another thread
    session.trust_env, session.verify = False, client.session.verify
    session.headers.update(client.session.headers)
    pods = WorkloadNamespace(KubernetesClient(client.server, session), NAMESPACE)

    def run() -> None:
        while not ending.wait(0.05):
            for pod in pods.pods():
                uid = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/controller-uid")
                if uid is not None and uid not in outcomes:
                    seen.append(uid)
                    outcomes[uid] = outcome()
                if uid is not None:
                    pods.frozen.add(pod["metadata"]["name"])
                    if pod["status"]["phase"] != outcomes[uid]:
                        _end(pods, pod["metadata"]["name"], outcomes[uid])
            pods.start_pods()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ending.set()
        thread.join()


def _end(pods: WorkloadNamespace, name: str, phase: str) -> None:
    """Say that a pod ended long ago, so that its Job does not pause before the next one."""
    ended = {"exitCode": int(phase == "Failed"), "finishedAt": "2026-01-01T00:00:00Z"}
    container = {"name": "migrations", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    headers = {"Content-Type": "application/merge-patch+json"}
    body = {"status": {"phase": phase, "containerStatuses": [container]}}
    pods.client.session.patch(pods.client.server + pods.path("pods", name, "status"), json=body, headers=headers, timeout=PATIENCE_SECONDS)


@pytest.fixture
def helm(bare: None, kubeconfig: Path, client: KubernetesClient) -> Iterator[Helm]:
    """Yield Helm in a namespace of its own, uninstalled afterwards with all objects that Helm keeps."""
    skip_where_kubelets_run(client)
    helm = Helm(kubeconfig, NAMESPACE)
    yield helm
    for namespace in (SECOND, NUMBER, NAMESPACE):
        in_it = Helm(kubeconfig, namespace)
        for release in in_it.releases():
            in_it.uninstall(release["name"])
        remove(client, f"/api/v1/namespaces/{namespace}")
    for name in ("inferencepools.fairlead.dev", "inferencepoolroles.fairlead.dev"):
        remove(client, f"{DEFINITIONS}/{name}")


@pytest.fixture
def former_chart(tmp_path: Path) -> Path:
    """Return the chart of an earlier version: its CRD lacks a field, and its routers have another command."""
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
    definition = client.call("GET", f"{DEFINITIONS}/inferencepools.fairlead.dev")
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
    eventually(lambda: is_there(client, POOLS), "the definition is served")
    client.call("POST", POOLS, pool)

    helm.upgrade(RELEASE, BUNDLED)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
    assert (image(client), knows_drains(client)) == (f"fairlead/router:{version}", True)
    assert client.call("GET", TOKENS)["data"] == tokens
    assert (status(client, 1), status(client, 2)) == ("superseded", "deployed")

    helm.uninstall(RELEASE)
    assert [one["metadata"]["name"] for one in client.call("GET", POOLS)["items"]] == ["kept"], "pools outlive the release"
    client.call("DELETE", f"{POOLS}/kept")


def test_uninstalling_leaves_nothing_but_the_definitions(helm: Helm, client: KubernetesClient) -> None:
    with kubelet(client, lambda: "Succeeded"):
        helm.install(RELEASE, EVERYTHING, create_namespace=True, server_side_apply=True, wait=True, timeout=int(PATIENCE_SECONDS))
    release = stored_release(client, NAMESPACE, RELEASE, 1)
    assert release is not None
    helm.uninstall(RELEASE)
    left = set()
    for document in release.every():
        if is_there(client, f"{place_of(client, document)}/{document['metadata']['name']}"):
            left.add((document["kind"], document["metadata"]["name"]))
    definitions = {"inferencepools.fairlead.dev", "inferencepoolroles.fairlead.dev"}
    assert left == {("CustomResourceDefinition", name) for name in definitions}
    assert client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"] == []


def test_the_bundled_database_opens_to_a_later_release_of_the_same_name(helm: Helm, client: KubernetesClient) -> None:
    """Its volume stays, with the password of the first release."""
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/fairlead-postgres"
    helm.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    password = client.call("GET", secret)["data"]
    helm.uninstall(RELEASE)
    left = [one["metadata"]["name"] for one in client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]]
    assert left == ["fairlead-postgres"]
    helm.install(RELEASE, BUNDLED, server_side_apply=True)
    assert client.call("GET", secret)["data"] == password
    helm.uninstall(RELEASE)
    client.call("DELETE", secret)
    helm.install(RELEASE, merged(BUNDLED, {"database": {"bundled": {"storage": {"size": ""}}}}), server_side_apply=True)
    helm.uninstall(RELEASE)
    assert not is_there(client, secret), "without a volume there is nothing to open"


@pytest.mark.parametrize("name", ["9fair", "a.b"])
def test_a_release_whose_objects_could_not_be_named_after_it_is_refused_with_what_helps(name: str, helm: Helm) -> None:
    with pytest.raises(HelmRefused, match="set fullnameOverride to a name that begins with a letter"):
        helm.install(name, BUNDLED, create_namespace=True, server_side_apply=True)
    helm.install(name, merged(BUNDLED, {"fullnameOverride": "fairlead"}), create_namespace=True, server_side_apply=True)


def test_release_and_namespace_may_be_called_by_a_number(helm: Helm, kubeconfig: Path, client: KubernetesClient) -> None:
    values = merged(BUNDLED, {"fullnameOverride": "fairlead", "operator": {"watchNamespaces": [NUMBER]}})
    Helm(kubeconfig, NUMBER).install(NUMBER, values, create_namespace=True, server_side_apply=True)
    metadata = client.call("GET", f"/apis/apps/v1/namespaces/{NUMBER}/statefulsets/fairlead-router")["metadata"]
    assert metadata["labels"]["app.kubernetes.io/instance"] == NUMBER


def test_clients_keep_their_key_when_it_is_not_asked_for_meanwhile_or_has_another_name(helm: Helm, client: KubernetesClient) -> None:
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/fairlead-gateway-keys"
    helm.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    key = client.call("GET", secret)["data"]["keys"]
    helm.upgrade(RELEASE, merged(BUNDLED, {"gatewayKeys": {"required": False}}))
    assert client.call("GET", secret)["data"] == {"keys": key}
    helm.upgrade(RELEASE, merged(BUNDLED, {"gatewayKeys": {"key": "clients"}}))
    assert client.call("GET", secret)["data"] == {"clients": key}


def test_migrations_come_before_anything_of_a_newer_version(helm: Helm, client: KubernetesClient, former_chart: Path) -> None:
    images: list[str] = []

    def complete() -> str:
        images.append(image(client) if is_there(client, ROUTERS) else "none")
        return "Succeeded"

    with kubelet(client, complete) as jobs:
        helm.install(RELEASE, EVERYTHING, former_chart, create_namespace=True, server_side_apply=True)
        helm.upgrade(RELEASE, EVERYTHING)
    assert images == ["none", "fairlead/router:0.0.9"]
    assert len(jobs) == 2
    assert not is_there(client, JOB), "a Job that succeeded is deleted"


def test_when_migrations_fail_the_release_goes_back_to_what_it_was(helm: Helm, client: KubernetesClient, former_chart: Path) -> None:
    outcomes = iter(["Succeeded", "Failed", "Succeeded"])
    with kubelet(client, lambda: next(outcomes)):
        helm.install(RELEASE, EVERYTHING, former_chart, create_namespace=True, server_side_apply=True)
        with pytest.raises(HelmRefused, match=r"fairlead-migrations not ready. status: Failed"):
            helm.upgrade(RELEASE, merged(EVERYTHING, {"router": {"replicas": 5}}), rollback_on_failure=True, timeout=int(PATIENCE_SECONDS))
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
    client.session.delete(f"{client.server}{ROUTERS}", json=body, headers=headers, timeout=PATIENCE_SECONDS).raise_for_status()
    eventually(lambda: not is_there(client, ROUTERS), "the pods are on their own")
    helm.upgrade(RELEASE, merged(BUNDLED, {"router": {"spool": {"persistent": True}}}))
    assert client.call("GET", ROUTERS)["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "spool"


def test_a_second_release_in_another_namespace_shares_the_definitions(helm: Helm, kubeconfig: Path, client: KubernetesClient) -> None:
    helm.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    other = Helm(kubeconfig, SECOND)
    with pytest.raises(HelmRefused, match="invalid ownership metadata"):
        other.install(RELEASE, BUNDLED, create_namespace=True, server_side_apply=True)
    limited = merged(BUNDLED, {"crds": {"install": False}, "operator": {"watchNamespaces": [SECOND]}})
    other.install("limited", limited, create_namespace=True, server_side_apply=True)
    assert client.call("GET", f"/apis/apps/v1/namespaces/{SECOND}/deployments/limited-fairlead-operator")["spec"]["replicas"] == 2
