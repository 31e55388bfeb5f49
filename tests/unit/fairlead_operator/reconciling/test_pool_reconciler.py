"""Reconciling on a fake cluster, in virtual time."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations, PoolState
from fairlead.reconciling.backoff import replaced_at
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_operator.observing.pods import read_pods
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.worlds.operator_stages import KEY, SETTINGS, FakeControlPlane, VirtualStage


async def test_a_new_pool_settles_and_is_then_left_alone() -> None:
    stage = VirtualStage()
    stage.apply(replicas=3)
    assert await stage.settle() == SETTINGS.pace.settled
    assert len(stage.pods()) == 3
    assert stage.condition("Ready")["status"] == "True"
    assert stage.pool()["metadata"]["finalizers"] == ["fairlead.dev/finalizer"]
    stage.cluster.calls.clear()
    stage.now += 10
    assert await stage.round() == SETTINGS.pace.settled
    assert stage.cluster.calls == [], "nothing was heard of it"
    stage.now += SETTINGS.pace.longest_unread
    await stage.round()
    assert {verb for verb, _, _ in stage.cluster.calls} == {"get", "find"}, "a settled pool is only read"


async def test_a_settled_pool_is_told_to_the_control_api_with_the_time_of_each_round() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    await stage.settle()
    for _ in range(3):
        stage.now += 10
        await stage.round()
        schedules = stage.api.states[-1].schedules
        assert schedules is not None
        assert schedules.at.timestamp() == stage.now


async def test_the_control_api_never_gets_figures_of_a_settled_pool_that_are_older_than_its_last_answer() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2, slo={"ttft": "1s", "percentile": 90})
    stage.api.slo_attainment = 0.91
    await stage.settle()
    for attained in (0.92, 0.95, 0.97, 0.99):
        last, stage.api.slo_attainment = stage.api.slo_attainment, attained
        stage.now += 10
        await stage.round()
        told = next(one for one in stage.api.states[-1].conditions if one["type"] == "SLOMet")
        assert told["message"].startswith(f"{last:.0%} of the requests")
        assert told["lastTransitionTime"] == stage.condition("SLOMet")["lastTransitionTime"]


def status_writes(stage: VirtualStage) -> int:
    return stage.cluster.calls.count(("merge", Resource.POOLS, "chat"))


async def test_nulls_anywhere_in_a_template_leave_the_pool_alone_once_it_settled() -> None:
    stage = VirtualStage()
    container = {"name": "engine", "image": "vllm:1", "resources": None, "env": [{"name": "A", "value": "b", "valueFrom": None}]}
    stage.apply(engine={"type": "vllm"}, roles=[{"name": "both", "template": {"metadata": None, "spec": {"containers": [container]}}}])
    assert await stage.settle() == SETTINGS.pace.settled
    before = status_writes(stage)
    for _ in range(10):
        stage.now += SETTINGS.pace.longest_unread
        assert await stage.round() == SETTINGS.pace.settled
    assert status_writes(stage) == before
    assert {"A", "POD_NAME", "POD_IP"} == {item["name"] for item in stage.pods()[0]["spec"]["containers"][0]["env"]}


class Forgetful(FakeCluster):
    """A cluster that stores all of a status except the ring. As a server does, it makes no new version if nothing else
    changed.
    """

    async def patch(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], *, subresource: str = "") -> bool:
        before = self.objects[resource, name]
        done = await super().patch(resource, namespace, name, body, subresource=subresource)
        if resource is Resource.POOLS:
            stored = self.objects[resource, name]
            stored.get("status", {}).pop("ring", None)
            if {**stored, "metadata": None} == {**before, "metadata": None}:
                stored["metadata"] = before["metadata"]
        return done


async def test_a_status_that_the_server_stores_in_another_form_is_not_written_again_and_again() -> None:
    stage = VirtualStage(cluster=Forgetful())
    stage.apply()
    assert await stage.settle() == SETTINGS.pace.settled
    before = status_writes(stage)
    for _ in range(10):
        stage.now += SETTINGS.pace.longest_unread
        await stage.round()
    assert status_writes(stage) <= before + 1


async def test_an_answer_that_changes_a_condition_of_a_settled_pool_is_in_the_status_at_once() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2, slo={"ttft": "1s", "percentile": 90})
    stage.api.slo_attainment = 0.95
    await stage.settle()
    assert stage.condition("SLOMet")["status"] == "True"
    stage.now += 10
    stage.api.slo_attainment = 0.93
    stage.cluster.calls.clear()
    await stage.round()
    assert stage.cluster.calls == [], "a figure waits for the next reading"
    stage.now += 10
    stage.api.slo_attainment = 0.5
    await stage.round()
    assert stage.condition("SLOMet")["status"] == "False"


async def test_a_settled_pool_that_hears_nothing_from_the_control_api_is_read_and_says_so() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    await stage.settle()
    stage.api.up = False
    for _ in range(4):
        stage.now += 10
        await stage.round()
    assert stage.condition("ControlPlaneReachable")["status"] == "False"


async def test_a_table_that_a_router_has_not_taken_unsettles_a_pool() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    await stage.settle()
    stage.api.acknowledges = False
    stage.now += 10
    assert await stage.round() == SETTINGS.pace.busy
    assert stage.condition("RingSynced")["status"] == "False"


@dataclass(slots=True)
class MeddledControlPlane(FakeControlPlane):
    """A control plane that runs somebody else's action while it receives a state."""

    meddle: Callable[[], None] = lambda: None

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        self.meddle()
        return await FakeControlPlane.put_state(self, pool, state)


