"""A pool without its status, on a real API: re-created without its children, or with the status removed."""

from fairlead_testing.running.operator_process import POOLS, Stage, eventually

SLO = {"mode": "SLO", "scaleDown": {"stabilizationWindow": "0s"}}
MANY = [{"name": "both", "minReplicas": 1, "maxReplicas": 8}]


def uids(stage: Stage, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in stage.pods(name)}


def remembered(stage: Stage, name: str) -> list[tuple[int, int]]:
    """Return the declared and the decided number of each role, as scaling knows them."""
    memory = ((stage.pool(name) or {}).get("status") or {}).get("scaling", {}).get("memory", {})
    return [(role["declared"], role["replicas"]) for role in memory.get("roles", [])]


def test_a_pool_at_five_that_is_re_created_with_one_keeps_its_five_instances(stage: Stage) -> None:
    stage.apply("follows", replicas=5, roles=MANY, scaling=SLO)
    stage.settle("follows", 5)
    before = uids(stage, "follows")
    stage.client.call("DELETE", f"{POOLS}/follows", {"propagationPolicy": "Orphan"})
    eventually(lambda: stage.pool("follows") is None, "the pool is gone")
    stage.apply("follows", replicas=1, roles=MANY, scaling=SLO)
    eventually(lambda: remembered(stage, "follows") == [(1, 5)], "it goes on from the five that stand")
    stage.settle("follows", 5)
    assert uids(stage, "follows") == before
    assert stage.marked("follows") == set()


def test_a_pool_whose_status_is_taken_away_goes_on_from_what_stands(stage: Stage) -> None:
    stage.apply("forgets", replicas=5, roles=MANY, scaling=SLO)
    stage.settle("forgets", 5)
    before, made = uids(stage, "forgets"), stage.status("forgets")["lastOrdinal"]
    stage.operator.kill()
    emptied = dict.fromkeys(stage.status("forgets"))
    stage.client.merge(f"{POOLS}/forgets/status", {"status": emptied})
    assert not stage.status("forgets")
    stage.operator.start()
    eventually(lambda: remembered(stage, "forgets") == [(5, 5)], "it goes on from the five that stand")
    stage.settle("forgets", 5)
    assert uids(stage, "forgets") == before
    assert stage.status("forgets")["lastOrdinal"] >= made
