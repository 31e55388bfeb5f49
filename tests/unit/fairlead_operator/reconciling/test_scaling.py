"""Scaling by signals on a fake cluster, in virtual time: what is decided, reported, remembered and shown."""

from datetime import UTC, datetime
from typing import Any

from fairlead.instances import Role
from fairlead.scaling.recommendations import Hold, Verdict
from fairlead.scaling.signals import PoolSignals
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_testing.builders.scaling import pool_signals, role_signals
from fairlead_testing.worlds.operator_stages import SETTINGS, VirtualStage

QUICK: dict[str, Any] = {
    "mode": "SLO",
    "period": "5s",
    "scaleUp": {"stabilizationWindow": "0s", "instances": 2, "percent": 0, "period": "60s"},
    "scaleDown": {"stabilizationWindow": "20s", "instances": 1, "percent": 0, "period": "5s", "cooldown": "0s"},
}
BOTH = [{"name": "both", "minReplicas": 1, "maxReplicas": 6}]
PAIR = [{"name": "prefill", "replicas": 3, "minReplicas": 1}, {"name": "decode", "replicas": 3, "minReplicas": 1}]
RATIO: dict[str, Any] = {"mode": "Auto", "method": "Replace", "period": "5s", "periods": 2, "cooldown": "60s"}


def busy(tokens: float = 6000.0) -> PoolSignals:
    """Return signals of 6,000 tokens/s, which need 7.5 instances at 1,000 tokens/s and a target load of 0.8."""
    return pool_signals(role_signals(prompt_tokens_per_second=tokens))


async def rounds(stage: VirtualStage, count: int, seconds: float = 5.0) -> list[int]:
    """Run rounds in which pods become ready at once, and return the wanted numbers after each."""
    found = []
    for _ in range(count):
        stage.now += seconds
        stage.pods_become_ready()
        await stage.round()
        found.append(sum(role["desired"] for role in stage.pool()["status"]["roles"]))
    return found


async def a_stage(scaling: dict[str, Any]) -> VirtualStage:
    """Return a stage of two instances whose number has been compared with the need for 10 s and is enough."""
    stage = VirtualStage()
    stage.apply(replicas=2, roles=BOTH, scaling=scaling)
    await stage.settle()
    stage.api.signals = busy(1600.0)
    assert await rounds(stage, 3) == [2, 2, 2]
    return stage


async def test_a_pool_follows_what_its_slo_needs_and_says_why() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    assert await rounds(stage, 1) == [4]
    assert len(stage.pods()) == 4
    [grown] = [event for event in stage.events if event[1] == "ScalingUp"]
    assert grown[2].startswith("Instances wanted: 2 → 4 (7.5 instances are needed to prefill 6000 prompt tokens/s")
    assert grown[2].endswith("this period's steps are used up)")
    [role] = stage.pool()["status"]["roles"]
    assert role["lastScale"]["reason"] in grown[2]
    assert stage.pool()["spec"]["replicas"] == 2, "what is declared is left alone"
    await rounds(stage, 14)
    assert stage.pool()["status"]["roles"][0]["desired"] == 6
    stage.api.signals = busy(0.0)
    assert await rounds(stage, 10) == [6, 6, 6, 6, 5, 4, 3, 2, 1, 1]


async def test_nothing_is_done_by_a_number_that_could_not_be_written_down_and_an_event_tells_why() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    stage.cluster.refuse = lambda verb, resource, name: (
        ClusterRefused(403, "Forbidden", "no right to the status") if (verb, resource) == ("merge", Resource.POOLS) else None
    )
    await rounds(stage, 3)
    assert len(stage.pods()) == 2
    assert ("Warning", "ActionFailed", "no right to the status") in stage.events
    stage.cluster.refuse = lambda verb, resource, name: None
    await rounds(stage, 3)
    assert len(stage.pods()) == 4


async def test_every_decision_reaches_the_api_and_is_shown_in_the_status() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    await rounds(stage, 1)
    [shown] = stage.pool()["status"]["scaling"]["decisions"]
    assert (shown["current"], shown["recommended"], shown["replicas"], shown["verdict"]) == (2, 8, 4, "Applied")
    assert list(stage.api.states[-1].scaling_decisions) == []
    await rounds(stage, 1, seconds=1.0)
    [told] = stage.api.states[-1].scaling_decisions
    assert (told.id, told.hold, told.mode, told.upper) == (shown["id"], Hold.STEP_LIMIT, "SLO", 6)
    assert told.signals[0].prompt_tokens_per_second == 6000.0
    await rounds(stage, 1, seconds=90_000.0)
    assert told not in stage.api.states[-1].scaling_decisions, "after a day it is not news"


