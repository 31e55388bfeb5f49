"""All instances of one role are lost at once, in virtual time: the pool's conditions, and the replacement."""

from typing import Any

import pytest

from fairlead.instances import InstanceState, Role
from fairlead_testing.worlds.operator_stages import VirtualStage

RUNNING = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
EVICTED = {"phase": "Failed", "reason": "Evicted"}
ON_A_LOST_NODE = {
    "phase": "Running",
    "podIP": "127.0.0.9",
    "conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}],
}
LONGEST_SECONDS = 120


def names(stage: VirtualStage, role: Role) -> set[str]:
    return {pod["metadata"]["name"] for pod in stage.pods() if pod["metadata"]["labels"]["llm-d.ai/role"] == role}


def conditions(stage: VirtualStage) -> dict[str, tuple[str, str, str]]:
    return {
        kind: (found["status"], found["reason"], found["message"]) for kind in ("Ready", "Degraded") for found in [stage.condition(kind)]
    }


async def second(stage: VirtualStage, lost: set[str], status: dict[str, Any]) -> None:
    """Let a second pass in which the lost pods have `status` and all others run."""
    for pod in stage.pods():
        pod["status"] = dict(status if pod["metadata"]["name"] in lost else RUNNING)
    stage.now += 1
    await stage.round()


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize("status", [EVICTED, ON_A_LOST_NODE], ids=["evicted", "on a lost node"])
async def test_a_role_lost_as_a_whole_is_told_and_replaced_and_the_other_is_left_alone(role: Role, status: dict[str, Any]) -> None:
    stage = VirtualStage()
    roles = [{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 2}]
    stage.apply(replicas=1, roles=roles, routing={"warming": {"duration": "0s"}})
    await stage.settle()
    lost, others = names(stage, role), names(stage, Role.DECODE if role is Role.PREFILL else Role.PREFILL)
    for _ in range(3):
        await second(stage, lost, status)
    ready, degraded = conditions(stage)["Ready"], conditions(stage)["Degraded"]
    assert ready == ("False", "InstancesLost", f"0 of 2 {role.value} instances serve, 2 lost")
    assert degraded[:2] == ("True", "InstancesLost") and all(name in degraded[2] for name in lost)
    told = {one.id: one.state for one in stage.api.states[-1].instances}
    assert {told[name] for name in lost} == {InstanceState.LOST}, "no router sends them a request"
    assert {told[name] for name in others} == {InstanceState.SERVING}
    for _ in range(LONGEST_SECONDS):
        await second(stage, lost, status)
        if conditions(stage)["Ready"][0] == "True":
            break
    assert conditions(stage)["Ready"][:2] == ("True", "AllServing")
    assert conditions(stage)["Degraded"][0] == "False"
    assert len(names(stage, role) - lost) == 2, "two replacements, however they were lost"
    assert others <= names(stage, Role.DECODE) | names(stage, Role.PREFILL) and len(stage.pods()) - len(names(stage, role) & lost) == 4


async def test_a_lost_instance_that_serves_again_has_an_event_of_its_own_for_each_loss() -> None:
    stage = VirtualStage()
    stage.apply(replicas=2, routing={"warming": {"duration": "0s"}})
    await stage.settle()
    one = stage.pods()[0]["metadata"]["name"]
    for losses in (1, 2):
        for status, at_most in ((ON_A_LOST_NODE, 3), (RUNNING, 6)):
            for _ in range(at_most):
                await second(stage, {one}, status)
        assert [stage.reasons().count(reason) for reason in ("InstanceLost", "InstanceRecovered")] == [losses, losses]
    types = {reason: kind for kind, reason, _ in stage.events}
    assert (types["InstanceLost"], types["InstanceRecovered"]) == ("Warning", "Normal")
