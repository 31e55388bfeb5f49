"""Deletions of every kind drain, even if the garbage collector deletes the pods first."""

from fairlead.tables import PoolKey
from fairlead_testing.running.operator_process import POOLS, Stage, eventually
from fairlead_testing.worlds.pod_phases import bind

FINALIZER = "fairlead.dev/finalizer"


def finalizers(stage: Stage, name: str) -> list[str]:
    found: list[str] = ((stage.pool(name) or {}).get("metadata") or {}).get("finalizers") or []
    return found


def test_a_foreground_deletion_drains_like_any_other(stage: Stage) -> None:
    stage.operator.drain_patiently()
    stage.apply("argo", replicas=2)
    stage.settle("argo", 2)
    busy = stage.names("argo")
    for name in busy:
        bind(stage.client, name, "somewhere")
    stage.api.state.pretence.in_flight = dict.fromkeys(busy, 1)
    stage.phases.ends = False
    stage.client.call("DELETE", f"{POOLS}/argo", {"propagationPolicy": "Foreground"})
    eventually(lambda: stage.marked("argo") == busy, "the routers are told that both drain")
    eventually(
        lambda: {item.state for item in state.instances} == {"Draining"} if (state := stage.told_state("default/argo")) else False,
        "the API knows",
    )
    assert all(pod["metadata"].get("deletionTimestamp") for pod in stage.pods("argo")), "the garbage collector was first"
    assert FINALIZER in finalizers(stage, "argo"), "it waits for the requests in flight"
    assert stage.api.state.deleted == []
    stage.api.state.pretence.in_flight = {}
    eventually(lambda: stage.api.state.deleted == [PoolKey(namespace="default", name="argo")], "the deletion is told when they are through")
    stage.phases.ends = True
    eventually(lambda: stage.pool("argo") is None, "the pool goes after its pods")
