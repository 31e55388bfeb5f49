"""Rollouts on a fake cluster, in virtual time: one instance after the other, paused, stopped, resumed, rolled back."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead_operator.cluster import Resource
from fairlead_testing.examples import examples
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
    """Return three instances of the old engine that have served for a minute."""
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


async def test_routers_are_told_which_instances_a_rollout_replaces_next() -> None:
    stage = await running()
    old = {pod["metadata"]["name"] for pod in stage.pods()}
    assert {one.stays for one in stage.api.states[-1].instances} == {True}
    stage.apply(replicas=3, engine=NEW)
    for _ in range(120):
        await pass_rounds(stage, 1)
        assert all(one.stays == (one.id not in old) for one in stage.api.states[-1].instances)
    assert old.isdisjoint(one.id for one in stage.api.states[-1].instances)


async def test_the_only_instance_is_replaced_and_that_is_finished_when_the_new_one_serves() -> None:
    stage = VirtualStage()
    only: dict[str, Any] = {"replicas": 1, "roles": [{"name": "both", "minReplicas": 0, "maxReplicas": 1}]}
    stage.apply(**only, engine=OLD)
    await stage.settle()
    former = stage.pool()["status"]["currentRevision"]
    stage.apply(**only, engine=NEW)
    for _ in range(700):
        stage.now += 1
        await stage.round()
    assert [pod["metadata"]["annotations"]["fairlead.dev/state"] for pod in stage.pods()] == ["Pending"]
    assert "RolloutFinished" not in stage.reasons()
    condition = stage.condition("Progressing")
    assert (condition["status"], condition["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert condition["message"].startswith("0 instances updated, no further instance for")
    assert stage.pool()["status"]["currentRevision"] == former, "what it can go back to"
    await pass_rounds(stage, 30)
    assert stage.reasons()[-1] == "RolloutFinished"
    assert stage.pool()["status"]["currentRevision"] != former
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


@given(before=st.integers(1, 5), after=st.integers(0, 5), surge=st.integers(0, 3))
@examples(40)
def test_a_pool_whose_rollout_is_paused_before_its_first_instance_has_the_wanted_number(before: int, after: int, surge: int) -> None:
    rollout = {"paused": True, "maxSurge": surge, "maxUnavailable": 1}

    async def play() -> None:
        stage = VirtualStage()
        stage.apply(replicas=before, engine=OLD, rollout=rollout)
        await stage.settle()
        stage.apply(replicas=before, engine=NEW, rollout=rollout)
        await pass_rounds(stage, 3)
        stage.apply(replicas=after, engine=NEW, rollout=rollout)
        await pass_rounds(stage, 12)
        assert len(stage.pods()) == after

    asyncio.run(play())


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
    assert condition["message"].startswith("SLO attainment 60.0 %, 95.0 % when the rollout began; roll back, or change the pool to go on")
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
    assert revisions(stage) == {2: NEW, 3: OLD}, "an instance still has it"
    await pass_rounds(stage, 200)
    assert revisions(stage) == {3: OLD}


async def lose(stage: VirtualStage, template: str) -> None:
    """End an instance of this template for good; it is replaced."""
    pod = next(pod for pod in stage.pods() if pod["metadata"]["annotations"]["fairlead.dev/spec-hash"] == template)
    pod["status"] = {"phase": "Failed", "reason": "Evicted"}
    for _ in range(60):
        stage.now += 1
        await stage.round()
    assert pod["metadata"]["name"] not in {pod["metadata"]["name"] for pod in stage.pods()}
    await pass_rounds(stage, 10)


def told_revisions(stage: VirtualStage) -> tuple[str, str]:
    status = stage.pool()["status"]
    return status["currentRevision"], status["updateRevision"]


async def test_while_a_rollout_is_stopped_every_lost_instance_is_replaced_with_the_former_template() -> None:
    stage = await running()
    [old] = hashes(stage)
    stage.apply(replicas=3, engine=NEW, rollout={"regression": {"window": "0s"}})
    await pass_rounds(stage, 5)
    [new] = hashes(stage).keys() - {old}
    stage.api.slo_attainment = 0.6
    await pass_rounds(stage, 3)
    current, update = told_revisions(stage)
    assert current != update
    for template in (*[new] * hashes(stage)[new], old):
        await lose(stage, template)
        stage.restart()
    assert hashes(stage) == {old: 3}
    assert stage.condition("Progressing")["reason"] == "RolloutRegressed"
    assert told_revisions(stage) == (current, update)
    assert any("from the former template" in event.message for event in stage.api.events)
    stage.apply(replicas=5, engine=NEW, rollout={"regression": {"window": "0s"}})
    await pass_rounds(stage, 20)
    assert hashes(stage) == {old: 5}


async def test_while_a_rollout_is_paused_each_template_keeps_its_number() -> None:
    stage = await running()
    [old] = hashes(stage)
    stage.apply(replicas=3, engine=NEW)
    for _ in range(60):
        await pass_rounds(stage, 1)
        if stage.pool()["status"]["roles"][0]["updated"] == 1 and len(stage.pods()) == 3:
            break
    stage.apply(replicas=3, engine=NEW, rollout={"paused": True})
    await pass_rounds(stage, 5)
    [new] = hashes(stage).keys() - {old}
    before = hashes(stage)
    for template in (new, old):
        await lose(stage, template)
        assert hashes(stage) == before


async def test_the_revision_that_instances_still_have_is_kept_beyond_the_limit() -> None:
    stage = await running(paused=True, revisionHistory=1)
    [old] = hashes(stage)
    for number, tokens in enumerate((2000, 3000, 4000)):
        stage.apply(replicas=3 + number, engine={"prefillTokensPerSecond": tokens}, rollout={"paused": True, "revisionHistory": 1})
        await pass_rounds(stage, 20)
    assert list(revisions(stage).values()) == [OLD, {"prefillTokensPerSecond": 4000}]
    assert hashes(stage) == {old: 5}


async def test_a_finished_rollout_is_told_as_the_revision_all_instances_have() -> None:
    stage = await running()
    first, _ = told_revisions(stage)
    stage.apply(replicas=3, engine=NEW)
    await pass_rounds(stage, 3)
    assert told_revisions(stage)[0] == first != told_revisions(stage)[1]
    await pass_rounds(stage, 120)
    current, update = told_revisions(stage)
    assert first != current == update