async def test_a_settled_pool_replaces_its_lost_instance_when_its_pause_is_over() -> None:
    for failures in range(4):
        stage = VirtualStage()
        stage.apply(replicas=2)
        await stage.settle()
        lost = stage.pods()[0]
        lost["metadata"]["annotations"]["fairlead.dev/failures"] = str(failures)
        lost["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        await stage.round()
        began, seen = stage.now, next(pod for pod in read_pods(stage.pods(), "uid-1") if pod.instance.id == lost["metadata"]["name"])
        pause = replaced_at(seen.instance, SETTINGS.limits) - began
        while any(pod["metadata"]["name"] == lost["metadata"]["name"] for pod in stage.pods()):
            stage.now += await stage.round() or 0.0
        assert pause <= stage.now - began <= pause + 2 * SETTINGS.pace.busy


async def test_an_event_during_the_exchange_of_a_settled_pool_is_not_lost() -> None:
    api = MeddledControlPlane()
    stage = VirtualStage(api=api)
    stage.apply(replicas=2)
    await stage.settle()
    assert stage.reconciler is not None
    heard = stage.reconciler.changed

    def scale() -> None:
        stage.apply(replicas=3)
        heard()

    api.meddle = scale
    stage.now += 10
    await stage.round()
    assert len(stage.pods()) == 3


async def test_a_restarted_operator_has_nothing_to_do_for_a_settled_pool() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    before = [pod["metadata"] for pod in stage.pods()]
    stage.restart()
    await stage.round()
    assert [pod["metadata"] for pod in stage.pods()] == before


async def test_what_changed_is_told_once_with_before_and_after() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.apply(routing={"policy": "ear"}, replicas=3)
    await stage.settle()
    [change] = [event for event in stage.api.events if event.reason == "PolicyChanged"]
    assert change.before is not None
    assert change.after is not None
    assert (change.before["policy"], change.after["policy"]) == ("fairlead", "ear")
    assert "kubectl" in change.message
    assert stage.reasons().count("PolicyChanged") == 1
    [role] = stage.pool()["status"]["roles"]
    assert role["lastScale"] | {"at": ""} == {"at": "", "from": 2, "to": 3, "reason": "spec.replicas set by kubectl"}
    [scaled] = [event for event in stage.api.events if event.reason == "ScalingUp"]
    assert (scaled.before, scaled.after) == ({"replicas": 2}, {"replicas": 3})
    assert "SLOChanged" not in stage.reasons()


async def test_a_refused_spec_is_told_once_and_the_api_hears_the_problem() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.apply(slo={"ttft": "0s"}, replicas=9)
    for _ in range(3):
        await stage.round()
    assert stage.condition("Ready")["reason"] == "InvalidSpec"
    assert stage.reasons().count("SpecRefused") == 1
    problem = stage.api.states[-1].problem
    assert problem is not None
    assert problem.startswith("spec.slo.ttft")
    assert stage.api.states[-1].spec["replicas"] == 9, "the API is told the object's own spec"
    assert len(stage.pods()) == 2
    stage.apply(slo={"ttft": "-1"})
    await stage.round()
    await stage.round()
    assert stage.reasons().count("SpecRefused") == 2, "another generation is another refusal"
    stage.apply()
    await stage.settle()
    assert stage.reasons().count("SpecAccepted") == 1


async def test_a_first_spec_that_is_refused_creates_nothing() -> None:
    stage = VirtualStage()
    stage.apply(routing={"policy": "dualmap", "parameters": {"nonsense": 1}})
    await stage.round()
    await stage.round()
    assert stage.pods() == []
    assert stage.condition("Ready")["reason"] == "InvalidRouting"
    assert "nonsense" in stage.condition("Ready")["message"]
    assert (stage.pool()["status"]["desired"], stage.api.states[-1].desired) == (0, {"both": 0}), "both tell of as many"


async def test_a_refused_pod_is_named_and_tried_again() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1)
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", "exceeded quota: gpus") if (verb, resource) == ("create", Resource.PODS) else None
    )
    assert await stage.round() == SETTINGS.pace.busy
    assert stage.condition("Degraded")["reason"] == "ActionFailed"
    assert "exceeded quota" in stage.condition("Degraded")["message"]
    stage.cluster.refuse = lambda verb, resource, name: None
    await stage.settle()
    assert stage.condition("Ready")["status"] == "True"
    assert stage.condition("Degraded")["status"] == "False"


