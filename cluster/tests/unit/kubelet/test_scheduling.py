"""Which pods a cordoned or tainted node takes."""

from typing import Any

import pytest

from processkube.kubelet.scheduling import refusal
from processkube.kubelet.statuses import unscheduled_message, unscheduled_status

GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
GONE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
SOFT = GPU | {"effect": "PreferNoSchedule"}
ALL = {"operator": "Exists"}
PREEMPTION = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
NODE = {
    "metadata": {"labels": {"gpu": "H100"}},
    "spec": {},
    "status": {"allocatable": {"cpu": "2", "memory": "8Ki", "nvidia.com/gpu": "2"}},
}


def told(node: dict[str, Any], *tolerations: dict[str, Any]) -> str | None:
    return refusal({"spec": node}, {"spec": {"tolerations": list(tolerations)} if tolerations else {}})


@pytest.mark.parametrize(
    ("node", "tolerations"),
    [
        ({}, ()),
        ({"taints": [SOFT]}, ()),
        ({"taints": [GPU]}, ({"key": "nvidia.com/gpu", "operator": "Exists"},)),
        ({"taints": [GPU]}, ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},)),
        ({"taints": [GONE]}, ({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},)),
        ({"taints": [GPU, GONE], "unschedulable": True}, (ALL,)),
        ({"unschedulable": True}, ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},)),
    ],
)
def test_a_pod_is_taken_by_a_node_that_repels_nothing_or_only_what_it_tolerates(
    node: dict[str, Any], tolerations: tuple[dict[str, Any], ...]
) -> None:
    assert told(node, *tolerations) is None


@pytest.mark.parametrize(
    ("node", "tolerations", "reason"),
    [
        ({"unschedulable": True}, (), "node(s) were unschedulable"),
        ({"unschedulable": True, "taints": [GPU]}, (), "node(s) were unschedulable"),
        ({"taints": [SOFT, GPU]}, (), "node(s) had untolerated taint {nvidia.com/gpu: present}"),
        ({"taints": [GPU]}, ({"key": "nvidia.com/gpu", "value": "absent"},), "node(s) had untolerated taint {nvidia.com/gpu: present}"),
        ({"taints": [GPU, GONE]}, ({"key": GPU["key"], "operator": "Exists"},), f"node(s) had untolerated taint {{{GONE['key']}: }}"),
    ],
)
def test_a_pod_that_is_not_taken_is_told_why_in_the_schedulers_words(
    node: dict[str, Any], tolerations: tuple[dict[str, Any], ...], reason: str
) -> None:
    assert told(node, *tolerations) == f"0/1 nodes are available: 1 {reason}. {PREEMPTION}"


def test_the_status_tells_the_reason_until_the_pod_is_scheduled() -> None:
    status = unscheduled_status("no node", {}, "t1")
    assert (status["phase"], unscheduled_message(status)) == ("Pending", "no node")
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert unscheduled_status("still none", status, "t2")["conditions"][0]["lastTransitionTime"] == "t1"
    assert unscheduled_message({"conditions": [{"type": "PodScheduled", "status": "True"}]}) is None
    assert unscheduled_message({}) is None


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def with_devices(number: int, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    return pod(containers=[{"name": "engine", "resources": {"limits": {name: str(number), "cpu": "64"}}}])


def on_port(number: int) -> dict[str, Any]:
    return pod(containers=[{"name": "engine", "ports": [{"containerPort": number, "hostPort": number}]}])


@pytest.mark.parametrize(
    ("wanted", "others"),
    [
        (pod(nodeSelector={"gpu": "H100"}), ()),
        (with_devices(2), ()),
        (with_devices(1), (with_devices(1),)),
        (pod(initContainers=with_devices(2)["spec"]["containers"], containers=[]), ()),
        (on_port(8000), (on_port(8001),)),
    ],
)
def test_a_pod_is_taken_by_a_node_with_the_labels_devices_and_ports_that_it_asks_for(
    wanted: dict[str, Any], others: tuple[dict[str, Any], ...]
) -> None:
    assert refusal(NODE, wanted, others) is None


@pytest.mark.parametrize(
    ("wanted", "others", "message"),
    [
        (pod(nodeSelector={"gpu": "A100"}), (), f"node(s) didn't match Pod's node affinity/selector. {PREEMPTION}"),
        (with_devices(3), (), f"Insufficient nvidia.com/gpu. {PREEMPTION}"),
        (with_devices(1, "rdma/ib"), (), f"Insufficient rdma/ib. {PREEMPTION}"),
        (with_devices(2), (with_devices(1),), f"Insufficient nvidia.com/gpu. {NO_VICTIMS}"),
        (pod(initContainers=with_devices(3)["spec"]["containers"]), (), f"Insufficient nvidia.com/gpu. {PREEMPTION}"),
        (on_port(8000), (on_port(8000),), f"node(s) didn't have free ports for the requested pod ports. {NO_VICTIMS}"),
        (pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]), (), f"cannot allocate all claims. {PREEMPTION}"),
    ],
)
def test_a_pod_is_refused_what_the_node_does_not_have(wanted: dict[str, Any], others: tuple[dict[str, Any], ...], message: str) -> None:
    assert refusal(NODE, wanted, others) == f"0/1 nodes are available: 1 {message}"


def test_a_pod_is_taken_once_each_of_its_claims_has_a_device() -> None:
    wanted = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu-0"}, {"name": "nic", "resourceClaimName": "nic-0"}])
    assert "cannot allocate all claims" in str(refusal(NODE, wanted, allocated={"gpu-0"}))
    assert refusal(NODE, wanted, allocated={"gpu-0", "nic-0"}) is None
