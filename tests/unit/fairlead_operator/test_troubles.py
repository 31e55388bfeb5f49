"""Reconciling with obstacles: refusals, late answers, foreign objects, and leftovers of an earlier pool.

In virtual time.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable, Resource
from fairlead_operator.times import parse_time
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now

SPLIT = {"replicas": 1, "routing": {"policy": "static-pd"}, "roles": [{"name": "prefill"}, {"name": "decode"}]}
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
        "message": f"{QUOTA}; it is tried again at {next_try(stage)}, and at once after a change of the pool",
        "lastTransitionTime": "",
        "observedGeneration": 1,
    }
    refuse(stage, "another reason")
    stage.now += SETTINGS.pace.longest_retry
    await stage.round()
    assert stage.reasons() == ["ActionFailed", "ActionFailed"], "new words are told"


def next_try(stage: VirtualStage) -> str:
    """Return the time in the message of Degraded, which must be in the future."""
    told = stage.condition("Degraded")["message"].partition("it is tried again at ")[2][:20]
    assert stage.now < (parse_time(told) or 0.0) <= stage.now + SETTINGS.pace.longest_retry + 1, told
    return str(told)


CORRECTIONS: dict[str, dict[str, Any]] = {
    "template": {"engine": {"simulated": {"decodeStep": "30ms"}}},
    "number": {"replicas": 3},
    "annotation": {},
}


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("refused", [("create", Resource.PODS), ("create", Resource.SERVICES), ("create", Resource.BUDGETS)], ids=str)
async def test_after_a_correction_what_was_refused_is_tried_at_once(refused: tuple[str, Resource], correction: str) -> None:
    stage, tries = VirtualStage(), list[float]()

    def refuse_it(verb: str, resource: Resource, name: str) -> ClusterRefused | None:
        if (verb, resource) != refused:
            return None
        tries.append(stage.now)
        return ClusterRefused(403, "Forbidden", QUOTA)

    stage.cluster.refuse = refuse_it
    stage.apply()
    began = stage.now
    while stage.now < began + 600:
        stage.now += await stage.round() or 0.0
    stage.now = tries[-1] + 20
    before = len(tries)
    await stage.round()
    assert len(tries) == before, "the pause lasts"
    stage.apply(**CORRECTIONS[correction])
    if correction == "annotation":
        pool = stage.pool()
        pool["metadata"] |= {"generation": 1, "annotations": {"a": "person's"}}
        stage.cluster.put(Resource.POOLS, pool)
    for _ in range(2):
        stage.now += SETTINGS.pace.least
        await stage.round()
    assert len(tries) > before
    assert "tried again within seconds" in stage.condition("Degraded")["message"], "its row begins again"


async def test_a_failed_pod_with_a_corrected_template_is_replaced_at_once_and_without_its_failures() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1)
    await stage.settle()
    for _ in range(400):  # it fails again and again, so that pauses grow
        for pod in stage.pods():
            pod["status"] = {"phase": "Failed"}
        stage.now += 5
        await stage.round()
    (failed,) = stage.pods()
    assert int(failed["metadata"]["annotations"]["fairlead.dev/failures"]) > 3
    stage.apply(replicas=1, engine={"simulated": {"decodeStep": "30ms"}})
    for _ in range(3):
        stage.now += 1
        await stage.round()
    (fresh,) = stage.pods()
    assert fresh["metadata"]["name"] != failed["metadata"]["name"]
    assert fresh["metadata"]["annotations"].get("fairlead.dev/failures", "0") == "0"


def break_down(stage: VirtualStage, verb: str, resource: Resource, status: int | None) -> None:
    """Make the server answer these calls with an internal error, or (None) not at all."""
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
    assert stage.condition("Degraded")["reason"] == "ActionFailed"
    assert stage.condition("Degraded")["message"].startswith(f"{WEBHOOK}; it is tried again ")
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


FORBIDDEN = 'inferencepools.fairlead.dev "chat" is forbidden: cannot patch resource "inferencepools/status"'


async def test_while_its_status_cannot_be_written_a_pool_is_worked_on_and_an_event_tells_of_it() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", FORBIDDEN) if (verb, resource) == ("merge", Resource.POOLS) else None
    )
    failed = stage.pods()[0]
    failed["status"] = {"phase": "Failed"}
    for _ in range(20):
        stage.now += 1
        await stage.round()
    assert len(stage.pods()) == 2
    assert failed["metadata"]["name"] not in {pod["metadata"]["name"] for pod in stage.pods()}
    assert stage.events.count(("Warning", "ActionFailed", FORBIDDEN)) == 1
    assert FORBIDDEN in {event.message for event in stage.api.events}, "the history has it too"
    stage.cluster.refuse = lambda verb, resource, name: None
    assert stage.condition("Ready")["status"] == "True", "as it was last written"
    stage.now += SETTINGS.pace.longest_retry
    await stage.settle()
    assert stage.condition("Ready")["message"] == "1 of 2 instances serve"


def conflict(stage: VirtualStage, times: int) -> None:
    """Make this many writes to pods conflict with a write by somebody else."""
    left = [ClusterRefused(409, "Conflict", "the object has been modified")] * times
    stage.cluster.refuse = lambda verb, resource, name: left.pop() if (verb, resource) == ("merge", Resource.PODS) and left else None


async def test_a_write_that_meets_another_is_repeated_at_once_and_nobody_is_told() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    conflict(stage, 1)
    stage.pods()[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    await stage.round()
    assert [pod["metadata"]["annotations"]["fairlead.dev/state"] for pod in stage.pods()].count("Lost") == 1
    assert "ActionFailed" not in stage.reasons()
    assert "ActionFailed" not in stage.condition("Degraded")["reason"]


async def test_writes_that_meet_others_again_and_again_are_told_the_second_time() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    conflict(stage, 4)
    stage.pods()[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    told = []
    for _ in range(6):
        stage.now += 1
        await stage.round()
        told.append(stage.condition("Degraded")["reason"])
    assert told[:2] == ["AsExpected", "ActionFailed"]
    assert told[-1] == "InstancesLost", "then it went well"
    assert stage.reasons().count("ActionFailed") == 1


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


@pytest.mark.parametrize("status", [400, 403, 410, 422])
@pytest.mark.parametrize("resource", [Resource.PODS, Resource.ROLES])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_pool_whose_objects_cannot_be_read_says_so_once(resource: Resource, status: int, is_deleted: bool) -> None:
    stage = VirtualStage()
    stage.apply(**SPLIT)
    await stage.settle()
    stage.restart()
    stage.events.clear()
    if is_deleted:
        resource = Resource.PODS  # all that is read of a deleted pool
        stage.delete()
    stage.cluster.refuse = lambda verb, kind, name: (
        ClusterRefused(status, "Forbidden", f"{kind.name} is forbidden") if (verb, kind) == ("find", resource) else None
    )
    for number in range(5):
        stage.now += 1
        with pytest.raises(ClusterRefused):
            await stage.round()
        assert (stage.condition("Degraded")["status"] == "True") == (number > 0), "one refusal may pass by itself"
    assert f"cannot be read ({resource.name} is forbidden)" in stage.condition("Degraded")["message"]
    assert ("service account" in stage.condition("Degraded")["message"]) == (status == 403)
    assert stage.reasons() == ["ActionFailed"]
    stage.cluster.refuse = lambda verb, kind, name: None
    if not is_deleted:
        await stage.settle()
        assert stage.condition("Degraded")["status"] == "False"


async def test_a_round_that_breaks_is_told_once_and_the_next_that_does_not_takes_it_back() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    status = stage.pool()["status"]
    roles, status["roles"] = status["roles"], ["spoilt"]
    stage.restart()
    for _ in range(3):
        stage.now += 1
        with pytest.raises(TypeError):
            await stage.round()
    found = stage.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "OperatorFault")
    assert "TypeError: string indices must be integers" in found["message"]
    assert stage.reasons().count("OperatorFault") == 1
    assert [one["type"] for one in stage.pool()["status"]["conditions"]].count("Ready") == 1, "the others stay as they were"
    assert stage.api.events[-1].reason == "OperatorFault"
    stage.pool()["status"]["roles"] = roles
    stage.now += 1
    await stage.round()
    assert stage.condition("Degraded")["status"] == "False"


class Hanging(FakeCluster):
    """A cluster that does not answer for 35 s to writes that `hangs` names by (verb, resource)."""

    hangs: Callable[[str, Resource], bool] = staticmethod(lambda verb, resource: False)

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> dict[str, Any] | None:
        await self._wait("create", resource, body["metadata"]["name"])
        return await super().create(resource, namespace, body)

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        await self._wait("merge", resource, name)
        return await super().patch(resource, namespace, name, body, subresource=subresource)

    async def _wait(self, verb: str, resource: Resource, name: str) -> None:
        if self.hangs(verb, resource):
            self.calls.append((verb, resource, name))
            await asyncio.sleep(35)
            raise ClusterUnavailable(f"{verb}: no answer within 35 s", is_late=True)


async def hanging_stage(replicas: int) -> VirtualStage:
    """Return a settled pool whose clock is the event loop's."""
    stage = VirtualStage(cluster=Hanging())
    stage.apply(replicas=replicas)
    await stage.settle()
    began = stage.now - virtual_now()
    stage.clock = lambda: began + virtual_now()
    return stage


