"""A pool scales the workload of its adopted pods. The removed pods are those that it emptied, at whatever write the
operator is killed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead.adoption_specs import ScaleTargetSpec, WorkloadKind
from fairlead.instances import Role
from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.observing.workloads import read_workload
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import VirtualStage
from fairlead_testing.worlds.workload_pods import PretendedDeployment, left_as_they_were

COST = "controller.kubernetes.io/pod-deletion-cost"


def scaled(replicas: int, *, kind: str = "Deployment", **spec: Any) -> dict[str, Any]:
    role = {
        "name": "both",
        "selector": {"matchLabels": {"app": "vllm"}},
        "scaleTargetRef": {"kind": kind, "name": "vllm"},
        "minReplicas": 1,
    }
    return {"replicas": replicas, "roles": [role], **spec}


async def moments(stage: VirtualStage, workload: PretendedDeployment, count: int = 12) -> None:
    """Run operator and workload for this many seconds."""
    for _ in range(count):
        stage.now += 1
        await stage.round()
        workload.work()


async def started(replicas: int, *, ordered: bool = False) -> tuple[VirtualStage, PretendedDeployment]:
    """Return a pool whose workload has this many pods, all of which serve."""
    stage = VirtualStage()
    workload = PretendedDeployment(stage, ordered=ordered)
    workload.declare(replicas)
    workload.work()
    stage.apply(**scaled(replicas, kind="StatefulSet" if ordered else "Deployment"))
    await moments(stage, workload)
    assert set(states(stage).values()) == {"Serving"}
    return stage, workload


def states(stage: VirtualStage) -> dict[str, str]:
    return {one.id: one.state.value for one in stage.api.states[-1].instances}


def costs(stage: VirtualStage) -> dict[str, str]:
    found = {pod["metadata"]["name"]: pod["metadata"]["annotations"].get(COST) for pod in stage.pods()}
    return {name: cost for name, cost in found.items() if cost is not None}


async def test_scaling_out_sets_the_workloads_number_and_adopts_its_new_pods() -> None:
    stage, workload = await started(2)
    stage.apply(**scaled(4))
    await moments(stage, workload, 40)
    assert workload.replicas == 4
    assert list(states(stage).values()) == ["Serving"] * 4
    assert stage.condition("Ready")["status"] == "True"


async def test_scaling_in_empties_the_coldest_pod_gives_it_the_least_cost_and_lowers_the_number_then() -> None:
    stage, workload = await started(3)
    stage.api.in_flight = {"vllm-1": 5, "vllm-2": 1, "vllm-3": 5}
    stage.apply(**scaled(2))
    await moments(stage, workload, 5)
    assert costs(stage) == {"vllm-2": "-2147483648"}, "the others keep what they have"
    assert workload.replicas == 3, "it waits for the request in flight"
    stage.api.in_flight = {"vllm-1": 5, "vllm-3": 5}
    await moments(stage, workload, 5)
    assert (workload.replicas, workload.ended) == (2, ["vllm-2"])
    assert states(stage) == {"vllm-1": "Serving", "vllm-3": "Serving"}
    assert "WorkloadScaled" in stage.reasons()


async def test_at_the_drain_timeout_the_number_is_lowered_all_the_same() -> None:
    stage, workload = await started(2)
    stage.apply(**scaled(1, drain={"timeout": "10s"}))
    stage.api.in_flight = {"vllm-1": 1, "vllm-2": 1}
    await moments(stage, workload, 8)
    assert workload.replicas == 2
    stage.now += 10
    await stage.round()
    assert workload.replicas == 1


async def test_of_a_stateful_set_the_highest_ordinals_go_however_warm_they_are() -> None:
    stage, workload = await started(3, ordered=True)
    stage.api.in_flight = {"vllm-1": 1, "vllm-2": 1}
    stage.apply(**scaled(1, kind="StatefulSet"))
    await moments(stage, workload, 5)
    assert states(stage) == {"vllm-0": "Serving", "vllm-1": "Draining", "vllm-2": "Draining"}
    assert costs(stage) == {}
    stage.api.in_flight = {}
    await moments(stage, workload, 5)
    assert workload.ended == ["vllm-2", "vllm-1"]
    assert states(stage) == {"vllm-0": "Serving"}


async def test_more_wanted_meanwhile_takes_the_drain_back_and_the_cost_with_it() -> None:
    stage, workload = await started(3)
    pod = stage.cluster.objects[Resource.PODS, "vllm-2"]
    pod["metadata"]["annotations"][COST] = "7"
    stage.cluster.put(Resource.PODS, pod)
    stage.api.in_flight = {"vllm-1": 5, "vllm-2": 1, "vllm-3": 5}
    stage.apply(**scaled(2))
    await moments(stage, workload, 3)
    assert costs(stage) == {"vllm-2": "-2147483648"}
    stage.apply(**scaled(3))
    await moments(stage, workload, 30)
    assert costs(stage) == {"vllm-2": "7"}, "what the team wrote"
    assert (workload.replicas, workload.ended) == (3, [])
    assert set(states(stage).values()) == {"Serving"}


async def test_where_another_pod_went_the_drained_one_serves_again() -> None:
    stage, workload = await started(3)
    stage.api.in_flight = {"vllm-1": 5, "vllm-2": 1, "vllm-3": 5}
    stage.apply(**scaled(2))
    await moments(stage, workload, 3)
    del stage.cluster.objects[Resource.PODS, "vllm-3"]
    workload.declare(2)
    stage.api.in_flight = {}
    await moments(stage, workload, 30)
    assert states(stage) == {"vllm-1": "Serving", "vllm-2": "Serving"}
    assert costs(stage) == {}


async def test_while_the_workload_replaces_its_pods_nothing_is_drained() -> None:
    stage, workload = await started(3)
    pod = stage.cluster.objects[Resource.PODS, "vllm-3"]
    pod["metadata"]["labels"]["pod-template-hash"] = "new"
    pod["metadata"]["ownerReferences"][0]["name"] = "vllm-new"
    stage.cluster.put(Resource.PODS, pod)
    stage.apply(**scaled(2))
    await moments(stage, workload, 10)
    assert set(states(stage).values()) == {"Serving"}
    assert workload.replicas == 3


def remove(stage: VirtualStage) -> None:
    del stage.cluster.objects[Resource.DEPLOYMENTS, "vllm"]


def add_an_autoscaler(stage: VirtualStage) -> None:
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm"}}
    stage.cluster.put(Resource.AUTOSCALERS, {"metadata": {"name": "team", "namespace": "default"}, "spec": spec})


def let_it_select_another_pod(stage: VirtualStage) -> None:
    pod = stage.cluster.objects[Resource.PODS, "vllm-1"]
    pod["metadata"]["ownerReferences"][0]["name"] = "other-5d4f8c7b9"
    stage.cluster.put(Resource.PODS, pod)


def refuse_to_tell(stage: VirtualStage, what: Resource) -> None:
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", f"{what.value[1]} is forbidden") if resource is what and verb in {"get", "find"} else None
    )


def refuse_its_scale(stage: VirtualStage) -> None:
    refuse_to_tell(stage, Resource.DEPLOYMENTS)


def refuse_autoscalers(stage: VirtualStage) -> None:
    refuse_to_tell(stage, Resource.AUTOSCALERS)


@pytest.mark.parametrize(
    ("trouble", "reason", "words"),
    [
        (refuse_its_scale, "ScaleTargetRefused", "deployments is forbidden"),
        (refuse_autoscalers, "ScaleTargetRefused", "horizontalpodautoscalers is forbidden"),
        (remove, "ScaleTargetMissing", "Deployment vllm does not exist"),
        (add_an_autoscaler, "ScaledByAutoscaler", "HorizontalPodAutoscaler team"),
        (let_it_select_another_pod, "ScaleTargetOfOtherPods", "vllm-1"),
    ],
)
async def test_what_must_not_be_scaled_is_not_and_the_condition_says_why(
    trouble: Callable[[VirtualStage], None], reason: str, words: str
) -> None:
    stage, workload = await started(3)
    stage.api.in_flight = {"vllm-1": 5, "vllm-2": 1, "vllm-3": 5}
    stage.apply(**scaled(2))
    await moments(stage, workload, 3)
    trouble(stage)
    for _ in range(30):
        stage.now += 1
        await stage.round()
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", reason)
    assert words in found["message"]
    assert set(states(stage).values()) == {"Serving"}, "the drain is cancelled"
    assert costs(stage) == {}
    assert workload.ended == []


def give_to_another_pool(stage: VirtualStage, *names: str) -> None:
    stage.cluster.put(Resource.POOLS, {"metadata": {"name": "other", "namespace": "default", "uid": "other-uid"}, "spec": {}})
    for name in names:
        pod = stage.cluster.objects[Resource.PODS, name]
        pod["metadata"]["labels"]["fairlead.dev/pool"] = "other"
        pod["metadata"]["annotations"]["fairlead.dev/adopted-by"] = "other-uid"
        stage.cluster.put(Resource.PODS, pod)


@pytest.mark.parametrize("wanted", [1, 6])
@pytest.mark.parametrize("theirs", [("vllm-1",), ("vllm-1", "vllm-2", "vllm-3")])
async def test_a_workload_with_pods_of_another_pool_is_not_scaled_beside_it(wanted: int, theirs: tuple[str, ...]) -> None:
    stage, workload = await started(3)
    give_to_another_pool(stage, *theirs)
    stage.apply(**scaled(wanted))
    await moments(stage, workload, 30)
    assert (workload.replicas, workload.ended, costs(stage)) == (3, [], {})
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "ChildNotOurs"), "who else has the pods is what to correct"
    reading = read_workload(
        Role.BOTH,
        ScaleTargetSpec(kind=WorkloadKind.DEPLOYMENT, name="vllm"),
        {"spec": {"replicas": 3}},
        [],
        [stage.cluster.objects[Resource.PODS, "vllm-1"]],
        [],
    )
    assert reading.workload is None
    assert reading.problem is not None
    assert reading.problem.reason == "ScaledByAnotherPool"


async def test_a_workload_of_whose_pods_the_role_has_none_is_not_scaled_out() -> None:
    stage = VirtualStage()
    workload = PretendedDeployment(stage)
    workload.declare(2)
    workload.work()
    for pod in stage.pods():
        pod["metadata"]["labels"]["app"] = "other"
        stage.cluster.put(Resource.PODS, pod)
    stage.cluster.objects[workload.resource, "vllm"]["status"] = {"replicas": 2}
    stage.apply(**scaled(4))
    for _ in range(10):
        stage.now += 1
        await stage.round()
    assert workload.replicas == 2
    assert stage.condition("Degraded")["reason"] == "NoPodsSelected"


async def test_a_pool_deleted_in_the_middle_of_a_scale_in_leaves_pods_and_number_as_they_were() -> None:
    stage, workload = await started(3)
    stage.api.in_flight = {"vllm-1": 5, "vllm-2": 1, "vllm-3": 5}
    stage.apply(**scaled(2))
    await moments(stage, workload, 3)
    stage.api.in_flight = {}
    stage.delete()
    await moments(stage, workload, 5)
    assert not stage.exists()
    assert workload.replicas == 3
    assert left_as_they_were(stage.cluster)


class KilledCluster(FakeCluster):
    """A cluster that ends the operator at its n-th write, before or after the write takes effect."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.kill_at: tuple[int, str] | None = None

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        number, self.writes = self.writes, self.writes + 1
        if self.kill_at == (number, "before"):
            raise ClusterUnavailable("killed")
        done = await super().patch(resource, namespace, name, body, subresource=subresource)
        if self.kill_at == (number, "after"):
            raise ClusterUnavailable("killed")
        return done


