"""Instances that Kueue queues: the pool's condition has the text of Kueue's Workload."""

from typing import Any

from fairlead_testing.running.operator_process import DEFINITIONS, Stage, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.clients import KubernetesClient

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
GATE = {"name": "kueue.x-k8s.io/admission"}
WORDS = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed"


def define_workloads(client: KubernetesClient) -> None:
    """Kueue's Workload, as far as a reader needs it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"kind": "Workload", "plural": "workloads", "singular": "workload", "listKind": "WorkloadList"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    client.call("POST", DEFINITIONS, body)
    eventually(lambda: client.session.get(client.server + WORKLOADS, timeout=PATIENCE_SECONDS).ok, "the kind is served")


def queued_role() -> list[dict[str, Any]]:
    """Return a role whose pods are as Kueue's webhook leaves them."""
    spec = {"containers": [{"name": "engine", "image": "engine:1"}], "schedulingGates": [GATE]}
    return [{"name": "both", "template": {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}, "spec": spec}}]


def test_a_refused_quota_is_in_the_condition_in_kueues_words_until_it_is_admitted(stage: Stage) -> None:
    stage.phases.starts = False
    define_workloads(stage.client)
    stage.apply("queued", replicas=1, roles=queued_role())
    [pod] = eventually(lambda: stage.pods("queued"), "the pod is made")
    labels = {"kueue.x-k8s.io/job-uid": pod["metadata"]["uid"]}
    name = f"pod-{pod['metadata']['name']}"
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name, "labels": labels}}
    stage.client.call("POST", WORKLOADS, body)
    refused = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": WORDS}
    stage.client.merge(f"{WORKLOADS}/{name}/status", {"status": {"conditions": [refused]}})
    eventually(lambda: WORDS in stage.condition("queued", "Degraded").get("message", ""), "Kueue's words are told")
    assert stage.condition("queued", "Degraded")["reason"] == "WaitingForQuota"

    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    stage.client.merge(path, {"spec": {"schedulingGates": None}})
    stage.phases.starts = True
    stage.settle("queued", 1)
    eventually(lambda: stage.condition("queued", "Degraded")["status"] == "False", "nothing is wrong any more")