async def test_history_waits_for_the_control_api_and_arrives_in_order() -> None:
    stage = VirtualStage()
    stage.api.up = False
    stage.apply()
    await stage.settle()
    stage.now += SETTINGS.pace.silence
    await stage.round()
    assert stage.api.events == []
    assert stage.condition("ControlPlaneReachable")["status"] == "False"
    assert stage.condition("InstancesReady")["reason"] == "WaitingForControlPlane"
    stage.api.up = True
    await stage.settle()
    assert [event.reason for event in stage.api.events] == ["InstanceCreated", "InstanceCreated"]
    assert stage.condition("Ready")["status"] == "True"


async def test_history_the_control_api_will_never_take_does_not_hold_up_the_rest() -> None:
    stage = VirtualStage()
    stage.api.refuses_events = True
    stage.apply()
    await stage.settle()
    stage.api.refuses_events = False
    stage.apply(slo={"ttft": "1s"})
    await stage.settle()
    assert [event.reason for event in stage.api.events] == ["SLOChanged"]


async def test_figures_alone_are_written_no_more_often_than_a_settled_pool_is_looked_at() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.now += 10
    for step in range(40):
        stage.api.attainment = 0.95 + step / 1000
        stage.now += 0.5
        await stage.round()
    writes = [call for call in stage.cluster.calls if call == ("merge", Resource.POOLS, "chat")]
    stage.cluster.calls.clear()
    assert stage.condition("SLOMet")["status"] == "True"
    assert len(writes) < 12


async def test_the_control_api_hears_why_an_instance_is_in_its_state() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    assert {(item.state, item.reason) for item in stage.api.states[-1].instances} == {("Serving", "TableAcknowledged")}
    stage.api.in_flight = {pod["metadata"]["name"]: 1 for pod in stage.pods()}
    stage.apply(replicas=1)
    await stage.round()
    await stage.round()
    assert ("Draining", "ScaledDown") in {(item.state, item.reason) for item in stage.api.states[-1].instances}


async def test_the_event_of_each_drain_has_the_cost_of_that_instance() -> None:
    stage = VirtualStage()
    stage.apply(replicas=3)
    await stage.settle()
    stage.api.in_flight = {pod["metadata"]["name"]: number for number, pod in enumerate(stage.pods(), start=4)}
    stage.apply(replicas=1)
    await stage.round()
    words = sorted(message.partition("(ScaledDown); ")[2] for _, reason, message in stage.events if reason == "Draining")
    assert words == [f"the drain's cost in disturbed requests: {cost}" for cost in ("4.0", "5.0")]


async def test_a_namesakes_pods_are_not_touched() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1)
    await stage.settle()
    [pod] = stage.pods()
    foreign = {"metadata": pod["metadata"] | {"name": "chat-bother", "ownerReferences": [{"uid": "another"}]}, "spec": {}}
    stage.cluster.put(Resource.PODS, foreign)
    await stage.settle()
    assert len(stage.pods()) == 2
    assert [instance.id for instance in stage.api.states[-1].instances] == [pod["metadata"]["name"]]


