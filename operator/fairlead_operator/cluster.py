"""The few Kubernetes calls the operator makes, as a Protocol, and their implementation over HTTP."""

from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, cast

import msgspec

from fairlead import pool_roles
from fairlead.gateway_specs import GATEWAY_GROUP, GATEWAY_PLURAL, GATEWAY_VERSION
from fairlead.pools import GROUP, PLURAL, VERSION
from fairlead_process.kubernetes_api import APPLY_PATCH, MERGE_PATCH, ClusterError, ClusterRefused, ClusterUnavailable, KubernetesApi

__all__ = ["Cluster", "ClusterError", "ClusterRefused", "ClusterUnavailable", "HttpCluster", "PodParts", "Resource"]

FIELD_MANAGER = "fairlead-operator"

_WRITE_SECONDS = 35.0
"""Time limit of a write, in seconds. It is long, because an admission webhook may take 30 s before the server reports
its failure.
"""


class Resource(Enum):
    """A kind of object that the operator reads or writes: path prefix and plural."""

    POOLS = (f"/apis/{GROUP}/{VERSION}", PLURAL)
    ROLES = (f"/apis/{GROUP}/{VERSION}", pool_roles.PLURAL)
    PODS = ("/api/v1", "pods")
    NODES = ("/api/v1", "nodes")
    SERVICES = ("/api/v1", "services")
    BUDGETS = ("/apis/policy/v1", "poddisruptionbudgets")
    REVISIONS = ("/apis/apps/v1", "controllerrevisions")
    LEASES = ("/apis/coordination.k8s.io/v1", "leases")
    DEPLOYMENTS = ("/apis/apps/v1", "deployments")
    STATEFUL_SETS = ("/apis/apps/v1", "statefulsets")
    LEADER_WORKER_SETS = ("/apis/leaderworkerset.x-k8s.io/v1", "leaderworkersets")
    QUEUED_WORKLOADS = ("/apis/kueue.x-k8s.io/v1beta2", "workloads")
    FORMER_QUEUED_WORKLOADS = ("/apis/kueue.x-k8s.io/v1beta1", "workloads")
    AUTOSCALERS = ("/apis/autoscaling/v2", "horizontalpodautoscalers")
    GATEWAY_POOLS = (f"/apis/{GATEWAY_GROUP}/{GATEWAY_VERSION}", GATEWAY_PLURAL)
    OBJECTIVES = ("/apis/llm-d.ai/v1alpha2", "inferenceobjectives")
    FORMER_OBJECTIVES = ("/apis/inference.networking.x-k8s.io/v1alpha2", "inferenceobjectives")
    ENDPOINT_SLICES = ("/apis/discovery.k8s.io/v1", "endpointslices")

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the URL path of one object, or of the namespace's list. Nodes have no namespace."""
        prefix, plural = self.value
        place = ("namespaces", namespace) if self is not Resource.NODES else ()
        return "/".join(part for part in (prefix, *place, plural, name, subresource) if part)


class Cluster(Protocol):
    """The operator's calls to the Kubernetes API. Objects are plain JSON documents. Every method
    raises ClusterError.
    """

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        """Return the present object, or its `subresource`; None if the object does not exist."""

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return all objects with these labels (all objects for an empty selector), read consistently (never from a
        cache). For pods only `PodParts` are returned.
        """

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Create the object; return it as the server stores it, which admission webhooks may have changed. None if an
        object of that name exists.
        """

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        """Apply a merge patch; return False if the object does not exist.

        The patch is refused if its body has another `resourceVersion` (409) or another `uid` (422) than the object.
        """

    async def apply(self, resource: Resource, namespace: str, body: dict[str, Any], *, force: bool) -> dict[str, Any]:
        """Apply an object by server-side apply, which also creates it; return the object afterwards.

        The call is refused (409) if the body has another `resourceVersion` or `uid` than the object. Without `force`,
        it is also refused if another manager set one of the fields to another value.
        """

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        """Delete an object in the background with the usual grace period; return False if the object does not exist."""


class _Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class _Container(TypedDict, total=False):
    name: Any
    ports: Any
    readinessProbe: Any
    startupProbe: Any
    livenessProbe: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    resourceClaims: Any
    containers: list[_Container]


class PodParts(TypedDict, total=False):
    """The parts of a pod that `find` returns; all members are optional."""

    metadata: _Metadata
    spec: _PodSpec
    status: Any


class _Pods(TypedDict):
    items: list[PodParts]


_READ_PARTS = MappingProxyType({Resource.PODS: cast("msgspec.json.Decoder[dict[str, Any]]", msgspec.json.Decoder(_Pods))})
"""By resource, a decoder of the fields that the operator reads from a long list. Without most of the specs and
managedFields, reading 50 pods takes a thirteenth of the CPU time.
"""

_WHOLE = msgspec.json.Decoder(dict[str, Any])


class HttpCluster:
    """`Cluster` over HTTP. Make it with `connect`, end it with `close`."""

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> "HttpCluster":
        """Connect with a kubeconfig file or, if `kubeconfig` is None, with the pod's service account. Raises
        ClusterUnavailable if the file or the service account cannot be used.
        """
        return cls(await KubernetesApi.connect(kubeconfig, write_seconds=_WRITE_SECONDS))

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def serves_pools(self) -> bool:
        """Return whether the server responds and knows Fairlead's resources. Raises ClusterError."""
        found = await self._api.call("GET", f"/apis/{GROUP}/{VERSION}", absent=404) or {}
        return {PLURAL, pool_roles.PLURAL} <= {resource.get("name") for resource in found.get("resources") or ()}

    async def may_list_definitions(self) -> bool:
        """Return whether this operator has the right to watch which resources appear and disappear. Raises
        ClusterUnavailable.
        """
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        return await self._api.call("GET", path, query=[("limit", "1")], absent=403) is not None

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        return await self._api.call("GET", resource.path(namespace, name, subresource), absent=404)

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        decoder = _READ_PARTS.get(resource, _WHOLE)
        answer = await self._api.call("GET", resource.path(namespace), query=[("labelSelector", selector)], decoder=decoder)
        items: list[dict[str, Any]] = (answer or {}).get("items") or []
        return items

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")]  # a typo in a pod template is told, not dropped
        try:
            return await self._api.call("POST", resource.path(namespace), body=body, query=query)
        except ClusterRefused as refused:
            if refused.reason != "AlreadyExists":  # a quota that another creation changes at this moment is a 409 too
                raise
            return None

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        query = [("fieldManager", FIELD_MANAGER)]
        path = resource.path(namespace, name, subresource)
        return await self._api.call("PATCH", path, body=body, query=query, content=MERGE_PATCH, absent=404) is not None

    async def apply(self, resource: Resource, namespace: str, body: dict[str, Any], *, force: bool) -> dict[str, Any]:
        query = [("fieldManager", FIELD_MANAGER), ("force", "true" if force else "false")]
        path = resource.path(namespace, body["metadata"]["name"])
        return await self._api.call("PATCH", path, body=body, query=query, content=APPLY_PATCH) or {}

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return await self._api.call("DELETE", resource.path(namespace, name), body=body, absent=404) is not None