async def test_advice_changes_nothing_and_is_told() -> None:
    stage = await a_stage({**QUICK, "mode": "Advise"})
    stage.api.signals = busy()
    assert await rounds(stage, 3) == [2, 2, 2]
    [told] = stage.api.states[-1].scaling_decisions
    assert (told.verdict, told.recommended, told.replicas) == (Verdict.ADVISED, 8, 4)
    assert "advised only" in told.reason
    assert "ScalingUp" not in stage.reasons()


async def test_while_the_api_is_silent_the_last_number_stays() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    await rounds(stage, 1)
    stage.api.up = False
    assert await rounds(stage, 4) == [4, 4, 4, 4]
    assert stage.condition("ScalingActive")["reason"] == "NoSignals"
    stage.api.up, stage.api.signals = True, None
    assert await rounds(stage, 4) == [4, 4, 4, 4]


async def test_a_restart_between_any_two_rounds_decides_the_same() -> None:
    loads = [busy(tokens) for tokens in (6000.0, 6000.0, 2500.0, 0.0, 0.0, 4000.0, 800.0, 0.0, 0.0, 0.0, 0.0)]

    async def history(restarts: bool) -> tuple[list[int], list[str]]:
        stage = await a_stage(QUICK)
        numbers, ids = [], []
        for load in loads * 2:
            stage.api.signals = load
            if restarts:
                stage.restart()
            numbers += await rounds(stage, 1)
            ids += [decision["id"] for decision in stage.pool()["status"]["scaling"].get("decisions", [])]
        return numbers, ids

    assert await history(restarts=True) == await history(restarts=False)


async def test_a_round_that_is_lost_before_its_status_tells_the_same_decision_again() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    before = stage.pool()["status"]
    await rounds(stage, 1)
    [first] = stage.pool()["status"]["scaling"]["decisions"]
    stage.pool()["status"] = before
    stage.restart()
    await rounds(stage, 1)
    [again] = stage.pool()["status"]["scaling"]["decisions"]
    assert first["id"] == again["id"]


async def test_a_spec_that_cannot_be_read_for_a_while_changes_no_number() -> None:
    stage = await a_stage(QUICK)
    stage.api.signals = busy()
    assert (await rounds(stage, 20))[-1] == 6
    status, spec = stage.pool()["status"], stage.pool()["spec"]
    kept = {name: status[name] for name in ("desired", "roles", "scaling")}
    status["specInForce"]["spec"], unread = {"model": 1}, {**spec, "routing": {"policy": "nobody"}}
    stage.apply(**unread)
    stage.restart()
    await rounds(stage, 3)
    assert stage.condition("Ready")["reason"] == "InvalidRouting"
    assert {name: stage.pool()["status"][name] for name in kept} == kept
    stage.apply(**spec)
    assert await rounds(stage, 3) == [6, 6, 6]
    assert "Draining" not in stage.reasons()