async def test_a_deleted_pool_waits_for_its_requests_and_then_tells_the_api() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.api.in_flight = {pod["metadata"]["name"]: 1 for pod in stage.pods()}
    stage.delete()
    for _ in range(3):
        stage.now += 1
        await stage.round()
    assert stage.exists()
    assert {instance.state for instance in stage.api.states[-1].instances} == {"Draining"}
    stage.api.in_flight = {}
    await stage.round()
    assert not stage.exists()
    assert stage.pods() == []
    assert stage.api.deleted == [KEY]
    assert await stage.round() is None


async def test_deletion_waits_for_a_silent_control_api_thirty_seconds_at_most_and_tells_it_later() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.api.up = False
    stage.delete()
    deleted_at = stage.now
    while stage.exists():
        stage.now += await stage.round() or 0.0
        assert stage.now - deleted_at <= 24
    assert await stage.round() == SETTINGS.pace.settled, "the API still has to be told"
    stage.api.up = True
    assert await stage.round() is None
    assert stage.api.deleted == [KEY]


async def test_a_pool_deleted_with_orphaned_pods_leaves_them_serving() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.pool()["metadata"]["finalizers"].append("orphan")
    stage.delete()
    await stage.round()
    assert stage.api.deleted == [KEY]
    assert stage.pool()["metadata"]["finalizers"] == ["orphan"]
    assert all("fairlead.dev/draining-since" not in pod["metadata"]["annotations"] for pod in stage.pods())


async def test_routers_that_had_no_time_to_report_after_an_outage_are_not_taken_for_absent() -> None:
    stage = VirtualStage()
    stage.apply()
    await stage.settle()
    stage.api.in_flight = {pod["metadata"]["name"]: 1 for pod in stage.pods()}
    stage.apply(replicas=1)
    await stage.round()
    stage.api.up = False
    stage.now += 30
    await stage.round()
    stage.api.up, stage.api.live_routers = True, 0
    for _ in range(9):
        await stage.round()
        stage.now += 1
    assert len(stage.pods()) == 2, "its requests may still run"
    stage.now += 2
    await stage.round()
    assert len(stage.pods()) == 1, "ten seconds without a word: there is no router"


async def test_without_any_router_a_new_pool_becomes_ready_at_once() -> None:
    stage = VirtualStage()
    stage.api.live_routers = 0
    stage.api.acknowledges = False
    stage.apply()
    began = stage.now
    while not stage.pods() or stage.condition("Ready")["status"] != "True":
        stage.pods_become_ready()
        await stage.round()
        stage.now += 0.1
    assert stage.now - began < 2


async def test_a_cordoned_pod_leaves_the_ring_and_serves_again_when_the_annotation_goes() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    await stage.settle()
    first = stage.pods()[0]
    first["metadata"]["annotations"]["fairlead.dev/cordoned"] = "true"
    for _ in range(3):
        await stage.round()
    assert [item.state for item in stage.api.states[-1].instances] == ["Cordoned", "Serving"]
    assert stage.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "False",
        "reason": "InstancesCordoned",
        "message": "1 of 2 instances serve, 1 cordoned",
        "observedGeneration": 1,
        "lastTransitionTime": "",
    }
    assert len(stage.pods()) == 2, "it is not replaced"
    del stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/cordoned"]
    await stage.settle()
    assert stage.condition("Ready")["status"] == "True"
    assert stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/state-reason"] == "Uncordoned"


PREFILL_DECODE = [{"name": "prefill", "replicas": 3}, {"name": "decode", "minReplicas": 2}]


async def test_a_pool_of_prefill_and_decode_gets_both_and_each_has_its_budget() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1, roles=PREFILL_DECODE, routing={"policy": "static-pd"})
    assert await stage.settle() == SETTINGS.pace.settled
    assert Counter(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in stage.pods()) == {"prefill": 3, "decode": 2}
    assert len({pod["metadata"]["annotations"]["fairlead.dev/ordinal"] for pod in stage.pods()}) == 5
    assert stage.condition("Ready")["message"] == "3 of 3 prefill instances serve; 2 of 2 decode instances serve"
    budgets = {budget["metadata"]["name"]: budget["spec"]["minAvailable"] for budget in stage.cluster.all(Resource.BUDGETS)}
    assert budgets == {"chat-prefill": 2, "chat-decode": 1}
    status = stage.pool()["status"]
    assert [(role["name"], role["desired"], role["ready"]) for role in status["roles"]] == [("prefill", 3, 3), ("decode", 2, 2)]
    assert (status["desired"], status["replicas"]) == (5, 5)
    assert {item.role.value for item in stage.api.states[-1].instances} == {"prefill", "decode"}
    assert stage.api.states[-1].desired == {"prefill": 3, "decode": 2}


