"""Workloads of a team in a cluster, that pools adopt: a Deployment, a StatefulSet, and LeaderWorkerSet's definition."""

from typing import Any

from processkube.testing.clients import KubernetesClient

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLACES = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS, "LeaderWorkerSet": LEADER_WORKER_SETS}


def make_workload(client: KubernetesClient, kind: str, name: str, replicas: int) -> dict[str, Any]:
    """Create a workload whose pods have the label `app` with its name; what it is like then."""
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {"team.example.com/owner": "search"}},
        "spec": {"containers": [{"name": "engine", "image": "fairlead/engine:1", "ports": [{"containerPort": 8000}]}]},
    }
    spec: dict[str, Any] = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "LeaderWorkerSet":
        spec = {"replicas": replicas}
    version = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    metadata = {"name": name, "namespace": "default", "labels": {"team": "search"}}
    return client.call("POST", PLACES[kind], {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def define_leader_worker_sets(client: KubernetesClient) -> None:
    """The kind LeaderWorkerSet with its scale subresource, and no controller of it."""
    names = {"kind": "LeaderWorkerSet", "plural": "leaderworkersets", "singular": "leaderworkerset", "listKind": "LeaderWorkerSetList"}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.hpaPodSelector",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    metadata = {"name": "leaderworkersets.leaderworkerset.x-k8s.io"}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/lws"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {**metadata, "annotations": approved},
        "spec": {"group": "leaderworkerset.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    known = client.call("GET", _DEFINITIONS)["items"]
    if not any(one["metadata"]["name"] == metadata["name"] for one in known):
        client.call("POST", _DEFINITIONS, body)
