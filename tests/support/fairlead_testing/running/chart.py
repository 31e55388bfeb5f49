"""The chart, rendered by Helm, and its RBAC rights in a Kubernetes API."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead_testing.running.helm import Document, Helm, HelmRefused, Release, stored_release
from fairlead_testing.running.kubernetes_api import service_account_kubeconfig
from fairlead_testing.running.operator_process import DEFINITIONS, KUBECONFIG_VARIABLE, POOLS, ROLES, ROOT, eventually
from fairlead_testing.running.recording_proxy import Right
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.chart_values import EXTERNAL, FOREIGN_DEFINITIONS
from processkube.testing.clients import KubernetesClient
from processkube.testing.serving import serving

Render = Callable[[Document], Release]

RELEASE = "test"
"""The name of the rendered release; the chart's objects are called `test-fairlead-…`."""
RIGHTS = "rights"
"""The name of a release that is rendered only for its RBAC rights.

It differs from `RELEASE` because these rights are applied while other tests of the same cluster render the chart, and
Helm refuses to render objects that exist already.
"""

_RENDERER = "fairlead-tests-renderer"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def is_there(client: KubernetesClient, path: str) -> bool:
    """Return whether the cluster answers a GET of this path with success."""
    return client.session.get(client.server + path, timeout=PATIENCE_SECONDS).ok


def remove(client: KubernetesClient, path: str) -> None:
    """Delete an object, if it exists, and wait until it is gone."""
    client.session.delete(client.server + path, timeout=PATIENCE_SECONDS)
    eventually(lambda: not is_there(client, path), f"{path} is gone")