async def test_one_role_is_scaled_and_the_other_left_alone() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1, roles=PREFILL_DECODE)
    await stage.settle()
    decode = [pod["metadata"]["name"] for pod in stage.pods() if pod["metadata"]["labels"]["llm-d.ai/role"] == "decode"]
    stage.apply(replicas=1, roles=[{"name": "prefill", "replicas": 1}, {"name": "decode", "minReplicas": 2}])
    await stage.settle()
    assert Counter(pod["metadata"]["labels"]["llm-d.ai/role"] for pod in stage.pods()) == {"prefill": 1, "decode": 2}
    assert set(decode) < {pod["metadata"]["name"] for pod in stage.pods()}
    assert stage.pool()["status"]["desired"] == 3
    prefill, decoding = stage.pool()["status"]["roles"]
    assert prefill["lastScale"] | {"at": ""} == {"at": "", "from": 3, "to": 1, "reason": "roles[prefill].replicas set by kubectl"}
    assert "lastScale" not in decoding
    [scaled] = [event for event in stage.api.events if event.reason == "ScalingDown"]
    assert scaled.message == "Prefill instances wanted: 3 → 1 (roles[prefill].replicas set by kubectl)"
    assert (scaled.before, scaled.after) == ({"role": "prefill", "replicas": 3}, {"role": "prefill", "replicas": 1})
    [budget] = [item for item in stage.cluster.all(Resource.BUDGETS) if item["metadata"]["name"] == "chat-prefill"]
    assert budget["spec"]["minAvailable"] == 0


async def test_a_policy_that_needs_both_roles_is_refused_in_a_pool_of_one() -> None:
    stage = VirtualStage()
    stage.apply(routing={"policy": "static-pd"})
    await stage.round()
    await stage.round()
    assert stage.condition("Ready")["reason"] == "InvalidRouting"
    assert "prefill" in stage.condition("Ready")["message"]


async def test_while_instances_drain_their_budget_still_lets_one_at_a_time_go() -> None:
    """The cluster counts ready pods and does not distinguish those that stay from those that drain."""
    stage = VirtualStage()
    stage.apply(replicas=6)
    await stage.settle()
    stage.api.in_flight = {pod["metadata"]["name"]: 1 for pod in stage.pods()}

    def may_go() -> int:
        [budget] = stage.cluster.all(Resource.BUDGETS)
        ready = [pod for pod in stage.pods() if pod["status"]["conditions"][0]["status"] == "True"]
        return len(ready) - int(budget["spec"]["minAvailable"])

    stage.apply(replicas=4)
    for _ in range(5):
        stage.now += 1
        await stage.round()
        assert may_go() == 1
    draining = [pod for pod in stage.pods() if "fairlead.dev/draining-since" in pod["metadata"]["annotations"]]
    assert len(draining) == 2
    draining[0]["status"]["conditions"][0]["status"] = "False"
    await stage.round()
    assert may_go() == 1, "one that is not ready does not count there"
    stage.api.in_flight = {}
    for _ in range(5):
        stage.now += 1
        await stage.round()
    assert (len(stage.pods()), may_go()) == (4, 1)


async def test_a_budget_of_an_earlier_version_counts_from_the_pools_scale_no_longer() -> None:
    stage = VirtualStage()
    stage.apply(replicas=3)
    await stage.settle()
    [budget] = stage.cluster.all(Resource.BUDGETS)
    budget["spec"] = {"maxUnavailable": 1, "selector": budget["spec"]["selector"]}
    stage.cluster.put(Resource.BUDGETS, budget)
    stage.restart()
    await stage.settle()
    [budget] = stage.cluster.all(Resource.BUDGETS)
    assert budget["spec"]["minAvailable"] == 2
    assert "maxUnavailable" not in budget["spec"]


async def test_the_budgets_of_roles_that_an_earlier_pool_had_are_deleted() -> None:
    stage = VirtualStage()
    stage.apply()
    labels = {"fairlead.dev/pool": "chat", "app.kubernetes.io/managed-by": "fairlead"}
    stage.cluster.put(Resource.BUDGETS, {"metadata": {"name": "chat-decode", "labels": labels}, "spec": {}})
    stage.cluster.put(Resource.BUDGETS, {"metadata": {"name": "of-a-person", "labels": {"fairlead.dev/pool": "chat"}}, "spec": {}})
    await stage.settle()
    stage.now += SETTINGS.pace.children
    await stage.round()
    assert [budget["metadata"]["name"] for budget in stage.cluster.all(Resource.BUDGETS)] == ["chat-both", "of-a-person"]


