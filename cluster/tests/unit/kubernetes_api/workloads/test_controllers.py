"""Controllers over a store, in virtual time: timed actions, failures, and the number of objects that they read."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.kinds.registry import Registry
from processkube.kubernetes_api.objects.errors import Forbidden
from processkube.kubernetes_api.objects.objects import Object, at_path, timestamp
from processkube.kubernetes_api.storing.store import Store
from processkube.kubernetes_api.workloads.controllers import WorkloadControllers
from processkube.kubernetes_api.writing.patches import merge_patch
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions, Written
from processkube.testing.workloads import condition, deployment

OPTIONS = WriteOptions(field_manager="test")


class RefusingResources(Resources):
    """A write path that refuses new pods while it is told to."""

    refuses_pods = False

    def create(self, kind: ResourceKind, namespace: str, body: object, options: WriteOptions) -> Written:
        if self.refuses_pods and kind.kind == "Pod":
            raise Forbidden("exceeded quota: pods")
        return super().create(kind, namespace, body, options)


class Cluster:
    """A store with its controllers; `settle` lets them act until nothing is left to do now."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.resources = RefusingResources(Store(Path(":memory:")), Registry(), lambda: self.now, random.Random(1))
        self.resources.create(self.kind("", "namespaces"), "", {"metadata": {"name": "one"}}, OPTIONS)
        self.controllers = WorkloadControllers(self.resources)

    def kind(self, group: str, plural: str) -> ResourceKind:
        found = self.resources.registry.find(group, "v1", plural)
        assert found is not None
        return found

    def deploy(self, body: Object) -> None:
        self.resources.create(self.kind("apps", "deployments"), "one", body, OPTIONS)

    def patch(self, group: str, plural: str, name: str, body: Object, subresource: str = "") -> None:
        self.resources.update(self.kind(group, plural), "one", name, lambda old: merge_patch(old, body), OPTIONS, subresource=subresource)

    def deployed(self) -> Object:
        return self.resources.store.list("deployments.apps")[0].object

    def replica_sets(self) -> list[Object]:
        return [one.object for one in self.resources.store.list("replicasets.apps")]

    def pods(self) -> list[Object]:
        return [one.object for one in self.resources.store.list("pods")]

    def settle(self) -> int:
        """Let the controllers act until nothing is left to do; return the number of looks."""
        looks = 0
        while self.controllers.step():
            looks += 1
            assert looks < 10_000, "two controllers take back each other's writes"
        return looks

    def pass_time(self, seconds: float) -> int:
        """Let time pass, second by second; return the number of looks."""
        looks = 0
        for _ in range(int(seconds)):
            self.now += timedelta(seconds=1)
            looks += self.settle()
        return looks

    def start_pods(self) -> None:
        for pod in self.pods():
            if at_path(pod, "status", "phase") == "Pending":
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(self.now)}
                self.patch("", "pods", pod["metadata"]["name"], {"status": {"phase": "Running", "conditions": [ready]}}, "status")
        self.settle()

    def progress(self) -> str:
        return str(condition(self.deployed(), "Progressing")["reason"])


def test_a_rollout_times_out_at_its_deadline_and_is_left_alone_afterwards() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 1, progressDeadlineSeconds=60))
    cluster.settle()
    assert cluster.pass_time(60) == 0
    assert cluster.progress() == "ReplicaSetUpdated"
    cluster.pass_time(1)
    assert cluster.progress() == "ProgressDeadlineExceeded"
    assert cluster.pass_time(3600) == 0
    cluster.start_pods()
    assert cluster.progress() == "NewReplicaSetAvailable", "pods that come late complete it all the same"


def test_a_pause_stops_the_deadline() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 1, progressDeadlineSeconds=60))
    cluster.settle()
    cluster.patch("apps", "deployments", "web", {"spec": {"paused": True}})
    cluster.settle()
    cluster.pass_time(600)
    assert cluster.progress() == "DeploymentPaused"
    cluster.patch("apps", "deployments", "web", {"spec": {"paused": False}})
    cluster.settle()
    cluster.pass_time(59)
    assert cluster.progress() == "DeploymentResumed"
    cluster.pass_time(2)
    assert cluster.progress() == "ProgressDeadlineExceeded"


def test_readiness_counts_as_availability_at_the_moment_it_has_lasted() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 1, minReadySeconds=30))
    cluster.settle()
    cluster.start_pods()
    cluster.pass_time(29)
    assert "availableReplicas" not in cluster.deployed()["status"]
    cluster.pass_time(1)
    assert cluster.deployed()["status"]["availableReplicas"] == 1


def test_a_refused_pod_is_told_in_both_statuses_and_tried_again() -> None:
    cluster = Cluster()
    cluster.resources.refuses_pods = True
    cluster.deploy(deployment("web", 1))
    cluster.settle()
    for item in (cluster.replica_sets()[0], cluster.deployed()):
        failure = condition(item, "ReplicaFailure")
        assert (failure["status"], failure["reason"], failure["message"]) == ("True", "FailedCreate", "exceeded quota: pods")
    cluster.resources.refuses_pods = False
    cluster.pass_time(1)
    cluster.start_pods()
    assert cluster.progress() == "NewReplicaSetAvailable"
    assert not condition(cluster.deployed(), "ReplicaFailure")


def test_a_name_that_another_has_counts_as_a_collision() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 1))
    cluster.settle()
    (made,) = cluster.replica_sets()
    taken = made["metadata"]["name"]
    delete(cluster.resources, cluster.kind("apps", "deployments"), "one", "web", DeleteOptions())
    stranger: dict[str, Any] = {"metadata": {"ownerReferences": [{**made["metadata"]["ownerReferences"][0], "uid": "stranger"}]}}
    cluster.patch("apps", "replicasets", taken, stranger)
    cluster.deploy(deployment("web", 1))
    cluster.settle()
    assert cluster.deployed()["status"]["collisionCount"] == 1
    assert len(cluster.replica_sets()) == 2


def test_controllers_begin_where_the_process_before_stopped() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 2))
    cluster.settle()
    cluster.start_pods()
    cluster.controllers = WorkloadControllers(cluster.resources)
    before = cluster.resources.store.version
    assert cluster.settle() == 2, "each workload is looked at once"
    assert cluster.resources.store.version == before, "and nothing is written again"


def test_pods_of_a_pool_bring_no_look() -> None:
    cluster = Cluster()
    cluster.deploy(deployment("web", 1))
    cluster.settle()
    owner = {"apiVersion": "acme.dev/v1alpha1", "kind": "InferencePool", "name": "m", "uid": "u", "controller": True}
    for number in range(50):
        metadata = {"name": f"engine-{number}", "labels": {"app": "web"}, "ownerReferences": [owner]}
        body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        cluster.resources.create(cluster.kind("", "pods"), "one", body, OPTIONS)
        cluster.patch("", "pods", f"engine-{number}", {"status": {"phase": "Running"}}, "status")
    assert cluster.settle() == 0
