"""Nodes that will be removed: how the operator detects them, and what it does with their instances."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_operator.cluster import ClusterUnavailable, Resource
from fairlead_operator.observing.nodes import CONDITIONS, TAINTS, LeavingNodes, why_leaving
from fairlead_operator.settings import CORDONS, NO_NODES, TERMINATIONS
from fairlead_testing.examples import examples
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
HARMLESS = (
    UNSCHEDULABLE,
    "nvidia.com/gpu",
    "aws-node-termination-handler/rebalance-recommendation",
    "DeletionCandidateOfClusterAutoscaler",
)


def node(
    name: str = "gpu-1", *, taints: list[str] | None = None, conditions: dict[str, str] | None = None, cordoned: bool = False
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints or []], "unschedulable": cordoned},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in (conditions or {"Ready": "True"}).items()]},
    }


@given(
    st.lists(st.sampled_from([*TAINTS, *HARMLESS])),
    st.dictionaries(st.sampled_from([*CONDITIONS, "Ready", "FreezeScheduled"]), st.sampled_from(["True", "False", "Unknown"])),
    st.booleans(),
)
@examples(200)
def test_a_node_leaves_exactly_when_something_that_is_decided_says_so(
    taints: list[str], conditions: dict[str, str], cordoned: bool
) -> None:
    one = node(taints=taints, conditions=conditions, cordoned=cordoned)
    ends = bool(TAINTS.keys() & set(taints)) or any(conditions.get(kind) == "True" for kind in CONDITIONS)
    assert why_leaving(one, NO_NODES) == ""
    assert bool(why_leaving(one, TERMINATIONS)) == ends
    assert bool(why_leaving(one, CORDONS)) == (ends or cordoned)


def test_a_node_without_fields_and_one_that_is_gone_do_not_leave() -> None:
    assert why_leaving({"metadata": {"name": "n"}}, CORDONS) == why_leaving(None, CORDONS) == ""


class Stage(VirtualStage):
    """A pool whose first pod is on a node that can be tainted."""

    def restart(self) -> None:
        super().restart()
        assert self.reconciler is not None
        self.nodes = LeavingNodes(TERMINATIONS)
        self.reconciler._dependencies = replace(self.reconciler._dependencies, nodes=self.nodes)


async def running() -> Stage:
    stage = Stage()
    stage.restart()
    stage.cluster.put(Resource.NODES, node())
    stage.cluster.put(Resource.NODES, node("gpu-2"))
    stage.apply(replicas=2)
    await stage.settle()
    for number, pod in enumerate(stage.pods(), 1):
        pod["spec"]["nodeName"] = f"gpu-{number}"
        stage.cluster.put(Resource.PODS, pod)
    stage.now += SETTINGS.pace.longest_unread
    await stage.round()
    return stage


async def look(stage: Stage) -> None:
    assert stage.reconciler is not None
    await stage.nodes.look(stage.cluster, lambda _: stage.reconciler.changed() if stage.reconciler else None)


async def rounds(stage: Stage, count: int) -> None:
    for _ in range(count):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()


def names(stage: Stage) -> set[str]:
    return {pod["metadata"]["name"] for pod in stage.pods()}


async def test_the_instance_of_a_node_that_is_taken_away_is_drained_and_replaced_before_it_is_evicted() -> None:
    stage = await running()
    await look(stage)
    await rounds(stage, 3)
    first, second = (pod["metadata"]["name"] for pod in stage.pods())
    assert "NodeLeaves" not in stage.reasons()
    stage.cluster.put(Resource.NODES, node(taints=["karpenter.sh/disrupted"]))
    await look(stage)
    await rounds(stage, 1)
    assert {one.id: one.stays for one in stage.api.states[-1].instances} == {first: False, second: True}, "routers choose no heirs there"
    await rounds(stage, 60)
    assert first not in names(stage) and second in names(stage) and len(names(stage)) == 2
    assert stage.reasons().count("NodeLeaves") == 1
    told = next(message for _, reason, message in stage.events if reason == "NodeLeaves")
    assert told == f"node gpu-1 is going to be taken away (Karpenter removes it), so {first} is drained and replaced"


async def unready_rounds(stage: Stage, count: int) -> None:
    """Run rounds in which a new successor does not become ready."""
    for _ in range(count):
        stage.now += 1
        await stage.round()


def is_draining(stage: Stage, name: str) -> bool:
    pod = next(pod for pod in stage.pods() if pod["metadata"]["name"] == name)
    return "fairlead.dev/draining-since" in pod["metadata"]["annotations"]


async def test_a_restarted_operator_takes_no_such_drain_back_before_it_has_looked_and_then_only_if_the_node_stays() -> None:
    stage = await running()
    first = stage.pods()[0]["metadata"]["name"]
    stage.cluster.put(Resource.NODES, node(taints=["ToBeDeletedByClusterAutoscaler"]))
    await look(stage)
    stage.api.in_flight = {first: 1}
    await unready_rounds(stage, 3)
    assert is_draining(stage, first)
    stage.restart()
    await unready_rounds(stage, 3)
    assert is_draining(stage, first)
    await look(stage)
    await unready_rounds(stage, 2)
    assert is_draining(stage, first)
    stage.cluster.put(Resource.NODES, node())
    await look(stage)
    await unready_rounds(stage, 2)
    assert not is_draining(stage, first), "it was not taken away after all"


async def test_nodes_are_read_one_by_one_and_only_those_with_instances_and_a_failure_keeps_what_is_known() -> None:
    stage = await running()
    stage.cluster.put(Resource.NODES, node("cpu-1", taints=["karpenter.sh/disrupted"]))
    stage.cluster.calls.clear()
    await look(stage)
    assert [call for call in stage.cluster.calls if call[1] is Resource.NODES] == [
        ("get", Resource.NODES, "gpu-1"),
        ("get", Resource.NODES, "gpu-2"),
    ]
    stage.cluster.put(Resource.NODES, node(taints=["karpenter.sh/disrupted"]))
    await look(stage)
    stage.cluster.refuse = lambda verb, resource, name: ClusterUnavailable("down") if resource is Resource.NODES else None
    with pytest.raises(ClusterUnavailable):
        await look(stage)
    assert stage.nodes.why("gpu-1") == "Karpenter removes it"
    assert Resource.NODES.path("", "gpu-1") == "/api/v1/nodes/gpu-1"
