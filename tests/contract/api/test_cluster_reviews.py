"""Logging in with tokens of the cluster: the control API before the sandbox's Kubernetes API, with RBAC."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_api.access.cluster_rights import ClusterRights, KubernetesReviews
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_client.resources.access import AccessRole
from fairlead_testing.running.operator_process import running_kubernetes_api
from processkube.testing.clients import KubernetesClient

RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = {
    "viewer": [{"apiGroups": ["fairlead.dev"], "resources": ["inferencepools"], "verbs": ["get", "list", "watch"]}],
    "operator": [
        {"apiGroups": ["fairlead.dev"], "resources": ["inferencepools"], "verbs": ["get", "list"]},
        {"apiGroups": ["fairlead.dev"], "resources": ["inferencepools/scale"], "verbs": ["patch"]},
    ],
    "admin": [{"apiGroups": ["fairlead.dev"], "resources": ["*"], "verbs": ["*"]}],
}


@dataclass
class Cluster:
    kubeconfig: str
    client: KubernetesClient

    def token_of(self, name: str) -> str:
        """Return the token of a new service account of the namespace default."""
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        self.client.call("POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        issued: dict[str, Any] = self.client.call("POST", f"{accounts}/{name}/token", asked)
        return str(issued["status"]["token"])

    def bind(self, name: str, role: str, namespace: str | None) -> None:
        """Give a service account a role in a namespace; None = in all of them."""
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        self._create("clusterroles", None, {"metadata": {"name": f"{name}-{role}"}, "rules": RULES[role]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{name}-{role}"}
        kind = "clusterrolebindings" if namespace is None else "rolebindings"
        self._create(kind, namespace, {"metadata": {"name": f"{name}-{role}"}, "roleRef": reference, "subjects": [subject]})

    def _create(self, plural: str, namespace: str | None, body: dict[str, Any]) -> None:
        kinds = {"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding", "rolebindings": "RoleBinding"}
        place = RBAC if namespace is None else f"{RBAC}/namespaces/{namespace}"
        self.client.call("POST", f"{place}/{plural}", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kinds[plural], **body})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as path:
        yield Cluster(kubeconfig=path, client=KubernetesClient.of(path))


async def granted(cluster: Cluster, token: str) -> tuple[str, AccessRole, dict[str, AccessRole]]:
    """Return the account to which the token belongs, and its roles."""

    async def namespaces() -> list[str]:
        return ["default", "kube-system"]

    gateway = KubernetesCluster(cluster.kubeconfig)
    try:
        rights = ClusterRights(KubernetesReviews(gateway, None), namespaces)
        user = await rights.user_of(token)
        assert user is not None
        found = await rights.of(user, datetime.now(UTC))
        return user.name, found.role, found.namespaces
    finally:
        await gateway.close()


@pytest.mark.parametrize(
    ("role", "namespace", "everywhere", "single"),
    [
        (None, None, AccessRole.NONE, {}),
        ("viewer", None, AccessRole.VIEWER, {}),
        ("operator", None, AccessRole.OPERATOR, {}),
        ("admin", None, AccessRole.ADMIN, {}),
        ("viewer", "default", AccessRole.NONE, {"default": AccessRole.VIEWER}),
        ("operator", "default", AccessRole.NONE, {"default": AccessRole.OPERATOR}),
        ("admin", "default", AccessRole.NONE, {"default": AccessRole.ADMIN}),
    ],
)
async def test_the_clusters_rbac_decides_the_role(
    cluster: Cluster, role: str | None, namespace: str | None, everywhere: AccessRole, single: dict[str, AccessRole]
) -> None:
    name = f"{role}-{namespace}".lower()
    token = cluster.token_of(name)
    if role is not None:
        cluster.bind(name, role, namespace)
    assert await granted(cluster, token) == (f"system:serviceaccount:default:{name}", everywhere, single)


async def test_a_token_that_the_cluster_does_not_know_is_nobodys(cluster: Cluster) -> None:
    gateway = KubernetesCluster(cluster.kubeconfig)
    assert await KubernetesReviews(gateway, None).user_of("no-such-token") is None
    await gateway.close()
