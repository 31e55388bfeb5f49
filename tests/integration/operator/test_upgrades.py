"""Pools made by an operator from before v1, whose finalizer had another name, with the operator of today; and
what kopf writes on pools.
"""

from fairlead.tables import PoolKey
from fairlead_testing.running.operator_process import POOLS, Stage, eventually

FORMER, TODAY = "fairlead.dev/farewell", "fairlead.dev/finalizer"


def set_finalizers(stage: Stage, name: str, finalizers: list[str]) -> None:
    stage.client.merge(f"{POOLS}/{name}", {"metadata": {"finalizers": finalizers}})


def finalizers(stage: Stage, name: str) -> list[str]:
    pool = stage.pool(name)
    assert pool is not None
    found: list[str] = pool["metadata"].get("finalizers") or []
    return found


def test_a_living_pool_changes_the_former_finalizer_for_the_new_one_and_keeps_those_of_others(stage: Stage) -> None:
    stage.apply("aged", replicas=1)
    stage.settle("aged", 1)
    stage.operator.kill()
    set_finalizers(stage, "aged", ["example.com/other", FORMER])
    stage.operator.start()
    eventually(lambda: sorted(finalizers(stage, "aged")) == ["example.com/other", TODAY], "the finalizer is changed")
    set_finalizers(stage, "aged", [TODAY])


def test_a_pool_that_was_deleted_before_the_upgrade_is_finalized_by_its_former_finalizer(stage: Stage) -> None:
    stage.apply("bygone", replicas=2)
    stage.settle("bygone", 2)
    busy = stage.names("bygone")
    stage.api.state.pretence.in_flight = dict.fromkeys(busy, 1)
    stage.operator.kill()
    set_finalizers(stage, "bygone", [FORMER])
    stage.delete("bygone")
    stage.operator.drain_patiently()
    eventually(lambda: stage.marked("bygone") == busy, "its instances drain first")
    assert stage.pool("bygone") is not None
    stage.api.state.pretence.in_flight = {}
    eventually(lambda: stage.pool("bygone") is None, "the pool goes")
    assert stage.api.state.deleted == [PoolKey(namespace="default", name="bygone")]


def test_kopf_writes_nothing_on_a_pool_but_its_finalizer(stage: Stage) -> None:
    stage.apply("plain", replicas=1)
    stage.settle("plain", 1)
    stage.operator.drain_patiently()
    stage.edit("plain", {"replicas": 2})
    stage.settle("plain", 2)
    pool = stage.pool("plain")
    assert pool is not None
    assert pool["metadata"].get("annotations", {}) == {}
    assert pool["metadata"]["finalizers"] == [TODAY]
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
