"""Canaries on a fake cluster, in virtual time: step by step, judged, rolled back, stopped by people, and resumed."""

from collections import Counter
from typing import Any

import pytest

from fairlead_testing.worlds.operator_stages import VirtualStage

OLD = {"prefillTokensPerSecond": 1000}
NEW = {"prefillTokensPerSecond": 2000}
STEPS = [{"share": 25, "hold": "30s"}, {"share": 50, "hold": "30s"}]


def numbers(stage: VirtualStage, old: str) -> tuple[int, int]:
    """Return the number of instances with the old template, and with the new one, without draining ones."""
    staying = [pod["metadata"]["annotations"] for pod in stage.pods() if pod["metadata"]["annotations"]["fairlead.dev/state"] != "Draining"]
    counted = Counter(one["fairlead.dev/spec-hash"] == old for one in staying)
    return counted[True], counted[False]


async def pass_rounds(stage: VirtualStage, rounds: int) -> None:
    for _ in range(rounds):
        stage.pods_become_ready()
        stage.now += 1
        await stage.round()


async def rolling(**canary: Any) -> tuple[VirtualStage, str]:
    """Return a pool of four whose rollout has just begun, and the hash of its old template."""
    stage = VirtualStage()
    rollout = {"canary": {"steps": STEPS, **canary}}
    stage.apply(replicas=4, engine=OLD, rollout=rollout)
    await stage.settle()
    stage.now += 60
    old = stage.pods()[0]["metadata"]["annotations"]["fairlead.dev/spec-hash"]
    stage.apply(replicas=4, engine=NEW, rollout=rollout)
    return stage, old


async def test_a_canary_waits_in_each_step_for_the_verdict() -> None:
    stage, old = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 200)
    assert numbers(stage, old) == (3, 1)
    assert stage.condition("Progressing")["reason"] == "Canary"
    assert "step 1 of 2" in stage.condition("Progressing")["message"]
    stage.api.canary = "go"
    await pass_rounds(stage, 1)
    stage.api.canary = "wait"
    await pass_rounds(stage, 200)
    assert numbers(stage, old) == (2, 2)
    stage.api.canary = "go"
    await pass_rounds(stage, 120)
    assert numbers(stage, old) == (0, 4)
    told = [reason for reason in stage.reasons() if reason.startswith(("Rollout", "Canary"))]
    assert told == ["CanaryStep", "CanaryStep", "CanaryPassed", "RolloutFinished"]
    assert stage.api.states[-1].canary is None


async def test_routers_get_the_share_of_the_step_but_not_more_than_the_instances_can_take() -> None:
    stage, _ = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 100)
    told = stage.api.states[-1].canary
    assert told is not None
    assert (told.share, len(told.instances)) == (0.25, 1)
    stage.api.canary = "go"
    await pass_rounds(stage, 1)
    shares = []
    stage.api.canary = "wait"
    for _ in range(60):
        await pass_rounds(stage, 1)
        state = stage.api.states[-1]
        assert state.canary is not None
        taking = [one for one in state.instances if one.state in {"Serving", "Warming"}]
        assert state.canary.share <= len(state.canary.instances) / len(taking) + 1e-4
        shares.append(state.canary.share)
    assert shares[-1] == 0.5


@pytest.mark.parametrize("step", [1, 2])
async def test_a_rejected_canary_goes_back_to_the_former_template(step: int) -> None:
    stage, old = await rolling()
    for _ in range(step - 1):
        stage.api.canary = "go"
        await pass_rounds(stage, 60)
    stage.api.canary = "wait"
    await pass_rounds(stage, 60)
    assert numbers(stage, old)[1] == step
    stage.api.canary = "back"
    await pass_rounds(stage, 1)
    stage.api.canary = None
    await pass_rounds(stage, 1)
    told = stage.api.states[-1].canary
    assert told is not None
    assert told.share == 0.0, "no further session goes there"
    await pass_rounds(stage, 200)
    assert numbers(stage, old) == (4, 0)
    assert "CanaryRejected" in stage.reasons()
    assert stage.condition("Progressing")["reason"] == "CanaryRejected"
    assert "the time to first token changed by +30 %" in stage.condition("Progressing")["message"]
    await pass_rounds(stage, 200)
    assert numbers(stage, old) == (4, 0), "it is not tried again by itself"


async def test_a_verdict_about_another_step_changes_nothing() -> None:
    stage, old = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 60)
    told = stage.api.states[-1].canary
    assert told is not None
    stage.api.canary_step, stage.api.canary = f"{told.step}0", "back"
    await pass_rounds(stage, 60)
    assert numbers(stage, old) == (3, 1)
    assert "CanaryRejected" not in stage.reasons()


async def test_a_new_operator_goes_on_in_the_step_and_with_the_rejection() -> None:
    stage, old = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 60)
    stage.restart()
    await pass_rounds(stage, 60)
    assert numbers(stage, old) == (3, 1)
    stage.api.canary = "back"
    await pass_rounds(stage, 1)
    stage.restart()
    stage.api.canary = None
    await pass_rounds(stage, 120)
    assert numbers(stage, old) == (4, 0)
    assert stage.reasons().count("CanaryRejected") == 1


async def test_paused_no_further_session_goes_to_the_canary() -> None:
    stage, old = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 60)
    stage.apply(replicas=4, engine=NEW, rollout={"paused": True, "canary": {"steps": STEPS}})
    await pass_rounds(stage, 200)
    told = stage.api.states[-1].canary
    assert told is not None
    assert told.share == 0.0
    assert numbers(stage, old) == (3, 1)


async def test_without_a_judge_a_step_lasts_its_hold() -> None:
    stage, old = await rolling(judge=False)
    stage.api.canary = "back"
    await pass_rounds(stage, 25)
    assert numbers(stage, old) == (3, 1)
    await pass_rounds(stage, 200)
    assert numbers(stage, old) == (0, 4)


async def test_lost_and_added_instances_keep_to_the_step() -> None:
    stage, old = await rolling()
    stage.api.canary = "wait"
    await pass_rounds(stage, 60)
    stage.apply(replicas=6, engine=NEW, rollout={"canary": {"steps": STEPS}})
    await pass_rounds(stage, 120)
    assert numbers(stage, old) == (4, 2), "25 % of six, rounded up"
