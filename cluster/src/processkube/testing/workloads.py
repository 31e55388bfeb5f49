"""A namespace of a Kubernetes API in which controllers of workloads act. The test plays the kubelet: it sets the status
of pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from processkube.testing.clients import KubernetesClient
from processkube.testing.waiting import PATIENCE_SECONDS

Document = dict[str, Any]
Value = TypeVar("Value")

_GROUPS = {
    "deployments": "apis/apps/v1",
    "replicasets": "apis/apps/v1",
    "statefulsets": "apis/apps/v1",
    "controllerrevisions": "apis/apps/v1",
    "jobs": "apis/batch/v1",
    "endpointslices": "apis/discovery.k8s.io/v1",
    "leaderworkersets": "apis/leaderworkerset.x-k8s.io/v1",
}
LABELS = {"app": "web"}


def pod_template(image: str = "web:1", **spec: Any) -> Document:
    """Return a pod template with the label `app: web`."""
    return {"metadata": {"labels": dict(LABELS)}, "spec": {"containers": [{"name": "web", "image": image}], **spec}}


def deployment(name: str, replicas: int, image: str = "web:1", **spec: Any) -> Document:
    body = {"replicas": replicas, "selector": {"matchLabels": dict(LABELS)}, "template": pod_template(image), **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def replica_set(name: str, replicas: int, **spec: Any) -> Document:
    body = {"replicas": replicas, "selector": {"matchLabels": dict(LABELS)}, "template": pod_template(), **spec}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": body}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(item: Document, kind: str) -> Document:
    found: Document = next((one for one in item.get("status", {}).get("conditions", []) if one["type"] == kind), {})
    return found


def is_ready(pod: Document) -> bool:
    return condition(pod, "Ready").get("status") == "True"


@dataclass(slots=True)
class WorkloadNamespace:
    """One namespace. Its pods stay pending until the test changes their status."""

    client: KubernetesClient
    name: str
    frozen: set[str] = field(default_factory=set)
    """Names of pods that `start_pods` does not change."""

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        parts = [_GROUPS.get(plural, "api/v1"), "namespaces", self.name, plural, name, subresource]
        return "/" + "/".join(filter(None, parts))

    def create(self, plural: str, body: Document) -> Document:
        return self.client.call("POST", self.path(plural), body)

    def refusal(self, plural: str, body: Document) -> str:
        """Try to create an object that the server must refuse (422), and return the server's message."""
        response = self.client.session.post(self.client.server + self.path(plural), json=body, timeout=PATIENCE_SECONDS)
        assert response.status_code == 422, response.text
        message: str = response.json()["message"]
        return message

    def get(self, plural: str, name: str) -> Document:
        return self.client.call("GET", self.path(plural, name))

    def exists(self, plural: str, name: str) -> bool:
        return self.client.session.get(self.client.server + self.path(plural, name), timeout=PATIENCE_SECONDS).ok

    def every(self, plural: str) -> list[Document]:
        """Return all objects of a kind, oldest first."""
        items: list[Document] = self.client.call("GET", self.path(plural))["items"]
        return sorted(items, key=lambda one: (one["metadata"]["creationTimestamp"], int(one["metadata"]["resourceVersion"])))

    def patch(self, plural: str, name: str, body: Document, subresource: str = "") -> Document:
        return self.client.merge(self.path(plural, name, subresource), body)

    def delete(self, plural: str, name: str, **options: Any) -> None:
        self.client.call("DELETE", self.path(plural, name), options)

    def set_image(self, name: str, image: str, plural: str = "deployments") -> None:
        self.patch(plural, name, {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}})

    def scale(self, plural: str, name: str, replicas: int) -> None:
        """Change the number of replicas through the scale subresource, as autoscalers do."""
        self.patch(plural, name, {"spec": {"replicas": replicas}}, "scale")

    def pods(self) -> list[Document]:
        """Return the pods that are not being deleted."""
        return [pod for pod in self.every("pods") if not pod["metadata"].get("deletionTimestamp")]

    def images(self) -> list[str]:
        """Return the images of the pods that are not being deleted, sorted."""
        return sorted(pod["spec"]["containers"][0]["image"] for pod in self.pods())

    def start(self, pod: str, *, ready: bool = True, since: str = "", **status: Any) -> None:
        """Report a pod as running and ready. `since` is the time at which it became ready; None = now."""
        said = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": since or now()}
        self.patch("pods", pod, {"status": {"phase": "Running", "conditions": [said], **status}}, "status")

    def end(self, pod: str, phase: str) -> None:
        """Report a pod as finished with the phase `Succeeded` or `Failed`."""
        said = {"type": "Ready", "status": "False", "lastTransitionTime": now(), "reason": f"Pod{phase}"}
        self.patch("pods", pod, {"status": {"phase": phase, "conditions": [said]}}, "status")

    def start_pods(self) -> None:
        """Report all pods that are not in `frozen` as running and ready."""
        for pod in self.pods():
            if not is_ready(pod) and pod["metadata"]["name"] not in self.frozen and "phase" in pod["status"]:
                path = self.client.server + self.path("pods", pod["metadata"]["name"], "status")
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": now()}
                self.client.session.patch(  # the pod may be gone by now
                    path,
                    json={"status": {"phase": "Running", "conditions": [ready]}},
                    headers={"Content-Type": "application/merge-patch+json"},
                    timeout=PATIENCE_SECONDS,
                )

    def until(self, look: Callable[[], Value | None], wish: str, *, running: bool = False) -> Value:
        """Call `look` until its result is truthy, and return this result. If `running`, pods are started in between."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if running:
                self.start_pods()
            if value := look():
                return value
            assert time.monotonic() < deadline, f"it never came to this: {wish}; now {self.shown()}"
            time.sleep(0.03)

    def shown(self) -> list[tuple[str, Document]]:
        """Return the names and statuses of objects as a text for messages."""
        kinds = ("deployments", "replicasets", "statefulsets", "jobs", "pods")
        return [(f"{kind}/{one['metadata']['name']}", one.get("status", {})) for kind in kinds for one in self.every(kind)]

    def rolled_out(self, name: str) -> Document:
        """Wait until all pods of a Deployment have its template and are available, and return the Deployment. Pods are
        started in between.
        """

        def look() -> Document | None:
            item = self.get("deployments", name)
            status, wanted = item.get("status", {}), item["spec"]["replicas"]
            counts = [status.get(one, 0) for one in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
            is_seen = status.get("observedGeneration") == item["metadata"]["generation"]
            is_complete = condition(item, "Progressing").get("reason") == "NewReplicaSetAvailable"
            return item if is_seen and is_complete and counts == [wanted] * 4 else None

        return self.until(look, f"the Deployment {name} is rolled out", running=True)

    def events(self, about: str) -> list[str]:
        """Return (reason, message) of every event about an object, oldest first."""
        items = [one for one in self.every("events") if one["involvedObject"]["name"] == about]
        return [f"{one['reason']}: {one['message']}" for one in items]