async def test_a_new_instance_enters_the_ring_in_steps_beside_one_that_served_for_long() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1)
    await stage.settle()
    stage.now += 60
    stage.apply(replicas=2)
    seen: list[tuple[float, int]] = []
    for _ in range(30):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()
        newest = stage.api.states[-1].instances[-1]
        if newest.state == "Warming":
            seen.append((newest.weight, stage.pool()["status"]["ring"]["anchors"]))
    assert list(dict.fromkeys(seen)) == [(0.25, 200), (0.4375, 230), (0.625, 260), (0.8125, 290), (1.0, 320)]
    assert stage.condition("Ready")["status"] == "True"
    assert stage.pool()["status"]["ring"]["anchors"] == 320


async def test_a_weight_that_a_person_declares_is_reported_and_nonsense_is_not() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2)
    await stage.settle()
    first, second = stage.pods()
    first["metadata"]["annotations"]["fairlead.dev/weight"] = "0.5"
    second["metadata"]["annotations"]["fairlead.dev/weight"] = "heavy"
    await stage.round()
    assert [item.weight for item in stage.api.states[-1].instances] == [0.5, 1.0]
    assert stage.pool()["status"]["ring"]["anchors"] == 240


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_gap_in_readiness_costs_warming_only_if_the_engine_was_restarted(restarts: int) -> None:
    stage = VirtualStage()
    stage.apply(replicas=3, routing={"warming": {"duration": "20s"}})
    await stage.settle()
    stage.now += 60
    await stage.round()
    pod = stage.pods()[0]
    name, ready = pod["metadata"]["name"], {"phase": "Running", "podIP": "127.0.0.9"}
    pod["status"] = ready | {"conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]}
    stage.now += 1
    await stage.round()
    assert stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/state"] == "Lost"
    back = [{"name": "engine", "restartCount": restarts}]
    stage.pods()[0]["status"] = ready | {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": back}
    for _ in range(3):
        stage.now += 1
        await stage.round()
    told = {item.id: (item.weight, item.reason) for item in stage.api.states[-1].instances}
    assert told[name] == ((1.0, "TableAcknowledged") if restarts == 0 else (0.25, "EngineRestarted"))


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        ({"reason": "Error", "exitCode": 137, "signal": 9}, "EngineKilled"),
        ({"reason": "OOMKilled", "exitCode": 137}, "OOMKilled"),
        ({"reason": "Error", "exitCode": 1}, "EngineFailed"),
        ({"reason": "Completed", "exitCode": 0}, "EngineEnded"),
    ],
)
@pytest.mark.parametrize("started_again", [False, True])
async def test_a_loss_names_how_the_engine_ended_until_it_serves_again(ended: dict[str, Any], reason: str, started_again: bool) -> None:
    stage = VirtualStage()
    stage.apply(replicas=3)
    await stage.settle()
    pod = stage.pods()[0]
    name, unready = pod["metadata"]["name"], [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]
    now, restarts = ("lastState", 1) if started_again else ("state", 0)
    container = {"name": "engine", "ready": False, "restartCount": restarts, now: {"terminated": ended}}
    pod["status"] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": unready, "containerStatuses": [container]}
    for _ in range(2):
        stage.now += 1
        await stage.round()
    states = {item.id: (item.state, item.reason) for item in stage.api.states[-1].instances}
    assert states[name] == (InstanceState.LOST, reason)
    assert ("Warning", "InstanceLost", f"{name} is lost ({reason})") in stage.events


async def test_an_engine_that_ended_before_it_served_last_is_no_reason_for_a_loss() -> None:
    stage = VirtualStage()
    stage.apply(replicas=3)
    await stage.settle()
    pod = stage.pods()[0]
    pod["metadata"]["annotations"]["fairlead.dev/warmed-restarts"] = "1"
    unready = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}]
    before = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    container = {"name": "engine", "ready": False, "restartCount": 1, "lastState": before}
    pod["status"] = {"phase": "Running", "podIP": "127.0.0.9", "conditions": unready, "containerStatuses": [container]}
    stage.now += 1
    await stage.round()
    assert stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/state-reason"] == "NotReady"
