"""Reconciling when something is in the way: refusals, late answers, objects of others, what an earlier pool left.

In virtual time.
"""

import copy
from typing import Any

import pytest

from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

QUOTA = "pods is forbidden: exceeded quota: gpus"
WEBHOOK = "POST /api/v1/namespaces/default/pods: 500 Internal error occurred: failed calling webhook"


def posts(stage: VirtualStage, resource: Resource = Resource.PODS) -> int:
    return sum(1 for verb, kind, _ in stage.cluster.calls if (verb, kind) == ("create", resource))


def refuse(stage: VirtualStage, words: str) -> None:
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", words) if (verb, resource) == ("create", Resource.PODS) else None
    )


async def test_a_refused_creation_is_told_once_and_tried_less_and_less_often() -> None:
    stage = VirtualStage()
    stage.apply(replicas=4)
    refuse(stage, QUOTA)
    began = stage.now
    while stage.now < began + 600:
        stage.now += await stage.round() or 0.0
    assert posts(stage) < 15, "it was 4 in each of 600 rounds"
    assert stage.reasons() == ["ActionFailed"]
    assert stage.events == [("Warning", "ActionFailed", QUOTA)]
    assert stage.condition("Degraded") | {"lastTransitionTime": "", "observedGeneration": 1} == {
        "type": "Degraded",
        "status": "True",
        "reason": "ActionFailed",
        "message": QUOTA,
        "lastTransitionTime": "",
        "observedGeneration": 1,
    }
    refuse(stage, "another reason")
    stage.now += SETTINGS.pace.longest_retry
    await stage.round()
    assert stage.reasons() == ["ActionFailed", "ActionFailed"], "new words are told"


def break_down(stage: VirtualStage, verb: str, resource: Resource, status: int | None) -> None:
    """The server answers these calls with an error of its own, or (None) not at all."""
    stage.cluster.refuse = lambda given, kind, name: ClusterUnavailable(WEBHOOK, status) if (given, kind) == (verb, resource) else None


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_error_that_the_server_answers_to_creations_leaves_the_rest_of_the_round_and_is_told(status: int) -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    break_down(stage, "create", Resource.PODS, status)
    stage.pods()[0]["status"] = {"phase": "Failed"}
    stage.apply(replicas=3)
    began, before = stage.now, posts(stage)
    while stage.now < began + 60:
        stage.now += await stage.round() or 0.0
    assert len(stage.pods()) == 1, "the failed one was deleted though none could take its place"
    assert stage.condition("InstancesReady")["status"] == "False"
    assert (stage.condition("Degraded")["reason"], stage.condition("Degraded")["message"]) == ("ActionFailed", WEBHOOK)
    assert stage.events.count(("Warning", "ActionFailed", WEBHOOK)) == 1
    assert 2 < posts(stage) - before < 12, "it is tried less and less often"
    break_down(stage, "no verb", Resource.PODS, status)
    stage.now += SETTINGS.pace.longest_retry
    await stage.settle()
    assert (len(stage.pods()), stage.condition("Degraded")["status"]) == (3, "False")


@pytest.mark.parametrize("status", [None, 401])
async def test_without_an_answer_nothing_more_is_tried_in_the_round(status: int | None) -> None:
    stage = VirtualStage()
    stage.apply(replicas=4)
    break_down(stage, "create", Resource.PODS, status)
    with pytest.raises(ClusterUnavailable):
        await stage.round()
    assert (posts(stage), stage.events) == (1, [])


async def test_a_deleted_pool_goes_though_every_write_to_its_pods_is_answered_with_an_error() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    break_down(stage, "merge", Resource.PODS, 500)
    stage.delete()
    deleted_at = stage.now
    while stage.exists():
        stage.now += await stage.round() or 0.0
        assert stage.now - deleted_at <= SETTINGS.pace.finalizing + 1
    assert stage.api.deleted != [], "the control API was told"


class Stale(FakeCluster):
    """Sees the pool and its pods as they were at `freeze`, and changes them as they are."""

    def freeze(self) -> None:
        self.pool = copy.deepcopy(self.objects[Resource.POOLS, "chat"])
        self.seen = copy.deepcopy(self.all(Resource.PODS))

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> dict[str, Any] | None:
        return self.pool if resource is Resource.POOLS else await super().get(resource, namespace, name, subresource=subresource)

    async def find(self, resource: Resource, namespace: str, selector: str) -> list[dict[str, Any]]:
        return self.seen


async def test_two_operators_that_see_the_same_make_the_same_pods() -> None:
    stage = VirtualStage()
    stage.apply(replicas=4)
    await stage.settle()
    late = Stale(stage.cluster.objects)
    other = VirtualStage(now=stage.now, cluster=late, api=stage.api)
    stage.apply(replicas=10)
    late.freeze()
    await stage.round()
    assert len(stage.pods()) == 10
    await other.round()
    assert posts(other) == 6, "it tried"
    assert len(stage.pods()) == 10
    assert stage.reasons().count("InstanceCreated") == 10, "nobody tells of a pod it did not make"


async def test_names_are_not_given_again_when_all_pods_are_gone() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    before = {pod["metadata"]["name"] for pod in stage.pods()}
    for name in before:
        del stage.cluster.objects[Resource.PODS, name]
    stage.restart()
    await stage.settle()
    assert len(stage.pods()) == 2
    assert not before & {pod["metadata"]["name"] for pod in stage.pods()}


