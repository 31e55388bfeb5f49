"""The figures by which other autoscalers scale a pool, from the reports of operator and routers."""

from typing import Any

from fairlead.scaling.recommendations import Controller
from fairlead_api.infra.database import READS, Database
from fairlead_api.infra.pulse import Pulse
from fairlead_api.pools.scaling_figures import ScalingFigures
from fairlead_api.pools.store.reads import PostgresScalingFigures
from fairlead_testing.builders.scaling import a_scaling_decision
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_load, a_report, a_state, an_instance


async def figures(api: ApiInstance, database_url: str) -> ScalingFigures:
    database = Database(READS, Pulse(database_url), 30)
    try:
        return await PostgresScalingFigures(database).read(api.clock())
    finally:
        await database.close()


async def decided(api: ApiInstance, mode: str, *numbers: int, version: int) -> None:
    at = api.clock().timestamp()
    decisions = tuple(a_scaling_decision(f"{mode}{number}", at - 10 + number, mode=mode, replicas=number) for number in numbers)
    spec: dict[str, Any] = {**SPEC, "replicas": 2, "roles": [{"name": "both", "minReplicas": 1}], "scaling": {"mode": mode}}
    state = a_state(an_instance("a"), version=version, generation=version, spec=spec, desired={"both": 2}, scaling_decisions=decisions)
    await api.pool_operator.put_pool_state(CHAT, state)


async def test_the_wanted_number_is_the_advised_one_only_while_the_pool_is_advised(api: ApiInstance, database_url: str) -> None:
    await decided(api, "Advise", 7, 4, version=1)
    assert (await figures(api, database_url)).wanted == {("default/chat", "both"): 7}, "the newest, not the largest"
    await decided(api, "SLO", 3, version=2)
    assert (await figures(api, database_url)).wanted == {("default/chat", "both"): 2}, "the operator sets it itself"


async def test_a_move_between_roles_and_advice_for_another_number_are_no_advised_number(api: ApiInstance, database_url: str) -> None:
    at = api.clock().timestamp()
    scaling = a_scaling_decision("s", at - 20, mode="Advise", replicas=7)
    ratio = a_scaling_decision("r", at - 10, mode="Advise", replicas=3, controller=Controller.RATIO)
    spec: dict[str, Any] = {**SPEC, "replicas": 2, "roles": [{"name": "both", "minReplicas": 1}], "scaling": {"mode": "Advise"}}
    state = a_state(an_instance("a"), version=1, spec=spec, desired={"both": 2}, scaling_decisions=(scaling, ratio))
    await api.pool_operator.put_pool_state(CHAT, state)
    assert (await figures(api, database_url)).wanted == {("default/chat", "both"): 7}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), version=2, spec=spec, desired={"both": 9}))
    assert (await figures(api, database_url)).wanted == {("default/chat", "both"): 9}, "it was advised instead of 2"


async def test_numbers_of_two_controllers_are_lines_of_their_own_in_charts(api: ApiInstance) -> None:
    at = api.clock().timestamp()
    scaling = a_scaling_decision("s", at - 12, recommended=7)
    ratio = a_scaling_decision("r", at - 11, recommended=3, controller=Controller.RATIO)
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), scaling_decisions=(scaling, ratio)))
    lines = (await api.viewer.series(["instances_recommended"], CHAT, start="now-1h", buckets=2)).lines
    assert {line.part: [one for one in line.values if one is not None] for line in lines} == {"both": [7.0], "both, ratio": [3.0]}


async def test_headroom_is_the_distance_to_the_goal_and_absent_without_traffic(api: ApiInstance, database_url: str) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), spec={**SPEC, "slo": {"percentile": 90}}))
    assert (await figures(api, database_url)).headroom == {}
    now = api.clock()
    load = a_load("a", int(now.timestamp()) - 40, completed=10, judged_by_slo=10, within_slo=8)
    await api.router.post_report(a_report("r1", at=now.timestamp(), loads=(load,)))
    await api.app.state.upkeep.roll_up(now)
    (headroom,) = (await figures(api, database_url)).headroom.values()
    assert round(headroom, 6) == -0.1