async def live(kill_at: tuple[int, str] | None) -> tuple[VirtualStage, PretendedDeployment, int]:
    """Adopt, scale out, scale in by two and delete, with a kill at one write.

    The fake Deployment asserts which pods it ends.
    """
    cluster = KilledCluster()
    cluster.kill_at = kill_at
    stage = VirtualStage(cluster=cluster)
    workload = PretendedDeployment(stage)
    workload.declare(3)
    workload.work()

    async def until(done: Callable[[], bool]) -> None:
        for _ in range(120):
            stage.now += 1
            try:
                await stage.round()
            except ClusterUnavailable:
                stage.restart()
            workload.work()
            if done():
                return
        raise AssertionError(f"not done after 120 seconds: {states(stage)}, {workload.replicas} replicas, {costs(stage)}")

    def serve(number: int) -> bool:
        told = stage.api.states[-1].instances if stage.api.states else ()
        return [one.state.value for one in told] == ["Serving"] * number and workload.replicas == number == len(stage.pods())

    stage.apply(**scaled(3))
    await until(lambda: serve(3))
    stage.apply(**scaled(5))
    await until(lambda: serve(5))
    stage.apply(**scaled(3))
    await until(lambda: serve(3))
    assert costs(stage) == {}
    stage.delete()
    await until(lambda: not stage.exists())
    assert left_as_they_were(cluster)
    assert workload.replicas == 3
    return stage, workload, cluster.writes


@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_the_operator_is_killed_the_next_one_ends_only_emptied_pods_and_comes_to_the_number(when: str) -> None:
    _, workload, writes = await live(None)
    assert writes > 25
    assert len(workload.ended) == 2
    for number in range(writes):
        _, workload, _ = await live((number, when))
        assert len(workload.ended) == 2
