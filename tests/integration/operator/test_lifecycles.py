"""Pools from creation to deletion, with the operator as a process."""

from fairlead.tables import PoolKey
from fairlead_testing.running.operator_process import ROLES, Stage, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS


def test_an_applied_pool_gets_its_instances_its_service_and_its_status(stage: Stage) -> None:
    stage.apply("fresh", replicas=3)
    stage.settle("fresh", 3)

    status = stage.status("fresh")
    assert status["replicas"] == 3
    assert status["selector"] == "fairlead.dev/pool=fresh"
    assert status["roles"] == [{"name": "both", "desired": 3, "ready": 3, "updated": 3, "starting": 0, "draining": 0, "lost": 0}]
    assert status["ring"]["anchors"] == 480
    assert {condition["type"] for condition in status["conditions"]} == {
        "Ready",
        "InstancesReady",
        "RingSynced",
        "Progressing",
        "SLOMet",
        "ControlPlaneReachable",
        "Degraded",
        "ScalingActive",
        "ScalingLimited",
        "MigrationsPaused",
    }
    service = stage.client.call("GET", "/api/v1/namespaces/default/services/fresh")
    assert service["spec"]["clusterIP"] == "None"
    budget = stage.client.call("GET", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/fresh-both")
    assert budget["spec"]["minAvailable"] == 2
    assert "maxUnavailable" not in budget["spec"]
    state = stage.told_state("default/fresh")
    assert state is not None
    assert {instance.id for instance in state.instances} == stage.names("fresh")
    assert {instance.address.split(":")[1] for instance in state.instances if instance.address} == {"8000"}
    for name in stage.names("fresh"):
        history = stage.told_transitions(name)
        assert history[-2:] == ["Warming", "Serving"]
        assert history[0] in {"Pending", "Starting", "Warming"}
    assert "InstanceCreated" in stage.kubernetes_events("fresh")
    eventually(lambda: stage.told_reasons().count("InstanceCreated") == 3, "the history is delivered")


def test_scaling_down_drains_the_cheapest_and_waits_for_what_runs_there(stage: Stage) -> None:
    stage.apply("shrinking", replicas=4)
    stage.settle("shrinking", 4)
    dear, *cheap = sorted(stage.names("shrinking"))
    stage.api.state.pretence.sessions = {dear: 50} | dict.fromkeys(cheap, 1)
    stage.api.state.pretence.in_flight = dict.fromkeys(cheap, 1)

    stage.edit("shrinking", {"replicas": 1})
    eventually(lambda: stage.marked("shrinking") == set(cheap), "three are marked as draining, the one with many sessions is not")
    assert stage.names("shrinking") == {dear, *cheap}
    stage.api.state.pretence.acknowledges = False
    stage.api.state.pretence.in_flight = {cheap[2]: 1}
    rounds = stage.told_state("default/shrinking")
    eventually(lambda: stage.told_state("default/shrinking") is not rounds, "the operator asks again")
    assert stage.names("shrinking") == {dear, *cheap}, "nobody goes before the routers know"

    stage.api.state.pretence.acknowledges = True
    eventually(lambda: stage.names("shrinking") == {dear, cheap[2]}, "the empty ones go, the busy one stays")
    stage.api.state.pretence.in_flight = {}
    stage.settle("shrinking", 1)
    assert stage.names("shrinking") == {dear}
    eventually(lambda: stage.told_reasons().count("Drained") == 3, "the drains are told")
    assert {"ScalingDown", "Draining", "Drained"} <= stage.kubernetes_events("shrinking")
    scale = stage.status("shrinking")["roles"][0]["lastScale"]
    assert (scale["from"], scale["to"]) == (4, 1)


def test_one_role_is_scaled_through_its_own_object_and_the_other_is_left_alone(stage: Stage) -> None:
    roles = [{"name": "prefill", "minReplicas": 2}, {"name": "decode", "minReplicas": 2}]
    stage.apply("split", replicas=1, roles=roles)
    stage.settle("split", 4)
    decoding = {name for name in stage.names("split") if name.startswith("split-d")}
    stage.client.merge(f"{ROLES}/split-prefill/scale?fieldManager=autoscaler", {"spec": {"replicas": 3}})
    stage.settle("split", 5)
    prefill, decode = stage.status("split")["roles"]
    assert (prefill["ready"], prefill["lastScale"]["reason"]) == (3, "replicas of its InferencePoolRole set by autoscaler")
    assert (decode["ready"], "lastScale" in decode) == (2, False)
    eventually(lambda: stage.client.call("GET", f"{ROLES}/split-prefill/scale")["status"]["replicas"] == 3, "an autoscaler sees them")
    stage.client.merge(f"{ROLES}/split-prefill/scale", {"spec": {"replicas": 2}})
    stage.settle("split", 4)
    assert {name for name in stage.names("split") if name.startswith("split-d")} == decoding
    assert stage.condition("split", "Ready")["message"] == "2 of 2 prefill instances serve; 2 of 2 decode instances serve"


def test_scaling_up_through_the_scale_subresource_keeps_what_serves_and_names_who_scaled(stage: Stage) -> None:
    stage.apply("growing", replicas=2)
    stage.settle("growing", 2)
    before = stage.names("growing")
    scale = "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/growing/scale?fieldManager=autoscaler"
    stage.client.merge(scale, {"spec": {"replicas": 4}})
    stage.settle("growing", 4)
    assert stage.status("growing")["roles"][0]["lastScale"]["reason"] == "spec.replicas set by autoscaler"
    assert before < stage.names("growing")
    assert stage.marked("growing") == set()


def test_a_drain_ends_at_its_timeout_even_with_requests_in_flight(stage: Stage) -> None:
    stage.apply("stubborn", replicas=2, drain={"timeout": "1s"})
    stage.settle("stubborn", 2)
    stage.api.state.pretence.in_flight = dict.fromkeys(stage.names("stubborn"), 3)
    stage.edit("stubborn", {"replicas": 1})
    stage.settle("stubborn", 1)
    eventually(lambda: "DrainTimedOut" in stage.told_reasons(), "the timeout is told")


def test_a_failed_pod_and_one_deleted_by_hand_are_replaced(stage: Stage) -> None:
    stage.apply("wounded", replicas=2)
    stage.settle("wounded", 2)
    failed, deleted = sorted(stage.names("wounded"))
    stage.client.call("DELETE", f"/api/v1/namespaces/default/pods/{deleted}", {})
    stage.client.merge(f"/api/v1/namespaces/default/pods/{failed}/status", {"status": {"phase": "Failed", "conditions": []}})
    eventually(lambda: not {failed, deleted} & stage.names("wounded"), "both are gone")
    stage.settle("wounded", 2)
    assert stage.told_transitions(failed)[-1] == "Lost"
    assert {"InstanceLost", "InstanceReplaced"} <= stage.kubernetes_events("wounded")


def test_a_deleted_pool_is_emptied_told_and_collected(stage: Stage) -> None:
    stage.operator.drain_patiently()
    stage.apply("leaving", replicas=2)
    stage.settle("leaving", 2)
    busy = stage.names("leaving")
    stage.api.state.pretence.in_flight = dict.fromkeys(busy, 1)
    stage.delete("leaving")
    eventually(lambda: stage.marked("leaving") == busy, "its instances drain first")
    assert stage.pool("leaving") is not None
    stage.api.state.pretence.in_flight = {}
    eventually(lambda: stage.pool("leaving") is None, "the pool goes")
    eventually(lambda: not stage.pods("leaving"), "its pods are collected")
    assert stage.api.state.deleted == [PoolKey(namespace="default", name="leaving")]


def test_an_evicted_instance_is_replaced_and_the_budget_refuses_the_next_until_then(stage: Stage) -> None:
    stage.apply("evicted", replicas=3, routing={"warming": {"duration": "0s"}})
    stage.settle("evicted", 3)
    budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/evicted-both"
    first, second, third = sorted(stage.names("evicted"))

    def evict(name: str) -> tuple[int, str]:
        """Return the answer's status and the reason of its first cause, as `kubectl drain NODE` sees them."""
        path = f"/api/v1/namespaces/default/pods/{name}/eviction"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        answer = stage.client.session.post(stage.client.server + path, json=body, timeout=PATIENCE_SECONDS)
        causes = answer.json().get("details", {}).get("causes", [{}])
        return answer.status_code, causes[0].get("reason", "")

    def is_allowed() -> bool:
        return bool(stage.client.call("GET", budget)["status"]["disruptionsAllowed"] == 1)

    eventually(is_allowed, "one may be evicted")
    stage.phases.starts = False
    assert evict(first)[0] == 201
    assert evict(second) == (429, "DisruptionBudget")
    stage.phases.starts = True
    stage.settle("evicted", 3)
    assert stage.names("evicted") > {second, third}
    eventually(is_allowed, "the next may be evicted")
    assert evict(second)[0] == 201
    stage.settle("evicted", 3)


def test_kopf_writes_nothing_on_a_pool_but_its_finalizer(stage: Stage) -> None:
    stage.apply("plain", replicas=1)
    stage.settle("plain", 1)
    stage.operator.drain_patiently()
    stage.edit("plain", {"replicas": 2})
    stage.settle("plain", 2)
    pool = stage.pool("plain")
    assert pool is not None
    assert pool["metadata"].get("annotations", {}) == {}
    assert pool["metadata"]["finalizers"] == ["fairlead.dev/finalizer"]
    assert "kopf" not in pool["status"]
    stage.api.state.pretence.in_flight = dict.fromkeys(stage.names("plain"), 1)
    stage.delete("plain")
    seen: list[dict[str, str]] = []

    def is_gone() -> bool:
        pool = stage.pool("plain")
        if pool is not None:
            seen.append(pool["metadata"].get("annotations", {}))
        stage.api.state.pretence.in_flight = {} if len(seen) > 20 else stage.api.state.pretence.in_flight
        return pool is None

    eventually(is_gone, "the pool goes")
    assert len(seen) > 20
    assert not any(seen), "no progress, no dummies"
