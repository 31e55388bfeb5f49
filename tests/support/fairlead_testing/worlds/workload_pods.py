"""Pods of a Deployment on a fake cluster, as the Deployment's controller and the kubelets leave them."""

from dataclasses import dataclass, field
from typing import Any

from fairlead_operator.cluster import Resource
from fairlead_testing.fakes.cluster import FakeCluster, wired
from fairlead_testing.worlds.operator_stages import VirtualStage

CREATED = "2026-01-01T00:00:00Z"
HASH = "5d4f8c7b9"


def workload_pod(name: str, *, template_hash: str = HASH, **labels: str) -> dict[str, Any]:
    """Return a running pod of the Deployment `vllm`, with labels and annotations such as a team writes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": CREATED,
            "labels": {"app": "vllm", "pod-template-hash": template_hash, **labels},
            "annotations": {"team.example.com/owner": "search", "fairlead.dev/weight": "0.5"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"vllm-{template_hash}", "uid": "rs-uid", "controller": True}
            ],
        },
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.9",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "engine", "image": "vllm:1", "restartCount": 0}],
        },
    }


@dataclass(slots=True)
class PretendedDeployment:
    """The Deployment `vllm`, or a StatefulSet, with a controller that ends pods as Kubernetes does."""

    stage: VirtualStage
    ordered: bool = False
    made: int = 0
    ended: list[str] = field(default_factory=list)

    def declare(self, replicas: int) -> None:
        """Create the workload, or set its number of replicas, as kubectl does."""
        body = {"metadata": {"name": "vllm", "namespace": "default"}, "spec": {"replicas": replicas}}
        self.stage.cluster.put(self.resource, body)

    @property
    def resource(self) -> Resource:
        return Resource.STATEFUL_SETS if self.ordered else Resource.DEPLOYMENTS

    @property
    def replicas(self) -> int:
        number: int = self.stage.cluster.objects[self.resource, "vllm"]["spec"]["replicas"]
        return number

    def work(self) -> None:
        """Let the controller end surplus pods and create missing ones."""
        names = [pod["metadata"]["name"] for pod in self.stage.pods()]
        for name in sorted(names, key=self._rank)[: max(0, len(names) - self.replicas)]:
            self._check(name)
            del self.stage.cluster.objects[Resource.PODS, name]
            self.ended.append(name)
        for place in range(len(names), self.replicas):
            pod = workload_pod(f"vllm-{place if self.ordered else self._next()}")
            if self.ordered:
                pod["metadata"]["ownerReferences"][0] |= {"kind": "StatefulSet", "name": "vllm"}
            self.stage.cluster.put(Resource.PODS, pod)

    def _next(self) -> int:
        self.made += 1
        return self.made

    def _rank(self, name: str) -> tuple[float, ...]:
        pod = self.stage.cluster.objects[Resource.PODS, name]
        ready = any(one == {"type": "Ready", "status": "True"} for one in pod["status"].get("conditions", ()))
        cost = int(pod["metadata"]["annotations"].get("controller.kubernetes.io/pod-deletion-cost", "0"))
        place = int(name.rpartition("-")[2])
        return (-place,) if self.ordered else (ready, cost, -place)

    def _check(self, name: str) -> None:
        pod = self.stage.cluster.objects[Resource.PODS, name]
        if not any(one == {"type": "Ready", "status": "True"} for one in pod["status"].get("conditions", ())):
            return
        state = pod["metadata"]["annotations"].get("fairlead.dev/state")
        assert state == "Draining", f"{name} was ended while it was {state}"
        assert not self.stage.api.in_flight.get(name), f"{name} was ended with requests in flight"


def run_workload(cluster: FakeCluster, *names: str, **labels: str) -> None:
    """Put running pods of the workload with these names on the cluster."""
    for name in names:
        cluster.put(Resource.PODS, workload_pod(name, **labels))


def left_as_they_were(cluster: FakeCluster) -> bool:
    """Return whether metadata and spec of every pod are as the Deployment made them."""
    return all(_essence(pod) == _essence(workload_pod(pod["metadata"]["name"])) for pod in cluster.all(Resource.PODS))


def _essence(pod: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = wired(pod["metadata"])
    for name in ("uid", "resourceVersion"):
        metadata.pop(name, None)
    return {"metadata": metadata, "spec": pod["spec"]}
