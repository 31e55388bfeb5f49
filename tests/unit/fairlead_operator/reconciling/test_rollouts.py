"""Rollouts on a fake cluster, in virtual time: one after the other, paused, stopped, resumed, rolled back."""

from collections import Counter
from typing import Any

from fairlead_operator.cluster import Resource
from fairlead_testing.worlds.operator_stages import VirtualStage

OLD = {"prefillTokensPerSecond": 1000}
NEW = {"prefillTokensPerSecond": 2000}


def hashes(stage: VirtualStage) -> Counter[str]:
    return Counter(pod["metadata"]["annotations"]["fairlead.dev/spec-hash"] for pod in stage.pods())


async def pass_rounds(stage: VirtualStage, rounds: int) -> None:
    for _ in range(rounds):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()


async def running(**rollout: Any) -> VirtualStage:
    """Three instances of the old engine that have served for a minute."""
    stage = VirtualStage()
    stage.api.slo_attainment = 0.95
    stage.apply(replicas=3, engine=OLD, rollout=rollout)
    await stage.settle()
    stage.now += 60
    return stage


async def test_a_rollout_replaces_one_after_the_other_and_is_told() -> None:
    stage = await running()
    [old] = hashes(stage)
    stage.apply(replicas=3, engine=NEW)
    for _ in range(120):
        await pass_rounds(stage, 1)
        assert len(stage.pods()) <= 4
    assert len(hashes(stage)) == 1
    assert old not in hashes(stage)
    assert [reason for reason in stage.reasons() if reason.startswith("Rollout")] == ["RolloutBegan", "RolloutFinished"]
    assert "rollout" not in stage.pool()["status"]
    assert stage.condition("Progressing")["reason"] == "Settled"


async def test_a_paused_rollout_replaces_nothing_until_it_is_unpaused() -> None:
    stage = await running(paused=True)
    before = hashes(stage)
    stage.apply(replicas=3, engine=NEW, rollout={"paused": True})
    await pass_rounds(stage, 30)
    assert hashes(stage) == before
    assert stage.condition("Progressing") | {"lastTransitionTime": "", "observedGeneration": 0} == {
        "type": "Progressing",
        "status": "False",
        "reason": "RolloutPaused",
        "message": "rollout.paused is true; 3 instances still have the old template",
        "observedGeneration": 0,
        "lastTransitionTime": "",
    }
    stage.apply(replicas=3, engine=NEW)
    await pass_rounds(stage, 120)
    assert not before.keys() & hashes(stage).keys()


async def test_a_rollout_that_costs_attainment_stops_and_survives_a_restart_of_the_operator() -> None:
    stage = await running()
    stage.apply(replicas=3, engine=NEW, rollout={"regression": {"attainmentDrop": 5, "window": "10s"}})
    await pass_rounds(stage, 4)
    stage.api.slo_attainment = 0.6
    await pass_rounds(stage, 30)
    stopped = hashes(stage)
    stage.restart()
    await pass_rounds(stage, 60)
    assert hashes(stage) == stopped
    assert len(stopped) == 2
    condition = stage.condition("Progressing")
    assert (condition["status"], condition["reason"]) == ("False", "RolloutRegressed")
    assert condition["message"].startswith("SLO attainment 60.0%, 95.0% when the rollout began; change the pool to go on")
    assert stage.reasons().count("RolloutRegressed") == 1


async def test_a_stopped_rollout_is_rolled_back_by_the_former_engine_and_resumed_by_any_other_declaration() -> None:
    for change, left in (({"engine": OLD}, OLD), ({"engine": NEW, "rollout": {"regression": {"attainmentDrop": 100}}}, NEW)):
        stage = await running()
        [old] = hashes(stage)
        stage.apply(replicas=3, engine=NEW, rollout={"regression": {"window": "0s"}})
        await pass_rounds(stage, 4)
        stage.api.slo_attainment = 0.6
        await pass_rounds(stage, 3)
        assert stage.condition("Progressing")["reason"] == "RolloutRegressed"
        stage.apply(replicas=3, **change)
        await pass_rounds(stage, 150)
        [only] = hashes(stage)
        assert (only == old) is (left is OLD)
        assert stage.condition("Progressing")["reason"] == "Settled"


async def test_scaling_does_not_resume_a_stopped_rollout() -> None:
    stage = await running()
    declared = {"engine": NEW, "rollout": {"regression": {"window": "0s"}}}
    stage.apply(replicas=3, **declared)
    await pass_rounds(stage, 4)
    stage.api.slo_attainment = 0.6
    await pass_rounds(stage, 3)
    stage.apply(replicas=5, **declared)
    await pass_rounds(stage, 40)
    assert stage.condition("Progressing")["reason"] == "RolloutRegressed"
    assert len(hashes(stage)) == 2


def revisions(stage: VirtualStage) -> dict[int, Any]:
    return {item["revision"]: item["data"]["engine"] for item in stage.cluster.all(Resource.REVISIONS)}


async def test_revisions_are_kept_numbered_anew_when_the_pool_goes_back_and_the_oldest_goes() -> None:
    stage = await running()
    assert revisions(stage) == {1: OLD}
    stage.apply(replicas=3, engine=NEW)
    await pass_rounds(stage, 2)
    stage.apply(replicas=4, engine=NEW)
    await pass_rounds(stage, 2)
    assert revisions(stage) == {1: OLD, 2: NEW}
    stage.apply(replicas=4, engine=OLD)
    await pass_rounds(stage, 2)
    stage.restart()
    await pass_rounds(stage, 2)
    assert revisions(stage) == {2: NEW, 3: OLD}
    stage.apply(replicas=4, engine=OLD, rollout={"revisionHistory": 1})
    await pass_rounds(stage, 2)
    assert revisions(stage) == {3: OLD}