def test_while_a_webhook_hangs_that_creations_need_the_rest_of_the_round_is_done_and_told() -> None:
    async def story() -> None:
        stage = await hanging_stage(2)
        assert isinstance(stage.cluster, Hanging)
        stage.cluster.hangs = lambda verb, resource: (verb, resource) == ("create", Resource.PODS)
        stage.pods()[0]["status"] = {"phase": "Failed"}
        stage.apply(replicas=4)
        before, began = posts(stage), virtual_now()
        while virtual_now() < began + 600:
            await asyncio.sleep(await stage.round() or 0.0)
        assert len(stage.pods()) == 1, "the failed one was deleted though none could take its place"
        assert (stage.condition("Degraded")["reason"], stage.condition("InstancesReady")["status"]) == ("ActionFailed", "False")
        assert stage.reasons().count("ActionFailed") == 1
        assert 5 <= posts(stage) - before <= 9, "a pool does not wait for it most of the time"

    run_virtually(story())


def test_a_round_waits_once_and_tries_what_may_hang_too_only_for_a_moment() -> None:
    async def story() -> None:
        stage = await hanging_stage(3)
        assert isinstance(stage.cluster, Hanging)
        stage.cluster.hangs = lambda verb, resource: verb in {"create", "merge"} and resource is Resource.PODS
        for pod in stage.pods()[:2]:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        stage.apply(replicas=5)
        began, called = virtual_now(), len(stage.cluster.calls)
        await stage.round()
        assert virtual_now() - began == 38
        tried = [verb for verb, resource, _ in stage.cluster.calls[called:] if resource is Resource.PODS]
        assert tried.count("create") == tried.count("merge") == 1, "what is like it fares no better"
        assert stage.condition("Degraded")["message"].startswith("create: no answer within 35 s; it is tried again at ")
        assert stage.pool()["status"]["desired"] == 5

    run_virtually(story())


class Stale(FakeCluster):
    """A cluster that reads pool and pods as they were at `freeze`, but changes their present state."""

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


async def test_groups_in_a_cluster_without_leader_worker_sets_are_refused_with_the_remedy() -> None:
    stage = VirtualStage()
    stage.cluster.unknown.add(Resource.LEADER_WORKER_SETS)
    template = {"spec": {"containers": [{"name": "engine", "image": "engine:1"}]}}
    stage.apply(replicas=1, roles=[{"name": "both", "nodes": 2, "template": template}])
    await stage.round()
    assert stage.condition("Degraded")["reason"] == "ActionFailed"
    assert "install their controller (lws.sigs.k8s.io), or take nodes out of roles[]" in stage.condition("Degraded")["message"]
    assert posts(stage) == 0, "no single pod is made in place of a group"
