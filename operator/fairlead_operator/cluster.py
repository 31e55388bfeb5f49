"""The few Kubernetes calls the operator makes, as a Protocol, and their implementation on the official asyncio client."""

import json
from enum import Enum
from typing import Any, Protocol

import aiohttp
from kubernetes.aio import client, config

from fairlead.pools import GROUP, PLURAL, VERSION

FIELD_MANAGER = "fairlead-operator"
_TIMEOUT_SECONDS = 10.0
_MERGE_PATCH = "application/merge-patch+json"


class Resource(Enum):
    """What the operator reads and writes: path prefix and plural."""

    POOLS = (f"/apis/{GROUP}/{VERSION}", PLURAL)
    PODS = ("/api/v1", "pods")
    SERVICES = ("/api/v1", "services")
    BUDGETS = ("/apis/policy/v1", "poddisruptionbudgets")
    EVENTS = ("/api/v1", "events")
    LEASES = ("/apis/coordination.k8s.io/v1", "leases")

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The URL path of one object, or of the namespace's list."""
        prefix, plural = self.value
        return "/".join(part for part in (prefix, "namespaces", namespace, plural, name, subresource) if part)


class ClusterError(Exception):
    """A call to the Kubernetes API failed.

    ClusterError
    ├── ClusterUnavailable   no answer, 429 or 5xx: worth repeating
    └── ClusterRefused       the request was answered and refused: repeating it unchanged is pointless
    """


class ClusterUnavailable(ClusterError):
    """No usable answer; the call may or may not have had its effect."""


class ClusterRefused(ClusterError):
    """Refused, with the HTTP status and the server's reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)


class Cluster(Protocol):
    """Objects are plain JSON documents. Every method raises ClusterError."""

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        """The object as it is now, None when there is none."""

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        """All objects with these labels, read consistently (never from a cache)."""

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> bool:
        """Create; False when an object of that name exists."""

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        """Merge-patch; False when there is no such object. A `resourceVersion` or `uid` in the body must be the object's, or it is refused (409)."""

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        """Delete in the background with the usual grace period; False when there is no such object."""


class HttpCluster:
    """`Cluster` over HTTP. Make it with `connect`, end it with `close`. Credentials that expired are read anew, once per call."""

    def __init__(self, api: client.ApiClient, kubeconfig: str | None) -> None:
        self._api = api
        self._kubeconfig = kubeconfig

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> "HttpCluster":
        """From a kubeconfig file, or from the pod's service account when None. Raises ClusterUnavailable when neither can be used."""
        return cls(await _log_in(kubeconfig), kubeconfig)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def serves_pools(self) -> bool:
        """Whether the server answers and knows our resource. Raises ClusterError."""
        return await self._call("GET", f"/apis/{GROUP}/{VERSION}", absent=404) is not None

    async def may_list_definitions(self) -> bool:
        """Whether this operator has the right to watch which resources come and go. Raises ClusterUnavailable."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        return await self._call("GET", path, query=[("limit", "1")], absent=403) is not None

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        return await self._call("GET", resource.path(namespace, name), absent=404)

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        answer = await self._call("GET", resource.path(namespace), query=[("labelSelector", selector)])
        items: list[dict[str, Any]] = (answer or {}).get("items") or []
        return items

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> bool:
        query = [("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")]  # a typo in a pod template is told, not dropped
        return await self._call("POST", resource.path(namespace), body=body, query=query, absent=409) is not None

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        query = [("fieldManager", FIELD_MANAGER)]
        path = resource.path(namespace, name, subresource)
        return await self._call("PATCH", path, body=body, query=query, content=_MERGE_PATCH, absent=404) is not None

    async def delete(self, resource: Resource, namespace: str, name: str) -> bool:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return await self._call("DELETE", resource.path(namespace, name), body=body, absent=404) is not None

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: dict[str, Any] | None = None,
        content: str = "application/json",
        absent: int | None = None,
    ) -> dict[str, Any] | None:
        """One request; None when the answer's status is `absent`."""
        headers = {"Accept": "application/json", "Content-Type": content}
        status, data = await self._send(method, path, query, headers, body)
        if status == 401:
            stale, self._api = self._api, await _log_in(self._kubeconfig)
            await stale.close()
            status, data = await self._send(method, path, query, headers, body)
        if status < 300:
            answer: dict[str, Any] = json.loads(data)
            return answer
        if status == absent:
            return None
        message, reason = _explain(data)
        if status in {401, 429} or status >= 500:
            raise ClusterUnavailable(f"{method} {path}: {status} {message}")
        raise ClusterRefused(status, reason, f"{method} {path}: {status} {message}")

    async def _send(
        self, method: str, path: str, query: list[tuple[str, str]] | None, headers: dict[str, str], body: dict[str, Any] | None
    ) -> tuple[int, bytes]:
        try:
            request = await self._api.param_serialize(
                method, path, query_params=query, header_params=dict(headers), body=body, auth_settings=["BearerToken"]
            )
            response = await self._api.call_api(*request, _request_timeout=_TIMEOUT_SECONDS)
            return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(f"{method} {path}: {str(error) or type(error).__name__}") from error


async def _log_in(kubeconfig: str | None) -> client.ApiClient:
    configuration = client.Configuration()
    try:
        if kubeconfig is not None:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration, persist_config=False)
        else:
            config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise ClusterUnavailable(f"KUBECONFIG: {kubeconfig!r} cannot be used ({error}); set it to a kubeconfig file") from error
    return client.ApiClient(configuration=configuration)


def _explain(data: bytes) -> tuple[str, str]:
    try:
        status = json.loads(data)
    except ValueError:
        return data[:200].decode(errors="replace"), "Unknown"
    if not isinstance(status, dict):
        return str(status)[:200], "Unknown"
    return str(status.get("message", "")), str(status.get("reason", "Unknown"))