async def test_one_late_answer_changes_no_condition_and_a_long_silence_does() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    before = stage.pool()["status"]["conditions"]
    stage.api.up = False
    await stage.round()
    stage.now += SETTINGS.pace.silence - 1
    await stage.round()
    assert stage.pool()["status"]["conditions"] == before
    stage.now += 1
    await stage.round()
    assert stage.condition("ControlPlaneReachable")["status"] == "False"


async def test_nothing_is_drained_by_an_answer_that_is_only_remembered() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.api.up = False
    stage.apply(replicas=1)
    await stage.round()
    assert all("fairlead.dev/draining-since" not in pod["metadata"]["annotations"] for pod in stage.pods())


async def test_a_silent_control_api_is_asked_less_and_less_often() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.api.up = False
    dues = [await stage.round() for _ in range(6)]
    assert dues == [1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(("resource", "name"), [(Resource.SERVICES, "chat"), (Resource.BUDGETS, "chat-both")])
async def test_a_deleted_or_altered_child_is_restored_when_an_event_tells_of_it(resource: Resource, name: str) -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    wanted = stage.cluster.objects[resource, name]["spec"]
    del stage.cluster.objects[resource, name]
    assert stage.reconciler is not None
    stage.reconciler.children_changed()
    await stage.round()
    assert stage.cluster.objects[resource, name]["spec"] == wanted
    child = stage.cluster.objects[resource, name]
    child["spec"] = child["spec"] | {"selector": {"app": "other"}}
    child["metadata"]["labels"] = {"fairlead.dev/pool": "chat", "team": "a"}
    assert stage.reconciler is not None
    stage.reconciler.children_changed()
    await stage.round()
    restored = stage.cluster.objects[resource, name]
    assert restored["spec"] == wanted
    assert restored["metadata"]["labels"] == {"fairlead.dev/pool": "chat", "team": "a", "app.kubernetes.io/managed-by": "fairlead"}


async def test_a_service_of_somebody_else_is_left_alone_and_named_and_the_pool_serves() -> None:
    stage = VirtualStage()
    theirs = {"metadata": {"name": "chat", "namespace": "default"}, "spec": {"selector": {"app": "chat"}, "ports": [{"port": 80}]}}
    stage.cluster.put(Resource.SERVICES, theirs)
    stage.apply()
    await stage.settle()
    stage.now += 600
    await stage.settle()
    assert stage.cluster.objects[Resource.SERVICES, "chat"]["spec"] == theirs["spec"]
    assert "ownerReferences" not in stage.cluster.objects[Resource.SERVICES, "chat"]["metadata"]
    assert (Resource.BUDGETS, "chat-both") in stage.cluster.objects
    assert stage.condition("Ready")["status"] == "True"
    assert stage.condition("Degraded")["reason"] == "ChildNotOurs"
    assert "Service default/chat exists and belongs to no pool" in stage.condition("Degraded")["message"]
    assert stage.reasons().count("ChildNotOurs") == 1
    del stage.cluster.objects[Resource.SERVICES, "chat"]
    stage.now += SETTINGS.pace.longest_retry
    await stage.settle()
    assert stage.condition("Degraded")["status"] == "False"
    assert stage.cluster.objects[Resource.SERVICES, "chat"]["metadata"]["ownerReferences"][0]["name"] == "chat"


async def test_what_an_earlier_pool_left_running_is_taken_up_again() -> None:
    left_behind = (Resource.PODS, Resource.SERVICES, Resource.BUDGETS, Resource.REVISIONS)
    stage = VirtualStage()
    stage.apply(replicas=3)
    await stage.settle()
    before = {pod["metadata"]["name"] for pod in stage.pods()}
    stage.pool()["metadata"]["finalizers"].append("orphan")
    stage.delete()
    await stage.round()
    del stage.cluster.objects[Resource.POOLS, "chat"]
    for resource in left_behind:
        for left in stage.cluster.all(resource):
            del left["metadata"]["ownerReferences"]
    stage.restart()
    stage.apply(replicas=3)
    await stage.settle()
    assert {pod["metadata"]["name"] for pod in stage.pods()} == before
    uid = stage.pool()["metadata"]["uid"]
    for resource in left_behind:
        assert {left["metadata"]["ownerReferences"][0]["uid"] for left in stage.cluster.all(resource)} == {uid}
    assert stage.condition("Degraded")["status"] == "False"
    assert stage.reasons().count("InstanceAdopted") == 3


async def test_a_strange_pod_with_the_pools_label_is_named_and_never_taken() -> None:
    stage = VirtualStage()
    stranger = {"metadata": {"name": "mine", "namespace": "default", "labels": {"fairlead.dev/pool": "chat"}}, "spec": {}}
    stage.cluster.put(Resource.PODS, stranger)
    stage.apply()
    for _ in range(8):
        for pod in stage.pods():
            pod["status"] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
        stage.now += 1
        await stage.round()
    assert len(stage.pods()) == 3
    assert "ownerReferences" not in stage.cluster.objects[Resource.PODS, "mine"]["metadata"]
    assert (stage.condition("Degraded")["reason"], stage.condition("Ready")["status"]) == ("StrangePods", "True")
    assert stage.condition("Degraded")["message"].startswith("mine:")


async def test_instances_that_end_in_a_foreground_deletion_are_told_to_the_routers_as_draining() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    for pod in stage.pods():
        pod["metadata"] |= {"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["kubelet still ends it"]}
    stage.delete()
    await stage.round()
    await stage.round()
    assert {item.state for item in stage.api.states[-1].instances} == {"Draining"}
