"""A pool that adopts: running pods of a workload become instances, are drained, and are released as they were."""

from typing import Any

import pytest

from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_testing.worlds.operator_stages import VirtualStage
from fairlead_testing.worlds.workload_pods import left_as_they_were, run_workload, workload_pod

SELECTED: dict[str, Any] = {"replicas": 1, "roles": [{"name": "both", "selector": {"matchLabels": {"app": "vllm"}}}]}
NAMES = ("vllm-a", "vllm-b", "vllm-c")


async def adopted(*names: str) -> VirtualStage:
    """Return a pool that has adopted these pods."""
    stage = VirtualStage()
    run_workload(stage.cluster, *names)
    stage.apply(**SELECTED)
    await stage.settle()
    return stage


def states(stage: VirtualStage) -> dict[str, str]:
    """Return the state of every instance, as last reported to the control API."""
    return {one.id: one.state.value for one in stage.api.states[-1].instances}


def annotate(stage: VirtualStage, name: str, **marks: str | None) -> None:
    pod = stage.cluster.objects[Resource.PODS, name]
    for mark, value in marks.items():
        key = f"fairlead.dev/{mark.replace('_', '-')}"
        if value is None:
            pod["metadata"]["annotations"].pop(key)
        else:
            pod["metadata"]["annotations"][key] = value
    stage.cluster.put(Resource.PODS, pod)


def calls(stage: VirtualStage, verb: str, resource: Resource = Resource.PODS) -> list[str]:
    return [name for done, kind, name in stage.cluster.calls if (done, kind) == (verb, resource)]


async def test_running_pods_that_the_selector_finds_become_instances() -> None:
    stage = await adopted(*NAMES)
    assert states(stage) == dict.fromkeys(NAMES, "Serving")
    assert {one.address for one in stage.api.states[-1].instances} == {"127.0.0.9:8000"}
    assert {one.weight for one in stage.api.states[-1].instances} == {0.5}, "what the template says of the weight counts"
    assert stage.pool()["status"]["serving"] == 3
    assert stage.condition("Ready")["status"] == "True"
    assert stage.reasons().count("InstanceAdopted") == 3


async def test_nothing_is_made_beside_the_pool_and_no_pod_is_made_or_deleted() -> None:
    stage = await adopted(*NAMES)
    assert not any(stage.cluster.all(kind) for kind in (Resource.SERVICES, Resource.BUDGETS, Resource.ROLES))
    assert calls(stage, "create") == calls(stage, "delete") == []
    owners = {owner["kind"] for pod in stage.pods() for owner in pod["metadata"]["ownerReferences"]}
    assert owners == {"ReplicaSet"}


async def test_a_pod_that_the_workload_adds_is_adopted_and_one_that_it_deletes_goes() -> None:
    stage = await adopted(*NAMES)
    run_workload(stage.cluster, "vllm-d")
    del stage.cluster.objects[Resource.PODS, "vllm-a"]
    await stage.settle()
    await stage.settle()
    assert states(stage) == dict.fromkeys(("vllm-b", "vllm-c", "vllm-d"), "Serving")
    assert stage.condition("Ready")["status"] == "True"


async def test_a_pool_that_adopts_looks_for_new_pods_without_an_event() -> None:
    stage = await adopted(*NAMES)
    before = len(calls(stage, "find"))
    stage.now += 10
    await stage.round()
    assert len(calls(stage, "find")) > before


@pytest.mark.parametrize(
    "left_out",
    [
        {"deletionTimestamp": "2026-01-02T00:00:00Z"},
        {"labels": {"app": "vllm", "leaderworkerset.sigs.k8s.io/worker-index": "1"}},
    ],
)
async def test_pods_that_end_and_workers_of_a_group_are_no_instances(left_out: dict[str, Any]) -> None:
    stage = VirtualStage()
    pod = workload_pod("vllm-a")
    pod["metadata"] |= left_out
    stage.cluster.put(Resource.PODS, pod)
    stage.apply(**SELECTED)
    await stage.settle()
    assert stage.api.states[-1].instances == ()


async def test_the_leader_of_a_group_is_its_instance() -> None:
    stage = VirtualStage()
    run_workload(stage.cluster, "lws-0", **{"leaderworkerset.sigs.k8s.io/worker-index": "0"})
    run_workload(stage.cluster, "lws-0-1", **{"leaderworkerset.sigs.k8s.io/worker-index": "1"})
    stage.apply(**SELECTED)
    await stage.settle()
    assert states(stage) == {"lws-0": "Serving"}


async def test_a_selector_that_finds_nothing_is_told() -> None:
    stage = await adopted()
    assert stage.condition("Ready")["status"] == "False"
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "NoPodsSelected")
    assert "app=vllm" in found["message"]


async def test_a_drain_that_a_person_asks_for_empties_the_pod_and_leaves_it_until_that_is_taken_back() -> None:
    stage = await adopted(*NAMES)
    annotate(stage, "vllm-b", drain="true")
    for _ in range(5):
        await stage.settle()
        stage.now += 100
    assert states(stage) == {"vllm-a": "Serving", "vllm-b": "Draining", "vllm-c": "Serving"}
    assert calls(stage, "delete") == []
    annotate(stage, "vllm-b", drain=None)
    for _ in range(3):
        await stage.settle()
    assert states(stage)["vllm-b"] == "Serving"
    assert calls(stage, "create") == calls(stage, "delete") == []


