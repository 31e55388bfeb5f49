"""The chart, rendered by Helm, and its rights in a Kubernetes API."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead_sandbox.kubernetes_api.serving.server import RunningServer
from fairlead_testing.running.helm import Document, Helm, HelmRefused, Release, stored_release
from fairlead_testing.running.kubernetes_api import service_account_kubeconfig, serving
from fairlead_testing.worlds.chart_values import EXTERNAL, FOREIGN_DEFINITIONS
from fairlead_testing.worlds.pod_phases import KubernetesClient

Render = Callable[[Document], Release]

RELEASE = "test"
"""Name of what is rendered; the chart makes `test-fairlead-…` of it."""

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def renderer(server: RunningServer, folder: Path, namespace: str) -> Render:
    """What Helm renders for values in a namespace, which is made if need be.

    Helm's library cannot only render. So this is an installation by an account that may create nothing but the Secret
    in which Helm stores what it rendered: the first object is refused, and nothing comes to be.
    """
    client = KubernetesClient.of(str(server.kubeconfig))
    if not client.session.get(f"{client.server}/api/v1/namespaces/{namespace}", timeout=60).ok:
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    client.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "renderer"}})
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]},
    ]
    client.call("POST", f"{_RBAC}/clusterroles", {"metadata": {"name": "renderer"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "renderer", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "renderer"}
    client.call("POST", f"{_RBAC}/clusterrolebindings", {"metadata": {"name": "renderer"}, "roleRef": reference, "subjects": [subject]})
    helm = Helm(service_account_kubeconfig(server.kubeconfig, namespace, "renderer", folder), namespace)

    def rendered(values: Document) -> Release:
        try:
            helm.install(RELEASE, values, server_side_apply=True)
        except HelmRefused as refusal:
            release = stored_release(client, namespace, RELEASE, 1)
            if release is None or "is forbidden" not in str(refusal):
                raise
            client.call("DELETE", f"/api/v1/namespaces/{namespace}/secrets/sh.helm.release.v1.{RELEASE}.v1")
            return release
        pytest.fail("the account that renders could create objects")

    return rendered


@contextmanager
def cluster_for_charts(folder: Path) -> Iterator[RunningServer]:
    """A Kubernetes API that knows the definitions of others whose objects the chart can make."""
    with serving(folder) as server:
        client = KubernetesClient.of(str(server.kubeconfig))
        for definition in FOREIGN_DEFINITIONS:
            client.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        yield server


def rights_of(process: str, folder: Path, namespace: str = "default", values: Document = EXTERNAL) -> list[Document]:
    """ServiceAccount, roles and bindings of a process, as the chart has them in a namespace."""
    with cluster_for_charts(folder / "rendering") as server:
        release = renderer(server, folder, namespace)(values)
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    name = f"{RELEASE}-fairlead-{process}"
    return [one for one in release.every() if one["kind"] in kinds and one["metadata"]["name"].startswith(name)]


def apply_rights(client: KubernetesClient, rights: list[Document]) -> None:
    """Server-side apply them to a cluster."""
    for document in rights:
        metadata = document["metadata"]
        root = "/api/v1" if document["kind"] == "ServiceAccount" else _RBAC
        within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        path = f"{root}{within}/{document['kind'].lower()}s/{metadata['name']}?fieldManager=fairlead-tests&force=true"
        client.call("PATCH", path, document, content="application/apply-patch+yaml")