async def test_bounds_are_named_where_they_limit() -> None:
    stage = await a_stage(QUICK)
    assert stage.condition("ScalingLimited")["reason"] == "DesiredWithinRange"
    stage.api.signals = busy()
    await rounds(stage, 15)
    limited = stage.condition("ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "TooManyReplicas")
    assert limited["message"] == "8 instances are recommended, but the role allows only 1 to 6"
    assert stage.condition("ScalingActive")["reason"] == "ValidSignalsFound"


async def test_a_step_that_bounds_cut_short_has_the_reason_of_its_decision() -> None:
    stage = await a_stage({**QUICK, "scaleUp": {**QUICK["scaleUp"], "instances": 10}})
    stage.api.signals = busy()
    assert await rounds(stage, 1) == [6]
    [grown] = [event for event in stage.events if event[1] == "ScalingUp"]
    [shown] = stage.pool()["status"]["scaling"]["decisions"]
    assert shown["reason"].endswith("only 6 instead of 8: the bounds are 1 to 6")
    assert shown["reason"] in grown[2]


async def test_an_instance_goes_to_the_role_that_lacks_it_and_one_event_says_so() -> None:
    stage = VirtualStage()
    stage.apply(replicas=1, roles=PAIR, ratio=RATIO)
    await stage.settle()
    arriving = {"serving": 3, "prompt_tokens_per_second": 4500.0, "output_tokens_per_second": 300.0}
    unlike = role_signals(Role.PREFILL, prefill_load=1.5, **arriving), role_signals(Role.DECODE, decode_load=0.1, **arriving)
    stage.api.signals = pool_signals(*unlike)
    await rounds(stage, 3)
    assert {role["name"]: role["desired"] for role in stage.pool()["status"]["roles"]} == {"prefill": 4, "decode": 2}
    [changed] = [message for _, reason, message in stage.events if reason == "RatioChanged"]
    assert changed == (
        "prefill 3 → 4, decode 3 → 2 (more work arrives than the instances can do, and by a model 88.9 % "
        "instead of 66.7 % of the requests could be "
        "served after a move: one decode instance should become prefill, for 2 comparisons in a row)"
    )
    assert "ScalingUp" not in stage.reasons()
    [told] = [event for event in stage.api.events if event.reason == "RatioChanged"]
    assert told.after == {"prefill": 4, "decode": 2}


async def test_a_window_lets_the_ratio_move_and_its_end_takes_the_move_back() -> None:
    stage = VirtualStage()
    start = datetime.fromtimestamp(int(stage.now) + 120, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    busy_hours = {"name": "busy", "cron": "0 0 29 2 *", "duration": "1m", "runAt": [start], "ratio": {**RATIO, "method": "RoleFlip"}}
    stage.apply(replicas=1, roles=PAIR, ratio={"method": "Replace"}, scaling={"schedules": [busy_hours]})
    await stage.settle()
    arriving = {"serving": 3, "prompt_tokens_per_second": 4500.0, "output_tokens_per_second": 300.0}
    unlike = role_signals(Role.PREFILL, prefill_load=1.5, **arriving), role_signals(Role.DECODE, decode_load=0.1, **arriving)
    stage.api.signals = pool_signals(*unlike)

    async def wanted(count: int) -> dict[str, int]:
        await rounds(stage, count)
        return {role["name"]: role["desired"] for role in stage.pool()["status"]["roles"]}

    assert await wanted(5) == {"prefill": 3, "decode": 3}, "the pool's own mode is Fixed"
    stage.now = datetime.fromisoformat(start).timestamp()
    assert await wanted(4) == {"prefill": 4, "decode": 2}
    assert "RoleFlipped" in stage.reasons(), "the method is the window's too"
    stage.now += 60
    assert await wanted(2) == {"prefill": 3, "decode": 3}
    assert stage.condition("ScalingActive")["reason"] == "ScalingDisabled"


async def test_a_fixed_pool_remembers_nothing_and_says_that_it_is_fixed() -> None:
    stage = await a_stage({"mode": "Fixed"})
    stage.api.signals = busy()
    assert await rounds(stage, 3) == [2, 2, 2]
    assert "scaling" not in stage.pool()["status"]
    assert stage.condition("ScalingActive")["reason"] == "ScalingDisabled"


async def test_the_next_round_comes_when_a_comparison_is_due_and_no_sooner_without_signals() -> None:
    stage = await a_stage(QUICK)
    assert await stage.round() == 5.0
    stage.api.signals = None
    await rounds(stage, 1)
    assert await stage.round() == SETTINGS.pace.settled
    stage.api.up = False
    first, second = await stage.round(), await stage.round()
    assert first is not None
    assert second == 2 * first, "no comparison shortens the pauses before a silent API"


async def test_a_memory_that_cannot_be_read_is_rebuilt_from_what_stands_and_the_next_step_waits_for_a_period() -> None:
    stage = await a_stage(QUICK)
    stage.pool()["status"]["scaling"] = {"memory": {"roles": "four"}, "decisions": [{"id": 4}]}
    stage.api.signals = busy()
    assert await rounds(stage, 14) == [2] * 12 + [4] * 2, "what was done in the period before is not known"
    assert len(stage.pool()["status"]["scaling"]["decisions"]) == 1