def place_of(client: KubernetesClient, document: Document) -> str:
    """Return the path of the document's object, from the resources that the cluster says it serves."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (found,) = (one for one in client.call("GET", root)["resources"] if one["kind"] == kind and "/" not in one["name"])
    within = f"/namespaces/{document['metadata']['namespace']}" if found["namespaced"] else ""
    return f"{root}{within}/{found['name']}"


@contextmanager
def renderer(kubeconfig: Path, folder: Path, namespace: str, release: str = RELEASE) -> Iterator[Render]:
    """Yield a function that renders the chart with Helm in a namespace. A namespace that does not exist is made for the
    block.

    Helm's library cannot render without installing. So this is an installation by an account that may create nothing
    but the Secret in which Helm stores the rendered chart. The API refuses the first object, and no other object is
    created.
    """
    client = KubernetesClient.of(str(kubeconfig))
    made: list[str] = []

    def make(parent: str, name: str, **rest: Any) -> None:
        client.call("POST", parent, {"metadata": {"name": name}, **rest})
        made.append(f"{parent}/{name}")

    def rendered(values: Document) -> Release:
        try:
            helm.install(release, values, server_side_apply=True)
        except HelmRefused as refusal:
            stored = stored_release(client, namespace, release, 1)
            if stored is None or "is forbidden" not in str(refusal):
                raise
            client.call("DELETE", f"/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{release}.v1")
            return stored
        pytest.fail("the account that renders could create objects")

    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]},
    ]
    subject = {"kind": "ServiceAccount", "name": _RENDERER, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _RENDERER}
    try:
        if not is_there(client, f"/api/v1/namespaces/{namespace}"):
            make("/api/v1/namespaces", namespace)
        make(f"/api/v1/namespaces/{namespace}/serviceaccounts", _RENDERER)
        make(f"{_RBAC}/clusterroles", _RENDERER, rules=rules)
        make(f"{_RBAC}/clusterrolebindings", _RENDERER, roleRef=reference, subjects=[subject])
        helm = Helm(service_account_kubeconfig(kubeconfig, namespace, _RENDERER, folder), namespace)
        yield rendered
    finally:
        for path in reversed(made):
            remove(client, path)


@contextmanager
def cluster_for_charts(folder: Path) -> Iterator[Path]:
    """Yield the kubeconfig of a Kubernetes API that has the foreign CRDs for which the chart can create objects.

    It is the sandbox's API, or the cluster that the environment names. Definitions that were added to that cluster are
    removed afterwards.
    """
    if given := os.environ.get(KUBECONFIG_VARIABLE):
        with _foreign_definitions(KubernetesClient.of(given)):
            yield Path(given)
    else:
        with _own_cluster_for_charts(folder) as kubeconfig:
            yield kubeconfig


@contextmanager
def _own_cluster_for_charts(folder: Path) -> Iterator[Path]:
    with serving(folder) as server, _foreign_definitions(KubernetesClient.of(str(server.kubeconfig))):
        yield server.kubeconfig


@contextmanager
def _foreign_definitions(client: KubernetesClient) -> Iterator[None]:
    missing = [one for one in FOREIGN_DEFINITIONS if not is_there(client, f"{DEFINITIONS}/{one['metadata']['name']}")]
    try:
        for definition in missing:
            client.call("POST", DEFINITIONS, definition)
        for definition in missing:
            spec = definition["spec"]
            served = f"/apis/{spec['group']}/v1/{spec['names']['plural']}"
            eventually(lambda served=served: is_there(client, served), "the definition is served")  # type: ignore[misc]
        yield
    finally:
        for definition in missing:
            remove(client, f"{DEFINITIONS}/{definition['metadata']['name']}")


@contextmanager
def without_our_definitions(client: KubernetesClient) -> Iterator[None]:
    """Remove Fairlead's CRDs from the cluster for the block, because Helm installs them. Afterwards the former ones are
    back.

    Skips the test if the cluster has objects of these kinds, because they would be deleted with the CRDs.
    """
    ours = [f"{DEFINITIONS}/{file.stem}" for file in sorted((ROOT / "crds").glob("*.yaml"))]
    found = [client.call("GET", path) for path in ours if is_there(client, path)]
    for definition in found:
        plural = definition["spec"]["names"]["plural"]
        if client.call("GET", f"/apis/fairlead.dev/v1alpha1/{plural}")["items"]:
            pytest.skip(f"the cluster has {plural}, which would go with the definitions that Helm must bring: delete them first")
    for path in ours:
        remove(client, path)
    try:
        yield
    finally:
        for path in ours:
            remove(client, path)
        for definition in found:
            kept = {key: value for key, value in definition["metadata"].items() if key in {"name", "labels", "annotations"}}
            client.call("POST", DEFINITIONS, {**definition, "metadata": kept, "status": None})
        if found:
            for served in (POOLS, ROLES):
                eventually(lambda path=served: is_there(client, path), "the definitions are back")  # type: ignore[misc]


def rights_of(process: str, folder: Path, namespace: str = "default", values: Document = EXTERNAL) -> list[Document]:
    """Return ServiceAccount, roles and bindings of a process, as the chart renders them for a namespace."""
    with _own_cluster_for_charts(folder / "rendering") as kubeconfig, renderer(kubeconfig, folder, namespace, RIGHTS) as render:
        release = render(values)
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    name = f"{RIGHTS}-fairlead-{process}"
    return [one for one in release.every() if one["kind"] in kinds and one["metadata"]["name"].startswith(name)]


def granted(rights: list[Document]) -> set[Right]:
    """Return all rights that the roles among these documents grant."""
    rules = [rule for document in rights if document["kind"] in {"Role", "ClusterRole"} for rule in document["rules"]]
    return {
        (group, resource, verb) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]
    }


@contextmanager
def applied_rights(client: KubernetesClient, rights: list[Document]) -> Iterator[None]:
    """Server-side apply these rights to a cluster, and delete them after the block."""
    paths = []
    for document in rights:
        metadata = document["metadata"]
        root = "/api/v1" if document["kind"] == "ServiceAccount" else _RBAC
        within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        paths.append(f"{root}{within}/{document['kind'].lower()}s/{metadata['name']}")
    try:
        for path, document in zip(paths, rights, strict=True):
            client.call("PATCH", f"{path}?fieldManager=fairlead-tests&force=true", document, content="application/apply-patch+yaml")
        yield
    finally:
        for path in paths:
            remove(client, path)
