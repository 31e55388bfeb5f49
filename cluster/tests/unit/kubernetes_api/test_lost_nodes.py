"""Silent nodes, eviction by taints and pods of deleted nodes, in virtual time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete
from processkube.kubernetes_api.collecting.evictions import tolerated_seconds
from processkube.kubernetes_api.collecting.grace_periods import QUARANTINE_SECONDS, STARTUP_GRACE_SECONDS
from processkube.kubernetes_api.collecting.lost_nodes import LostNodes
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.objects import copy_of, timestamp
from processkube.kubernetes_api.storing.store import Store
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions

OPTIONS = WriteOptions(field_manager="test")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


class Cluster:
    """A store with nodes and pods, and the controller under test; `wait` lets time pass in steps of a second."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.reporting: set[str] = set()
        self.resources = Resources(Store(Path(":memory:")), Registry(), lambda: EPOCH + timedelta(seconds=self.seconds), random.Random(1))
        for namespace in ("default", "kube-node-lease"):
            self.create("v1", "namespaces", "", {"metadata": {"name": namespace}})
        self.controller = LostNodes(self.resources, grace_seconds=10.0)

    def create(self, version: str, plural: str, namespace: str, body: dict[str, Any], group: str = "") -> None:
        kind = self.resources.registry.find(group, version, plural)
        assert kind is not None
        self.resources.create(kind, namespace, body, OPTIONS)

    def add_node(self, name: str, *, ready: bool = True) -> None:
        self.create("v1", "nodes", "", {"metadata": {"name": name}, "spec": {}})
        spec = {"holderIdentity": name, "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 10}
        self.create("v1", "leases", "kube-node-lease", {"metadata": {"name": name}, "spec": spec}, "coordination.k8s.io")
        if ready:
            self.report_ready(name)
            self.reporting.add(name)

    def report_ready(self, name: str) -> None:
        now = timestamp(self.resources.clock())
        self.change_status("nodes", name, conditions=[{"type": "Ready", "status": TRUE, "lastHeartbeatTime": now}])

    def add_pod(self, name: str, node: str, **spec: Any) -> None:
        containers = [{"name": "c", "image": "i:1"}]
        self.create("v1", "pods", "default", {"metadata": {"name": name}, "spec": {"containers": containers, "nodeName": node, **spec}})
        conditions = [{"type": kind, "status": TRUE, "lastTransitionTime": timestamp(EPOCH)} for kind in ("ContainersReady", "Ready")]
        self.change_status("pods", name, phase="Running", conditions=conditions)

    def change_status(self, plural: str, name: str, **status: Any) -> None:
        item = self.object(plural, name)
        item["status"] = {**item.get("status", {}), **status}
        self.resources.store.put(plural, "default" if plural == "pods" else "", name, item)

    def object(self, plural: str, name: str) -> dict[str, Any]:
        found = self.resources.store.get(plural, "default" if plural == "pods" else "", name)
        assert found is not None, f"{plural} {name} is gone"
        copy: dict[str, Any] = copy_of(found.object)
        return copy

    def exists(self, pod: str) -> bool:
        return self.resources.store.get("pods", "default", pod) is not None

    def delete_node(self, name: str) -> None:
        kind = self.resources.registry.find("", "v1", "nodes")
        assert kind is not None
        delete(self.resources, kind, "", name, DeleteOptions())

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.seconds += 1.0
            for name in self.reporting:
                lease = self.resources.store.get("leases.coordination.k8s.io", "kube-node-lease", name)
                assert lease is not None
                renewed = copy_of(lease.object)
                renewed["spec"]["renewTime"] = self.resources.clock().isoformat()
                self.resources.store.put(lease.resource, lease.namespace, name, renewed)
            self.controller.check(self.seconds)

    def conditions(self, plural: str, name: str) -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.object(plural, name)["status"]["conditions"]}

    def taints(self, node: str) -> set[tuple[str, str]]:
        return {(taint["key"], taint["effect"]) for taint in self.object("nodes", node)["spec"].get("taints", [])}

    def events(self) -> list[tuple[str, str, str]]:
        found = [stored.object for stored in self.resources.store.list("events")]
        return sorted((event["involvedObject"]["name"], event["type"], event["reason"]) for event in found)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for node in ("lives", "dies"):
        cluster.add_node(node)
        cluster.add_pod(f"on-{node}", node)
    cluster.wait(1)
    return cluster


def test_a_silent_node_is_unknown_after_its_grace_and_its_pods_only_lose_ready(cluster: Cluster) -> None:
    cluster.reporting.discard("dies")
    cluster.wait(10)
    assert cluster.conditions("nodes", "dies")["Ready"] == TRUE
    cluster.wait(1)
    node = cluster.object("nodes", "dies")
    ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == (UNKNOWN, "NodeStatusUnknown")
    assert ready["lastHeartbeatTime"] == timestamp(EPOCH), "the kubelet's last word is kept"
    assert cluster.taints("dies") == {("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")}
    assert cluster.conditions("pods", "on-dies") == {"ContainersReady": TRUE, "Ready": FALSE}
    assert cluster.conditions("pods", "on-lives") == {"ContainersReady": TRUE, "Ready": TRUE}
    assert cluster.taints("lives") == set()
    assert cluster.events() == [("dies", "Normal", "NodeNotReady"), ("on-dies", "Warning", "NodeNotReady")]


