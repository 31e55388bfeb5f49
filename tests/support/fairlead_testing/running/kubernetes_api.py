"""Kubeconfigs of service accounts of any Kubernetes API."""

from pathlib import Path

import yaml

from processkube.testing.clients import KubernetesClient


def service_account_kubeconfig(admin: str | Path, namespace: str, account: str, folder: Path) -> Path:
    """Return a kubeconfig of this service account, with a token that the API issues for an hour."""
    document = yaml.safe_load(Path(admin).read_text(encoding="utf-8"))
    client = KubernetesClient.of(str(admin))
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    issued = client.call("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    document["users"][0]["user"] = {"token": issued["status"]["token"]}
    kubeconfig = folder / f"kubeconfig-{namespace}-{account}"
    kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
    return kubeconfig
