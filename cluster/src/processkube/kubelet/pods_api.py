"""The kubelet's requests to a Kubernetes API: about nodes, leases, pods and their status, bindings and events."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

from processkube.errors import ClusterProblem
from processkube.kubelet.pod_specs import PodSpec
from processkube.kubernetes_client import STRATEGIC_PATCH, Document, KubernetesClient

log = logging.getLogger(__name__)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_SECONDS = 10
EVENTS_WAITING = 500


def pod_path(pod: PodSpec) -> str:
    """Return the path of the Pod object in the API."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


class PodsApi:
    """The requests of one node's kubelet. Every method may raise ClusterProblem unless its docstring says otherwise."""

    def __init__(self, client: KubernetesClient, node: str) -> None:
        self._client = client
        self._node = node
        self._this_node = {"fieldSelector": f"metadata.name={node}"}
        self._events: asyncio.Queue[tuple[str, Document]] = asyncio.Queue(maxsize=EVENTS_WAITING)
        self._numbers = itertools.count()

    async def register_node(self, status: Document) -> None:
        """Create the Node object if it does not exist, and update its status."""
        labels = {"kubernetes.io/hostname": self._node, "kubernetes.io/os": "linux"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node, "labels": labels}, "spec": {}, "status": status}
        try:
            await self._client.request("POST", "/api/v1/nodes", body)
        except ClusterProblem as problem:
            if problem.reason != "AlreadyExists":
                raise
        await self.update_node(status)

    async def update_node(self, status: Document) -> None:
        await self._client.request("PATCH", f"/api/v1/nodes/{self._node}/status", {"status": status}, content_type=STRATEGIC_PATCH)

    async def is_shown_ready(self) -> bool:
        """Return whether the API shows the Node as Ready. The API shows it as not ready after this kubelet was silent
        for too long.
        """
        try:
            node = await self._client.request("GET", f"/api/v1/nodes/{self._node}")
        except ClusterProblem as problem:
            if problem.status != 404:
                raise
            return False
        conditions = (node.get("status") or {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    async def renew_lease(self, stamp: str) -> None:
        """Renew the node's Lease, which shows that the node is alive. If the Lease or its namespace is missing, create
        it.
        """
        spec = {"holderIdentity": self._node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp}
        try:
            await self._client.request("PATCH", f"{LEASES}/{self._node}", {"spec": spec}, content_type=STRATEGIC_PATCH)
        except ClusterProblem as problem:
            if problem.status != 404:
                raise
            await self._create_lease(spec)

    async def list_pods(self) -> tuple[list[Document], str]:
        """Return all pods of the cluster, and the resource version from which their changes can be watched. The cluster
        has no other node, so all pods belong here.
        """
        answer = await self._client.request("GET", "/api/v1/pods")
        return list(answer["items"]), str(answer["metadata"]["resourceVersion"])

    def watch_pods(self, resource_version: str) -> AsyncIterator[Document]:
        """Yield the changes of pods that were made after a resource version."""
        return self._client.watch("/api/v1/pods", resource_version=resource_version)

    async def list_node(self) -> tuple[Document | None, str]:
        """Return this node's object, and the resource version from which its changes can be watched. The object is None
        if the API does not have it.
        """
        answer = await self._client.request("GET", "/api/v1/nodes", query=self._this_node)
        return next(iter(answer["items"]), None), str(answer["metadata"]["resourceVersion"])

    def watch_node(self, resource_version: str) -> AsyncIterator[Document]:
        """Yield the changes of this node's object that were made after a resource version."""
        return self._client.watch("/api/v1/nodes", resource_version=resource_version, query=self._this_node)

    async def bind(self, pod: PodSpec) -> None:
        """Bind the pod to this node."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node},
        }
        await self._client.request("POST", f"{pod_path(pod)}/binding", body)

    async def patch_status(self, pod: PodSpec, status: Document, *, of_version: str | None = None) -> None:
        """Report the pod's status. The patch names the pod's uid, so it never changes a new pod of the same name. If
        `of_version` is given, the API refuses the patch (409) when the pod has another resource version.

        The patch is merged with the old status. Therefore a condition that has no reason must remove its old reason.
        """
        conditions = [{"reason": None, "message": None, **condition} for condition in status["conditions"]]
        metadata = {"uid": pod.uid} | ({} if of_version is None else {"resourceVersion": of_version})
        body = {"metadata": metadata, "status": {**status, "conditions": conditions}}
        await self._client.request("PATCH", f"{pod_path(pod)}/status", body, content_type=STRATEGIC_PATCH)

    async def finish_deletion(self, pod: PodSpec) -> None:
        """Remove the Pod object. Does nothing if the pod is already gone, even if another pod has its name now."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        try:
            await self._client.request("DELETE", pod_path(pod), body)
        except ClusterProblem as problem:
            if problem.status not in {404, 409}:
                raise

    async def read_stored(self, kind: str, namespace: str, name: str) -> Document | None:
        """Return the Secret or ConfigMap with this name; None if it does not exist."""
        return await self._read(f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name}")

    async def request_token(self, namespace: str, account: str, seconds: int) -> str:
        """Return a new token of a service account, which is valid for `seconds` seconds."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        answer = await self._client.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
        return str(answer["status"]["token"])

    async def read_claim(self, namespace: str, name: str) -> Document | None:
        """Return the PersistentVolumeClaim with this name; None if it does not exist."""
        return await self._read(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    async def has_device(self, namespace: str, claim: str) -> bool:
        """Return whether the ResourceClaim exists and has an allocated device."""
        found = await self._read(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{claim}")
        return found is not None and bool((found.get("status") or {}).get("allocation"))

    async def list_claims(self) -> list[Document]:
        """Return all PersistentVolumeClaims of the cluster."""
        return list((await self._client.request("GET", "/api/v1/persistentvolumeclaims"))["items"])

    async def bind_claim(self, claim: Document) -> None:
        """Mark a PersistentVolumeClaim as bound with the requested storage, as a volume provisioner does."""
        metadata, spec = claim["metadata"], claim["spec"]
        status = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec["resources"]["requests"]}
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
        await self._client.request("PATCH", path, {"status": status}, content_type=STRATEGIC_PATCH)

    async def _read(self, path: str) -> Document | None:
        try:
            return await self._client.request("GET", path)
        except ClusterProblem as problem:
            if problem.status != 404:
                raise
            return None

    def record_event(self, pod: PodSpec, kind: str, reason: str, message: str, stamp: str) -> None:
        """Queue a Kubernetes Event about the pod. Never raises and never waits.

        If the queue is full, its oldest event is dropped, because events only inform people.
        """
        name = f"{pod.name}.{pod.uid[:8]}.{next(self._numbers):x}.{stamp.translate({ord(c): None for c in ':-.+TZ'})}".lower()
        reference = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": reference,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._node},
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait((pod.namespace, event))

    async def send_events(self) -> None:
        """Send the queued events, and repeat them while the API cannot be reached. Never returns."""
        while True:
            namespace, event = await self._events.get()
            while True:
                try:
                    await self._client.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
                except ClusterProblem as problem:
                    if problem.worth_retrying:
                        await asyncio.sleep(2.0)
                        continue
                    log.debug("event was refused", extra={"error": str(problem)})
                break

    async def _create_lease(self, spec: Document) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._node}, "spec": spec}
        try:
            await self._client.request("POST", "/api/v1/namespaces", namespace)
        except ClusterProblem as problem:
            if problem.reason != "AlreadyExists":
                raise
        await self._client.request("POST", LEASES, lease)