async def test_a_failed_pod_is_left_to_its_workload() -> None:
    stage = await adopted(*NAMES)
    pod = stage.cluster.objects[Resource.PODS, "vllm-a"]
    pod["status"] = {"phase": "Failed", "reason": "Evicted"}
    stage.cluster.put(Resource.PODS, pod)
    for _ in range(4):
        stage.now += 1
        await stage.round()
    assert set(states(stage)) == {"vllm-b", "vllm-c"}
    assert calls(stage, "delete") == []
    left = stage.cluster.objects[Resource.PODS, "vllm-a"]["metadata"]
    assert set(left["labels"]) == {"app", "pod-template-hash"}


async def test_a_deleted_pool_drains_its_pods_and_leaves_them_as_they_were() -> None:
    stage = await adopted(*NAMES)
    annotate(stage, "vllm-b", cordoned="true", changed_by="ann", plan="p-1")
    await stage.settle()
    stage.api.in_flight = {"vllm-a": 1}
    stage.delete()
    for _ in range(3):
        stage.now += 1
        await stage.round()
    assert states(stage) == dict.fromkeys(NAMES, "Draining"), "requests in flight are waited for"
    stage.api.in_flight = {}
    for _ in range(3):
        stage.now += 1
        await stage.round()
    assert not stage.exists()
    assert [pod["metadata"]["name"] for pod in stage.pods()] == list(NAMES)
    assert left_as_they_were(stage.cluster)


async def test_a_pool_deleted_without_its_children_leaves_them_as_they_were_too() -> None:
    stage = await adopted(*NAMES)
    stage.pool()["metadata"]["finalizers"].append("orphan")
    stage.delete()
    for _ in range(3):
        stage.now += 1
        await stage.round()
    assert "fairlead.dev/finalizer" not in stage.pool()["metadata"]["finalizers"]
    assert left_as_they_were(stage.cluster)


async def test_a_pool_does_not_go_before_its_pods_are_released() -> None:
    stage = await adopted(*NAMES)
    stage.delete()
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", "no") if (verb, name) == ("get", "vllm-a") else None
    )
    for _ in range(40):
        stage.now += 1
        await stage.round()
    assert stage.exists()
    stage.cluster.refuse = lambda verb, resource, name: None
    for _ in range(400):
        stage.now += 1
        await stage.round()
        if not stage.exists():
            break
    assert not stage.exists()
    assert left_as_they_were(stage.cluster)


async def test_pods_that_a_new_selector_leaves_out_are_drained_and_left_as_they_were() -> None:
    stage = await adopted(*NAMES)
    run_workload(stage.cluster, "other", tier="new")
    stage.apply(**{**SELECTED, "roles": [{"name": "both", "selector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}]})
    for _ in range(3):
        await stage.settle()
    assert states(stage) == {"other": "Serving"}
    del stage.cluster.objects[Resource.PODS, "other"]
    assert left_as_they_were(stage.cluster)


async def test_a_new_selector_that_finds_nothing_takes_no_pod_out_of_service() -> None:
    stage = await adopted(*NAMES)
    stage.apply(**{**SELECTED, "roles": [{"name": "both", "selector": {"matchLabels": {"app": "vlm"}}}]})
    for _ in range(3):
        await stage.settle()
    assert states(stage) == dict.fromkeys(NAMES, "Serving")


async def test_a_pool_that_gets_a_template_replaces_its_pods_one_by_one_and_leaves_them_as_they_were() -> None:
    stage = await adopted(*NAMES)
    stage.apply(replicas=3, roles=[{"name": "both"}])
    for _ in range(10):
        await stage.settle()
        serving = [state for state in states(stage).values() if state in {"Serving", "Warming"}]
        assert len(serving) >= 3, "never fewer than wanted"
    assert not set(states(stage)) & set(NAMES)
    for pod in stage.pods():
        if pod["metadata"]["name"] not in NAMES:
            del stage.cluster.objects[Resource.PODS, pod["metadata"]["name"]]
    assert [pod["metadata"]["name"] for pod in stage.pods()] == list(NAMES)
    for pod in stage.pods():
        pod["status"] = workload_pod("x")["status"]
    assert left_as_they_were(stage.cluster)


async def test_of_two_pools_that_select_a_pod_one_has_it_and_the_other_says_so() -> None:
    stage = await adopted(*NAMES)
    rival = stage.cluster.put(Resource.POOLS, {"metadata": {"name": "rival", "namespace": "default"}})
    run_workload(stage.cluster, "taken")
    annotate(stage, "taken", adopted_by=rival["metadata"]["uid"])
    pod = stage.cluster.objects[Resource.PODS, "taken"]
    pod["metadata"]["labels"]["fairlead.dev/pool"] = "rival"
    stage.cluster.put(Resource.PODS, pod)
    await stage.settle()
    assert set(states(stage)) == set(NAMES)
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "ChildNotOurs")
    assert "taken" in found["message"]
    assert "rival" in found["message"]
    del stage.cluster.objects[Resource.POOLS, "rival"]
    for _ in range(60):
        stage.now += 10
        await stage.round()
    assert "taken" in states(stage), "a pool that is gone has no pods"
