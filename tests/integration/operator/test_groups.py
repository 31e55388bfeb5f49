"""Instances of several nodes: the operator makes a LeaderWorkerSet for each. Its leader serves, and the group is one
instance.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.running.workloads import LEADER_WORKER_SETS, define_leader_worker_sets

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def groups(stage: Stage) -> Iterator[Stage]:
    define_leader_worker_sets(stage.client)
    stage.phases.selectors.append("fairlead.dev/group-of")
    yield stage
    for name in stage.made:
        if stage.pool(name) is not None:
            stage.delete(name)
    eventually(lambda: not members(stage), "no pod of a group is left")


def two_nodes(image: str = "engine:1", **role: Any) -> list[dict[str, Any]]:
    """Return a role whose instances span two nodes, with a template for its worker."""
    leader = {"spec": {"containers": [{"name": "engine", "image": image}]}}
    worker = {"spec": {"containers": [{"name": "engine", "image": "worker:1"}]}}
    return [{"name": "both", "nodes": 2, "template": leader, "workerTemplate": worker, **role}]


def sets(stage: Stage) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in stage.client.call("GET", LEADER_WORKER_SETS)["items"]}


def members(stage: Stage) -> dict[str, dict[str, Any]]:
    """Return every pod of a group."""
    found = stage.client.call("GET", f"{PODS}?labelSelector=fairlead.dev/group-of")["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def images(stage: Stage) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in members(stage).values())


def test_the_leader_of_each_group_is_an_instance(groups: Stage) -> None:
    groups.apply("wide", replicas=2, roles=two_nodes())
    groups.settle("wide", 2)
    assert groups.names("wide") == {f"{name}-0" for name in sets(groups)}
    assert set(members(groups)) == groups.names("wide") | {f"{name}-0-1" for name in sets(groups)}
    state = groups.told_state("default/wide")
    assert state is not None
    assert {one.id for one in state.instances} == groups.names("wide")
    assert {one.address for one in state.instances} == {f"{pod['status']['podIP']}:8000" for pod in groups.pods("wide")}
    assert images(groups) == ["engine:1", "engine:1", "worker:1", "worker:1"]
    budget = groups.client.call("GET", f"{BUDGETS}/wide-both")
    assert (budget["spec"]["minAvailable"], budget["status"]["expectedPods"], budget["status"]["disruptionsAllowed"]) == (3, 4, 1)
    assert groups.condition("wide", "Degraded")["status"] == "False", "no leader is a strange pod"


def test_the_cheapest_group_is_drained_and_goes_whole(groups: Stage) -> None:
    groups.apply("narrowing", replicas=2, roles=two_nodes())
    groups.settle("narrowing", 2)
    cheap, dear = sorted(groups.names("narrowing"))
    groups.api.state.pretence.sessions = {dear: 50, cheap: 1}
    groups.api.state.pretence.in_flight = {cheap: 1}
    groups.edit("narrowing", {"replicas": 1})
    eventually(lambda: groups.marked("narrowing") == {cheap}, "the group with few sessions is drained")
    assert {f"{cheap}-1", f"{dear}-1"} <= set(members(groups)), "its worker computes for what still runs"
    groups.api.state.pretence.in_flight = {}
    groups.settle("narrowing", 1)
    eventually(lambda: set(members(groups)) == {dear, f"{dear}-1"}, "leader and worker are gone")
    assert {f"{name}-0" for name in sets(groups)} == {dear}
    eventually(lambda: "Drained" in groups.told_reasons(), "the drain is told")


def test_a_rollout_replaces_one_whole_group_after_the_other(groups: Stage) -> None:
    groups.apply("renewed", replicas=2, roles=two_nodes())
    groups.settle("renewed", 2)
    before = groups.names("renewed")
    groups.edit("renewed", {"roles": two_nodes(image="engine:2")})
    seen = []

    def is_renewed() -> bool:
        seen.append(sum(1 for one in groups.pods("renewed") if not one["metadata"].get("deletionTimestamp")))
        return images(groups) == ["engine:2", "engine:2", "worker:1", "worker:1"]

    eventually(is_renewed, "every group is new")
    groups.settle("renewed", 2)
    assert not before & groups.names("renewed")
    assert max(seen) <= 3, "one more group than wanted"


def test_a_worker_that_restarts_costs_its_instance_and_the_group_comes_back_under_its_name(groups: Stage) -> None:
    groups.apply("restarted", replicas=1, roles=two_nodes())
    groups.settle("restarted", 1)
    [leader] = groups.pods("restarted")
    name = leader["metadata"]["name"]
    restarted = [{"name": "engine", "restartCount": 1, "ready": False, "image": "i", "imageID": "i"}]
    groups.client.merge(f"{PODS}/{name}-1/status", {"status": {"containerStatuses": restarted}})
    eventually(lambda: [pod["metadata"]["uid"] for pod in groups.pods("restarted")] not in ([], [leader["metadata"]["uid"]]), "it is new")
    groups.settle("restarted", 1)
    assert groups.names("restarted") == {name}
    assert groups.told_reasons().count("InstanceCreated") == 1, "nothing took its place"


def test_a_worker_that_no_node_takes_is_in_the_condition(groups: Stage) -> None:
    groups.phases.selectors.remove("fairlead.dev/group-of")
    groups.apply("halved", replicas=1, roles=two_nodes())
    [worker] = eventually(lambda: [name for name in members(groups) if name.endswith("-0-1")], "the worker is there")
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient nvidia.com/gpu"}
    groups.client.merge(f"{PODS}/{worker}/status", {"status": {"conditions": [said]}})
    eventually(lambda: groups.condition("halved", "Degraded").get("reason") == "Unschedulable", "the scheduler's word is told")
    assert groups.condition("halved", "Degraded")["message"] == f"{worker}: Unschedulable (0/1 nodes: Insufficient nvidia.com/gpu)"
    groups.phases.selectors.append("fairlead.dev/group-of")


def test_a_deleted_pool_leaves_no_group(groups: Stage) -> None:
    groups.apply("leaving", replicas=1, roles=two_nodes())
    groups.settle("leaving", 1)
    groups.delete("leaving")
    eventually(lambda: groups.pool("leaving") is None and not sets(groups) and not members(groups), "nothing is left")
