"""LeaderWorkerSets make groups that start, restart and end together. A real cluster needs their controller for
these.
"""

from __future__ import annotations

from typing import Any

import pytest

from processkube.kubernetes_api.definitions.leader_worker_sets import leader_worker_set_definition
from processkube.testing.clients import KubernetesClient
from processkube.testing.waiting import PATIENCE_SECONDS
from processkube.testing.workloads import Document, WorkloadNamespace, condition, pod_template

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MARK = "leaderworkerset.sigs.k8s.io"


@pytest.fixture(autouse=True)
def defined(client: KubernetesClient, namespace: WorkloadNamespace) -> None:
    definition = leader_worker_set_definition()
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    if not client.session.get(client.server + path, timeout=PATIENCE_SECONDS).ok:
        client.call("POST", f"{DEFINITIONS}?fieldValidation=Strict", definition)
    kinds = client.server + namespace.path("leaderworkersets")
    namespace.until(lambda: client.session.get(kinds, timeout=PATIENCE_SECONDS).ok, "the kind is served")


def make_set(namespace: WorkloadNamespace, size: int, replicas: int = 1, **template: Any) -> None:
    group = {"size": size, "leaderTemplate": pod_template("leader:1"), "workerTemplate": pod_template("worker:1"), **template}
    body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "big", "labels": {"team": "a"}}}
    namespace.create("leaderworkersets", {**body, "spec": {"replicas": replicas, "leaderWorkerTemplate": group}})


def by_name(namespace: WorkloadNamespace) -> dict[str, Document]:
    return {pod["metadata"]["name"]: pod for pod in namespace.pods()}


def until_pods(namespace: WorkloadNamespace, *names: str) -> dict[str, Document]:
    return namespace.until(lambda: found if set(found := by_name(namespace)) == set(names) else None, f"the pods are {names}")


def variables(pod: Document) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}


def test_a_group_is_a_leader_and_its_workers_that_know_each_other(namespace: WorkloadNamespace) -> None:
    make_set(namespace, size=3)
    pods = until_pods(namespace, "big-0", "big-0-1", "big-0-2")
    for name, pod in pods.items():
        index = "0" if name == "big-0" else name[-1]
        assert variables(pod) == {"LWS_LEADER_ADDRESS": f"big-0.big.{namespace.name}", "LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": index}
        assert (
            pod["metadata"]["labels"].items() >= {f"{MARK}/name": "big", f"{MARK}/group-index": "0", f"{MARK}/worker-index": index}.items()
        )
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (name, "big")
        assert pod["spec"]["containers"][0]["image"] == ("leader:1" if index == "0" else "worker:1")
    assert namespace.get("services", "big")["spec"]["publishNotReadyAddresses"] is True
    assert namespace.get("statefulsets", "big")["metadata"]["labels"]["team"] == "a"


def test_a_set_is_available_once_all_of_a_group_are_ready(namespace: WorkloadNamespace) -> None:
    make_set(namespace, size=2)
    until_pods(namespace, "big-0", "big-0-1")
    namespace.start("big-0")
    namespace.until(lambda: condition(namespace.get("leaderworkersets", "big"), "Progressing").get("status") == "True", "it progresses")
    namespace.start("big-0-1")
    found = namespace.until(
        lambda: one if condition(one := namespace.get("leaderworkersets", "big"), "Available") else None, "it is available"
    )
    assert condition(found, "Progressing")["status"] == "False"
    assert (found["status"]["replicas"], found["status"]["readyReplicas"]) == (1, 1)


@pytest.mark.parametrize("restarted", ["big-0", "big-0-1"])
def test_a_container_that_restarts_makes_the_whole_group_new(namespace: WorkloadNamespace, restarted: str) -> None:
    make_set(namespace, size=2)
    before = until_pods(namespace, "big-0", "big-0-1")
    namespace.start(restarted, containerStatuses=[{"name": "web", "restartCount": 1, "ready": False, "image": "i", "imageID": "i"}])

    def look() -> bool:
        after = by_name(namespace)
        return set(after) == set(before) and all(after[name]["metadata"]["uid"] != before[name]["metadata"]["uid"] for name in before)

    namespace.until(look, "both pods are new")


def test_a_set_without_that_policy_keeps_its_other_pods(namespace: WorkloadNamespace) -> None:
    make_set(namespace, size=2, restartPolicy="None")
    before = until_pods(namespace, "big-0", "big-0-1")
    namespace.delete("pods", "big-0-1")
    namespace.until(
        lambda: by_name(namespace).get("big-0-1", before["big-0-1"])["metadata"]["uid"] != before["big-0-1"]["metadata"]["uid"], "new"
    )
    assert by_name(namespace)["big-0"]["metadata"]["uid"] == before["big-0"]["metadata"]["uid"]


def test_workers_wait_for_a_leader_where_the_set_says_so(namespace: WorkloadNamespace) -> None:
    group = {"size": 2, "workerTemplate": pod_template()}
    body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "big"}}
    namespace.create("leaderworkersets", {**body, "spec": {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": group}})
    until_pods(namespace, "big-0")
    assert not namespace.exists("statefulsets", "big-0")
    namespace.start("big-0")
    until_pods(namespace, "big-0", "big-0-1")


def test_the_last_group_goes_first_and_nothing_is_left_of_a_deleted_set(namespace: WorkloadNamespace) -> None:
    make_set(namespace, size=2, replicas=2)
    until_pods(namespace, "big-0", "big-0-1", "big-1", "big-1-1")
    namespace.scale("leaderworkersets", "big", 1)
    until_pods(namespace, "big-0", "big-0-1")
    namespace.delete("leaderworkersets", "big")
    namespace.until(lambda: not by_name(namespace), "its pods are gone")
    namespace.until(lambda: not namespace.every("statefulsets") and not namespace.exists("services", "big"), "its objects are gone")
