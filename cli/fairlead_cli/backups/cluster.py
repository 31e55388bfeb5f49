"""The part of a backup from the cluster: pools, the replica counts of roles, and the Secrets that the chart made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairlead.errors import FairleadError
from fairlead_process.kubernetes_api import ClusterError, ClusterRefused, KubernetesApi

_OURS = "/apis/fairlead.dev/v1alpha1"
_SECRETS = "app.kubernetes.io/part-of=fairlead,app.kubernetes.io/component in (api,router)"
"""The label selector of the Secrets that the chart made and a backup contains. The password of the chart's Postgres is
left out, because the backup is restored into another database.
"""
_OF_THE_CLUSTER = (
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "managedFields",
    "finalizers",
    "ownerReferences",
    "selfLink",
)

Document = dict[str, Any]


class ClusterFailed(FairleadError):
    """The cluster does not respond, or refuses a request that a backup needs."""


class Cluster:
    """A connection to the Kubernetes API. Every method raises ClusterUnavailable or ClusterRefused."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    async def pools(self) -> list[Document]:
        """Return all InferencePools, as manifests without the fields that the cluster adds."""
        return [_as_written(one) for one in await self._list("inferencepools")]

    async def roles(self) -> list[Document]:
        """Return each InferencePoolRole that has a number of replicas: its namespace, its name and the number."""
        return [
            {"namespace": one["metadata"]["namespace"], "name": one["metadata"]["name"], "replicas": one["spec"]["replicas"]}
            for one in await self._list("inferencepoolroles")
            if "replicas" in one.get("spec", {})
        ]

    async def secrets(self, namespace: str) -> list[Document]:
        """Return the Secrets that the chart made in the namespace, for any name of its release."""
        found = await self._api.call("GET", f"/api/v1/namespaces/{namespace}/secrets", query=[("labelSelector", _SECRETS)])
        return [_as_written({**one, "apiVersion": "v1", "kind": "Secret"}) for one in (found or {}).get("items") or ()]

    async def make(self, wanted: Document) -> str:
        """Create an object if it does not exist; return a line about the result."""
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        what = f"{wanted['kind']} {namespace}/{name}"
        folder = "/api/v1" if wanted["kind"] == "Secret" else _OURS
        try:
            await self._api.call("POST", f"{folder}/namespaces/{namespace}/{wanted['kind'].lower()}s", body=wanted)
        except ClusterRefused as refused:
            if refused.reason != "AlreadyExists":
                raise
            return f"{what}: exists there already, and is left unchanged"
        return f"{what}: made"

    async def _list(self, kind: str) -> list[Document]:
        document = await self._api.call("GET", f"{_OURS}/{kind}")
        return [] if document is None else [*document["items"]]


@asynccontextmanager
async def cluster(kubeconfig: str) -> AsyncIterator[Cluster]:
    """Yield a connection to the cluster. Raises ClusterFailed for each ClusterError."""
    try:
        api = await KubernetesApi.connect(kubeconfig)
        try:
            yield Cluster(api)
        finally:
            await api.close()
    except ClusterError as error:
        raise ClusterFailed(f"--kubeconfig: {error}") from error


def _as_written(found: Document) -> Document:
    kind = {"apiVersion": found.get("apiVersion", "fairlead.dev/v1alpha1"), "kind": found.get("kind", "InferencePool")}
    metadata = {name: value for name, value in found["metadata"].items() if name not in _OF_THE_CLUSTER}
    return kind | {name: value for name, value in found.items() if name not in {"status", "metadata"}} | {"metadata": metadata}
