"""Workloads of a team in a cluster, which pools adopt: a Deployment, a StatefulSet, and the CRD of LeaderWorkerSet."""

import os
from typing import Any

import pytest

from fairlead_testing.running.operator_process import KUBECONFIG_VARIABLE, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.kubernetes_api.definitions.leader_worker_sets import leader_worker_set_definition
from processkube.testing.clients import KubernetesClient

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLACES = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS, "LeaderWorkerSet": LEADER_WORKER_SETS}


def make_workload(client: KubernetesClient, kind: str, name: str, replicas: int) -> dict[str, Any]:
    """Create a workload whose pods have the label `app` with its name, and return the created object."""
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {"team.example.com/owner": "search"}},
        "spec": {"containers": [{"name": "engine", "image": "fairlead/engine:1", "ports": [{"containerPort": 8000}]}]},
    }
    spec: dict[str, Any] = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "LeaderWorkerSet":
        spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    version = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    metadata = {"name": name, "namespace": "default", "labels": {"team": "search"}}
    return client.call("POST", PLACES[kind], {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def define_leader_worker_sets(client: KubernetesClient) -> None:
    """Install the CRD LeaderWorkerSet, whose controller is part of processkube.

    Skips the test on a cluster from the environment that does not have this CRD.
    """
    body = leader_worker_set_definition()
    known = client.call("GET", _DEFINITIONS)["items"]
    if not any(one["metadata"]["name"] == body["metadata"]["name"] for one in known):
        if KUBECONFIG_VARIABLE in os.environ:
            pytest.skip("the cluster has no LeaderWorkerSet, so no controller that makes pods of one")
        client.call("POST", _DEFINITIONS, body)
    until_served = client.server + LEADER_WORKER_SETS
    eventually(lambda: client.session.get(until_served, timeout=PATIENCE_SECONDS).ok, "the kind is served")
