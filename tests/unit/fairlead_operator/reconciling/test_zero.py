"""Scaling to zero and from zero on a fake cluster, in virtual time: drained, shown, woken; with restarts and
silence.
"""

from typing import Any

from fairlead.pool_states import HeldPools
from fairlead.scaling.signals import PoolDemand
from fairlead.tables import Outlook, PoolKey
from fairlead_client.outcomes import Cause, Later, Outcome, Taken
from fairlead_operator.polling import SleepingPools
from fairlead_testing.worlds.operator_stages import KEY, VirtualStage

SCALING: dict[str, Any] = {"mode": "SLO", "zero": {"idleAfter": "10m"}}
PAIR = [{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 1}]
IDLE = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=700.0)
HELD = PoolDemand(held_requests=20, held_prompt_tokens=2000, in_flight=0, idle_seconds=0.0)


async def rounds(stage: VirtualStage, count: int = 6, seconds: float = 5.0) -> list[int]:
    """Run rounds in which pods become ready at once, and return the wanted numbers after the last."""
    for _ in range(count):
        stage.now += seconds
        stage.pods_become_ready()
        await stage.round()
    return [role["desired"] for role in stage.pool()["status"]["roles"]]


async def a_stage(**spec: Any) -> VirtualStage:
    stage = VirtualStage()
    stage.apply(**{"replicas": 2, "roles": [{"name": "both"}], "scaling": SCALING, **spec})
    await stage.settle()
    await rounds(stage)
    return stage


async def test_an_idle_pool_goes_to_zero_is_ready_and_is_woken_by_what_routers_hold() -> None:
    stage = await a_stage()
    stage.api.demand = IDLE
    assert await rounds(stage) == [0]
    assert stage.pods() == []
    ready = stage.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == (
        "True",
        "ScaledToZero",
        "No instance is desired until a request arrives",
    )
    assert stage.condition("Degraded")["status"] == "False"
    assert stage.condition("ScalingActive")["status"] == "True"
    assert stage.api.states[-1].outlook is Outlook.COMING
    stage.api.demand = HELD
    assert await rounds(stage, 1, 1.0) == [1]
    assert len(stage.pods()) == 1, "the round that hears of the requests creates the instance"
    await rounds(stage)
    [role] = stage.pool()["status"]["roles"]
    assert role["ready"] == 1
    assert "20 requests with 2000 prompt tokens wait for an instance" in role["lastScale"]["reason"]
    told = {one.cause for state in stage.api.states for one in state.scaling_decisions}
    assert {"Idle", "Held"} <= told


async def test_prefill_and_decode_go_and_come_together() -> None:
    stage = await a_stage(replicas=1, roles=[{"name": "prefill", "replicas": 2}, {"name": "decode", "replicas": 1}])
    stage.api.demand = IDLE
    assert await rounds(stage) == [0, 0]
    assert stage.pods() == []
    stage.api.demand = HELD
    assert await rounds(stage) == [1, 1]


async def test_an_operator_that_restarts_at_any_point_goes_on_where_it_was() -> None:
    stage = await a_stage()
    stage.api.demand = IDLE
    for _ in range(12):
        stage.restart()
        await rounds(stage, 1)
    assert stage.pods() != [], "an operator that just began does not trust idleness"
    await rounds(stage)
    assert stage.pods() == []
    stage.restart()
    assert await rounds(stage, 3) == [0], "at zero it stays there"
    stage.api.demand = HELD
    stage.restart()
    assert await rounds(stage, 1) == [1], "what is held is trusted at once"


async def test_a_silent_control_api_and_a_router_that_tells_nothing_keep_the_pool_as_it_is() -> None:
    stage = await a_stage()
    stage.api.demand = None
    assert await rounds(stage, 200) == [2]
    stage.api.demand, stage.api.up = IDLE, False
    assert await rounds(stage, 200) == [2]


async def test_replicas_0_is_closed_in_mode_fixed() -> None:
    stage = await a_stage(scaling={})
    stage.apply(replicas=0, roles=[{"name": "both"}], scaling={})
    await rounds(stage)
    assert stage.pods() == []
    assert stage.api.states[-1].outlook is Outlook.CLOSED
    stage.api.demand = HELD
    assert await rounds(stage) == [0]
    assert stage.condition("Ready")["message"] == "No instance is desired"


class Api:
    """An API that reports the pools for which requests are held."""

    def __init__(self, outcome: Outcome[HeldPools]) -> None:
        self.outcome = outcome
        self.asked = 0

    async def held_pools(self) -> Outcome[HeldPools]:
        self.asked += 1
        return self.outcome


async def test_only_pools_at_zero_are_woken_and_nobody_is_asked_while_none_is() -> None:
    other = PoolKey(namespace="default", name="other")
    woken: list[PoolKey] = []
    sleeping, api = SleepingPools(), Api(Taken(HeldPools(pools=(KEY, other))))
    await sleeping.ask(api, woken.append)
    assert api.asked == 0
    sleeping.note(KEY, asleep=True)
    await sleeping.ask(api, woken.append)
    assert woken == [KEY]
    sleeping.note(KEY, asleep=False)
    await sleeping.ask(api, woken.append)
    assert (woken, api.asked) == ([KEY], 1)
    sleeping.note(KEY, asleep=True)
    await sleeping.ask(Api(Later(cause=Cause.UNREACHABLE, problem="away")), woken.append)
    assert woken == [KEY]
