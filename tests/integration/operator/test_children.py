"""A pool's Service and PodDisruptionBudget are kept, and objects of other owners are left alone."""

import pytest

from fairlead_testing.running.operator_process import Stage, eventually
from fairlead_testing.waiting import PATIENCE_SECONDS

SERVICES = "/api/v1/namespaces/default/services"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.mark.parametrize(("path", "suffix"), [(SERVICES, ""), (BUDGETS, "-both")])
def test_a_child_deleted_by_hand_is_back_within_seconds(stage: Stage, path: str, suffix: str) -> None:
    name = f"kept{suffix}"
    stage.apply("kept", replicas=1)
    stage.settle("kept", 1)
    before = stage.client.call("GET", f"{path}/{name}")
    stage.client.call("DELETE", f"{path}/{name}", {})

    def again() -> dict[str, object] | None:
        response = stage.client.session.get(f"{stage.client.server}{path}/{name}", timeout=PATIENCE_SECONDS)
        return response.json() if response.ok else None

    after = eventually(again, "it is back")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]  # type: ignore[index]  # a JSON document


@pytest.mark.parametrize(("path", "suffix"), [(SERVICES, ""), (BUDGETS, "-both")])
@pytest.mark.parametrize("label", ["other", None], ids=["changed", "removed"])
def test_a_childs_label_that_somebody_takes_is_put_back_within_seconds(stage: Stage, path: str, suffix: str, label: str | None) -> None:
    name = f"marked{suffix}"
    stage.apply("marked", replicas=1)
    stage.settle("marked", 1)
    body = {"metadata": {"labels": {"fairlead.dev/pool": label}}}
    stage.client.call("PATCH", f"{path}/{name}", body, content="application/merge-patch+json")

    def again() -> bool:
        return bool(stage.client.call("GET", f"{path}/{name}")["metadata"]["labels"].get("fairlead.dev/pool") == "marked")

    eventually(again, "it has its label")


def test_a_service_of_that_name_survives_a_pools_whole_life(stage: Stage) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"app": "mine"}, "ports": [{"name": "http", "port": 21810, "protocol": "TCP"}]},
    }
    before = stage.client.call("POST", SERVICES, theirs)
    try:
        stage.apply("mine", replicas=1)
        stage.settle("mine", 1)
        eventually(lambda: stage.condition("mine", "Degraded").get("reason") == "ChildNotOurs", "the collision is named")
        assert "Service default/mine" in stage.condition("mine", "Degraded")["message"]
        assert "ChildNotOurs" in stage.kubernetes_events("mine")
        stage.delete("mine")
        eventually(lambda: stage.pool("mine") is None and not stage.pods("mine"), "the pool is gone")
        assert stage.client.call("GET", f"{SERVICES}/mine") == before
    finally:
        stage.client.call("DELETE", f"{SERVICES}/mine", {})


def test_pods_orphaned_by_one_pool_serve_the_next_one_of_its_name(stage: Stage) -> None:
    stage.apply("again", replicas=2)
    stage.settle("again", 2)
    before = {pod["metadata"]["uid"] for pod in stage.pods("again")}
    stage.client.call("DELETE", "/apis/fairlead.dev/v1alpha1/namespaces/default/inferencepools/again", {"propagationPolicy": "Orphan"})
    eventually(lambda: stage.pool("again") is None, "the pool is gone")
    stage.apply("again", replicas=2)
    stage.settle("again", 2)
    assert {pod["metadata"]["uid"] for pod in stage.pods("again")} == before
    assert stage.condition("again", "Degraded")["status"] == "False"