def test_a_node_that_comes_back_loses_its_taints_and_none_of_a_person(cluster: Cluster) -> None:
    item = cluster.object("nodes", "dies")
    item["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    cluster.resources.store.put("nodes", "", "dies", item)
    cluster.reporting.discard("dies")
    cluster.wait(12)
    assert len(cluster.taints("dies")) == 3
    cluster.reporting.add("dies")
    cluster.wait(1)
    assert cluster.conditions("nodes", "dies")["Ready"] == UNKNOWN, "only its kubelet can call it ready"
    cluster.report_ready("dies")
    cluster.wait(1)
    assert cluster.taints("dies") == {("team", "NoSchedule")}
    cluster.wait(400)
    assert cluster.exists("on-dies")
    assert "deletionTimestamp" not in cluster.object("pods", "on-dies")["metadata"]


def test_a_pod_is_deleted_when_it_tolerates_its_lost_node_no_longer_and_hangs_there(cluster: Cluster) -> None:
    stays = [{"operator": "Exists", "effect": "NoExecute"}]
    cluster.add_pod("stays", "dies", tolerations=stays)
    cluster.add_pod("goes-soon", "dies", tolerations=[{**UNREACHABLE, "operator": "Exists", "tolerationSeconds": 5}])
    cluster.reporting.discard("dies")
    cluster.wait(11 + 4)
    assert not [pod for pod in ("on-dies", "stays", "goes-soon") if "deletionTimestamp" in cluster.object("pods", pod)["metadata"]]
    cluster.wait(1)
    gone = cluster.object("pods", "goes-soon")
    assert "deletionTimestamp" in gone["metadata"]
    disrupted = next(one for one in gone["status"]["conditions"] if one["type"] == "DisruptionTarget")
    assert (disrupted["status"], disrupted["reason"]) == (TRUE, "DeletionByTaintManager")
    cluster.wait(294)
    assert "deletionTimestamp" not in cluster.object("pods", "on-dies")["metadata"]
    cluster.wait(1)
    assert "deletionTimestamp" in cluster.object("pods", "on-dies")["metadata"], "300 s is what a pod tolerates unless it says otherwise"
    cluster.wait(100)
    assert cluster.exists("goes-soon"), "no kubelet confirms its end"
    assert "deletionTimestamp" not in cluster.object("pods", "stays")["metadata"]
    assert cluster.events().count(("goes-soon", "Normal", "TaintManagerEviction")) == 1


def test_no_node_is_emptied_while_no_node_is_ready(cluster: Cluster) -> None:
    cluster.reporting.clear()
    cluster.wait(400)
    for node in ("lives", "dies"):
        assert cluster.taints(node) == {("node.kubernetes.io/unreachable", "NoSchedule")}
        assert "deletionTimestamp" not in cluster.object("pods", f"on-{node}")["metadata"]


def test_the_pods_of_a_deleted_node_are_removed_although_nobody_confirms_their_end(cluster: Cluster) -> None:
    cluster.reporting.discard("dies")
    cluster.delete_node("dies")
    cluster.wait(int(QUARANTINE_SECONDS))
    assert cluster.exists("on-dies")
    cluster.wait(1)
    assert not cluster.exists("on-dies")
    assert cluster.exists("on-lives")


def test_a_node_that_is_created_again_in_time_keeps_its_pods(cluster: Cluster) -> None:
    cluster.delete_node("dies")
    cluster.wait(int(QUARANTINE_SECONDS) - 1)
    cluster.create("v1", "nodes", "", {"metadata": {"name": "dies"}})
    cluster.report_ready("dies")
    cluster.wait(int(QUARANTINE_SECONDS) + 5)
    assert cluster.conditions("pods", "on-dies")["Ready"] == TRUE


def test_a_node_that_never_reported_has_longer_and_says_so() -> None:
    cluster = Cluster()
    cluster.add_node("new", ready=False)
    cluster.wait(int(STARTUP_GRACE_SECONDS) + 1)
    assert "conditions" not in cluster.object("nodes", "new").get("status", {})
    cluster.wait(1)
    reasons = {one["reason"] for one in cluster.object("nodes", "new")["status"]["conditions"]}
    assert reasons == {"NodeStatusNeverUpdated"}


def test_a_namespace_that_is_being_deleted_takes_no_event_and_stops_nothing(cluster: Cluster) -> None:
    item = copy_of(cluster.object("namespaces", "default"))
    item["metadata"]["deletionTimestamp"] = timestamp(EPOCH)
    cluster.resources.store.put("namespaces", "", "default", item)
    cluster.reporting.discard("dies")
    cluster.wait(11)
    assert cluster.conditions("pods", "on-dies")["Ready"] == FALSE


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([{**UNREACHABLE, "operator": "Exists"}], None),
        ([{"operator": "Exists"}], None),
        ([{**UNREACHABLE, "operator": "Exists", "tolerationSeconds": 30}], 30.0),
        ([{**UNREACHABLE, "operator": "Exists", "tolerationSeconds": -1}], 0.0),
        ([{**UNREACHABLE, "effect": "NoSchedule", "operator": "Exists"}], 0.0),
        ([{"key": "other", "operator": "Exists"}], 0.0),
        ([{**UNREACHABLE, "value": "x"}], 0.0),
        ([UNREACHABLE], None),
    ],
)
def test_how_long_a_pod_tolerates_an_unreachable_node(tolerations: list[dict[str, Any]], seconds: float | None) -> None:
    assert tolerated_seconds(tolerations, [UNREACHABLE]) == seconds


def test_the_shortest_of_the_tolerations_in_use_counts() -> None:
    taints = [UNREACHABLE, {"key": "team", "value": "a", "effect": "NoExecute"}]
    tolerations = [
        {**UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300},
        {"key": "team", "value": "a", "tolerationSeconds": 20},
        {"key": "unused", "operator": "Exists", "tolerationSeconds": 1},
    ]
    assert tolerated_seconds(tolerations, taints) == 20.0
