"""Pools that take turns on shared devices: `roles[].warm.turns`."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import InstanceState
from fairlead_operator.cluster import ClusterRefused, Resource
from fairlead_operator.sleepers import read_memory
from fairlead_testing.examples import examples
from fairlead_testing.worlds.turn_stages import QUIET, TurnStage

ONE, THREE = ("gpu-0",), ("gpu-0", "gpu-1", "gpu-2")
ASLEEP, DRAINING = InstanceState.ASLEEP, InstanceState.DRAINING


def at_least(seconds: int, claims: tuple[str, ...] = ONE, **turns: Any) -> dict[str, Any]:
    return {"claims": list(claims), "atLeast": f"{seconds}s", **turns}


async def with_one_device(least: int = 0, **turns: Any) -> TurnStage:
    """Return a stage in which pool a serves on the only device, and pool b wants it."""
    stage = TurnStage()
    stage.pool_of("a", 1, at_least(20, **turns), least)
    await stage.seconds(10)
    assert len(stage.serving("a")) == 1
    stage.pool_of("b", 1, at_least(20))
    return stage


async def test_pools_take_turns_and_wake_instead_of_starting_again() -> None:
    stage = await with_one_device()
    await stage.seconds(10)
    assert not stage.those("b", *InstanceState), "nothing starts on a device that is in use"
    waits = stage.condition("b")
    assert (waits["status"], waits["reason"]) == ("False", "WaitsForDevice")
    assert waits["message"].startswith("1 of 1 instances waits for a device; in use: gpu-0 by a-b")
    assert waits["message"].endswith("of a (Serving)")
    await stage.seconds(20)
    assert (len(stage.those("a", ASLEEP)), len(stage.serving("b"))) == (1, 1)
    assert stage.condition("a")["reason"] == "WaitsForDevice"
    await stage.seconds(30)
    assert (len(stage.serving("a")), len(stage.those("b", ASLEEP))) == (1, 1)
    assert len(stage.pods()) == 2, "nothing is made again"
    assert {"a", "b"} <= {pool.name for pool in stage.woken}, "they need not wait for their next rounds"


async def test_a_pool_keeps_its_minimum_and_what_a_lower_priority_wants() -> None:
    for stage in (await with_one_device(least=1), await with_one_device(priority=1)):
        await stage.seconds(60)
        assert len(stage.serving("a")) == 1
        assert not stage.those("b", *InstanceState)


async def test_a_higher_priority_and_a_minimum_are_served_first() -> None:
    stage = await with_one_device()
    stage.pool_of("b", 1, at_least(20, priority=1))
    await stage.seconds(100)
    assert len(stage.serving("b")) == 1, "and keeps the device"
    stage.pool_of("a", 1, at_least(20), 1)
    await stage.seconds(10)
    assert len(stage.serving("a")) == 1, "a minimum comes before priorities"


async def test_an_instance_that_answers_requests_is_emptied_before_it_gives_up_its_device() -> None:
    stage = await with_one_device()
    [holder] = stage.serving("a")
    stage.planes.of["a"].in_flight = {holder: 1}
    await stage.seconds(40)
    assert stage.those("a", DRAINING) == [holder]
    assert not stage.those("b", *InstanceState)
    stage.planes.of["a"].in_flight = {}
    await stage.seconds(12)
    assert len(stage.serving("b")) == 1


async def test_an_engine_that_says_that_it_sleeps_and_still_uses_its_memory_holds_its_device() -> None:
    """vLLM says so while it still moves its weights away, and also when somebody else paused it."""
    stage = await with_one_device()
    stage.fake.sleep_seconds = 40.0
    await stage.seconds(40)
    assert len(stage.those("a", ASLEEP)) == 1
    assert not stage.those("b", *InstanceState)
    assert "of a (Asleep)" in stage.condition("b")["message"]
    await stage.seconds(40)
    assert len(stage.serving("b")) == 1


async def test_an_engine_that_somebody_paused_is_woken_where_nobody_waits_for_its_device() -> None:
    stage = TurnStage()
    stage.pool_of("a", 1, at_least(20))
    await stage.seconds(10)
    [paused] = stage.serving("a")
    stage.fake.asleep.add(stage.address(paused))
    stage.fake.falling[stage.address(paused)] = float("inf")
    await stage.seconds(10)
    assert stage.serving("a") == [paused]


async def test_pools_even_out_and_an_idle_pool_gives_up_all() -> None:
    stage = TurnStage()
    stage.pool_of("a", 3, at_least(10, THREE))
    await stage.seconds(10)
    stage.pool_of("b", 3, at_least(10, THREE))
    await stage.seconds(60)
    assert (len(stage.serving("a")), len(stage.serving("b"))) == (2, 1), "the last device does not change hands for ever"
    stage.planes.of["a"].demand = QUIET
    await stage.seconds(60)
    for _ in range(20):
        await stage.second()
        assert (len(stage.serving("a")), len(stage.serving("b"))) == (0, 3), "and does not take one back"


async def test_of_two_pools_the_one_without_requests_gives_up_its_device() -> None:
    stage = TurnStage()
    for name in ("a", "c"):
        stage.pool_of(name, 1, at_least(10, THREE[:2]))
    stage.planes.of["c"].demand = QUIET
    await stage.seconds(20)
    stage.pool_of("b", 1, at_least(600, THREE[:2]))
    await stage.seconds(20)
    assert [len(stage.serving(name)) for name in ("a", "b", "c")] == [1, 1, 0]


async def test_a_pool_that_waits_for_more_does_not_take_back_what_it_gave_up() -> None:
    stage = TurnStage()
    stage.pool_of("c", 1, ("gpu-1",), 1)
    stage.pool_of("a", 2, at_least(20, THREE[:2]))
    await stage.seconds(15)
    assert stage.condition("a")["reason"] == "WaitsForDevice"
    stage.pool_of("b", 1, at_least(600))
    await stage.seconds(40)
    assert [len(stage.serving(name)) for name in "abc"] == [0, 1, 1]


async def test_a_sleeper_that_a_person_keeps_from_waking_does_not_keep_its_pool_from_its_device() -> None:
    stage = await with_one_device()
    stage.pool_of("b", 0, at_least(20))
    stage.pool_of("a", 0, at_least(20))
    await stage.seconds(20)
    [sleeper] = stage.those("a", ASLEEP)
    stage.cluster.objects[Resource.PODS, sleeper]["metadata"]["annotations"]["fairlead.dev/cordoned"] = "true"
    stage.pool_of("a", 1, at_least(20))
    await stage.seconds(20)
    assert len(stage.serving("a")) == 1
    assert stage.those("a", ASLEEP) == [sleeper]
    assert all(len(users) == 1 for users in stage.using().values())


async def test_a_sleeper_whose_device_the_pool_no_longer_names_goes() -> None:
    stage = TurnStage()
    stage.pool_of("a", 1, at_least(20))
    await stage.seconds(10)
    stage.pool_of("a", 0, at_least(20))
    await stage.seconds(20)
    [sleeper] = stage.those("a", ASLEEP)
    stage.pool_of("a", 1, at_least(20, THREE[1:2]))
    await stage.seconds(20)
    assert [stage.claim(name) for name in stage.serving("a")] == ["gpu-1"]
    assert sleeper not in stage.states(), "it could never wake, and its place is taken from another that could"


async def test_a_sleeper_that_wakes_out_of_turn_goes() -> None:
    stage = await with_one_device()
    await stage.seconds(30)
    [sleeper], [holder] = stage.those("a", ASLEEP), stage.serving("b")
    stage.fake.rouse(stage.address(sleeper))
    await stage.seconds(1)
    assert sleeper not in stage.states()
    assert stage.serving("b") == [holder]
    assert any(event.reason == "OutOfTurn" and event.instance == sleeper for event in stage.events("a"))


async def test_a_device_that_its_first_pool_does_not_take_is_taken_by_another() -> None:
    stage = await with_one_device()
    await stage.seconds(12)
    assert stage.condition("b")["reason"] == "WaitsForDevice"
    del stage.reconcilers["b"]  # its rounds fail from now on, and its condition stays
    await stage.seconds(30)
    assert stage.those("a", ASLEEP)
    served = False
    for _ in range(70):
        await stage.second()
        served = served or bool(stage.serving("a"))
    assert served


async def test_a_sleeper_whose_engine_says_nothing_does_not_keep_a_device_for_ever() -> None:
    stage = await with_one_device()
    stage.fake.sleep_seconds = 5.0
    while not stage.those("a", ASLEEP):
        await stage.second()
    [sleeper] = stage.those("a", ASLEEP)
    stage.fake.silent.add(stage.address(sleeper))
    await stage.seconds(20)
    assert not stage.those("b", *InstanceState)
    stage.now += 300
    await stage.seconds(15)
    assert sleeper not in stage.states()
    assert len(stage.serving("b")) == 1


@pytest.mark.parametrize("restarted", [False, True], ids=["watched", "while another operator ran"])
@pytest.mark.parametrize("why", ["its rounds stop", "its objects cannot be read", "a fault"])
async def test_a_pool_that_is_no_longer_worked_on_takes_no_device_from_others(why: str, restarted: bool) -> None:
    stage = await with_one_device()
    await stage.seconds(5)
    assert stage.condition("b")["reason"] == "WaitsForDevice"
    if restarted:
        stage.restart()
    if why == "its rounds stop":
        del stage.reconcilers["b"]
    elif why == "its objects cannot be read":
        stage.cluster.refuse = lambda verb, resource, name: (
            ClusterRefused(403, "Forbidden", "no") if (verb, resource, name.endswith("=b")) == ("find", Resource.PODS, True) else None
        )
    else:
        stage.cluster.objects[Resource.POOLS, "b"]["status"]["roles"] = ["spoilt"]
    handed_over = 0
    for _ in range(300):
        with suppress(ClusterRefused, TypeError):
            await stage.second()
        handed_over += stage.those("a", DRAINING) != []
    assert len(stage.serving("a")) == 1, "it has requests, and nobody else uses the device"
    assert handed_over <= 2, "at most once, while the other's condition was not out of date yet"


async def test_a_rollout_takes_the_old_instance_out_first_even_at_the_minimum() -> None:
    stage = TurnStage()
    stage.pool_of("a", 1, at_least(20), 1)
    await stage.seconds(10)
    [old] = stage.serving("a")
    stage.pool_of("a", 1, at_least(20), 1, engine={"simulated": {"maxRunning": 9}})
    await stage.seconds(20)
    assert old not in stage.states()
    assert len(stage.serving("a")) == 1


async def test_a_pod_that_is_no_instance_holds_the_device_that_it_claims() -> None:
    stage = TurnStage()
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-0"}], "containers": [{"name": "train"}]}
    stage.cluster.put(Resource.PODS, {"metadata": {"name": "job", "namespace": "default"}, "spec": spec, "status": {"phase": "Running"}})
    stage.pool_of("a", 1, ONE)
    for _ in range(3):
        stage.now += 1
        stage.reconcilers["a"].changed()
        await stage.reconcilers["a"].reconcile()
    assert stage.condition("a")["message"] == "1 of 1 instances waits for a device; in use: gpu-0 by job, not an instance"
    assert [pod["metadata"]["name"] for pod in stage.pods()] == ["job"]


LINE = 'vllm:engine_sleep_state{engine="%d",model_name="m",sleep_state="%s"} %.1f'


def page(*ranks: tuple[float, float, float]) -> bytes:
    names = ("awake", "weights_offloaded", "discard_all")
    lines = [LINE % (rank, name, value) for rank, values in enumerate(ranks) for name, value in zip(names, values, strict=True)]
    return "\n".join(["# TYPE vllm:engine_sleep_state gauge", *lines, "vllm:num_requests_running 0.0", ""]).encode()


@pytest.mark.parametrize(
    ("told", "gone"),
    [
        (page((0, 1, 0)), True),
        (page((0, 0, 1), (0, 1, 0)), True),
        (page((1, 0, 0)), False),
        (page((0, 0, 0)), False),
        (page((0, 1, 0), (1, 0, 0)), False),
        (page((0, 1, 0), (0, 0, 0)), False),
        (b"", False),
        (b"vllm:engine_sleep_state 1.0", False),
    ],
)
def test_only_a_state_without_weights_in_each_rank_says_that_the_memory_is_free(told: bytes, gone: bool) -> None:
    assert read_memory(told) is gone


DISTURBANCES = ("restart", "rouse", "pause", "deaf", "heed", "silent", "talk", "lose", "delete", "busy", "idle")
EVENTS = st.tuples(
    st.one_of(
        st.tuples(st.just("scale"), st.integers(0, 3)),
        st.tuples(st.sampled_from(DISTURBANCES), st.integers(0, 5)),
    ),
    st.integers(1, 6),
)


@examples(20)
@given(st.lists(EVENTS, min_size=1, max_size=8))
def test_no_history_lets_two_pools_onto_a_device_or_leaves_one_waiting_for_ever(history: list[tuple[tuple[str, int], int]]) -> None:
    asyncio.run(_play(history))


async def _play(history: list[tuple[tuple[str, int], int]]) -> None:
    stage, wanted = TurnStage(start_seconds=3.0), {"a": 3, "b": 2}
    for name, replicas in wanted.items():
        stage.pool_of(name, replicas, at_least(5, THREE))
    others_doing: set[str] = set()
    for (what, number), seconds in history:
        others_doing |= _disturb(stage, wanted, what, number)
        for _ in range(seconds):
            await stage.second()
            _assert_apart(stage, others_doing)
    stage.fake.deaf = False
    stage.fake.silent.clear()
    stage.unready.clear()
    for plane in stage.planes.of.values():
        plane.in_flight = {}
    for name in wanted:
        stage.pool_of(name, 2, at_least(5, THREE))
    await stage.seconds(5)
    stage.now += 400  # what is lost, silent or does not wake is given up
    served: set[str] = set()
    for _ in range(60):
        await stage.second()
        _assert_apart(stage, others_doing)
        served |= {name for name in wanted if stage.serving(name)}
    assert served == set(wanted), "a pool never gets a device"
    assert sum(len(stage.serving(name)) for name in wanted) == 3, "a device stays free"


def _assert_apart(stage: TurnStage, others_doing: set[str]) -> None:
    """Assert that two pods use a device only if somebody else woke one of them."""
    for claim, users in stage.using().items():
        assert len(set(users) - others_doing) <= 1, (claim, users, stage.states())


def _disturb(stage: TurnStage, wanted: dict[str, int], what: str, number: int) -> set[str]:
    names = sorted(stage.states())
    name = names[number % len(names)] if names else ""
    pool = sorted(wanted)[number % 2]
    known = name in stage.born
    match what:
        case "scale":
            wanted[pool] = number
            stage.pool_of(pool, number, at_least(5, THREE))
        case "restart":
            stage.restart()
        case "rouse" if known:
            stage.fake.rouse(stage.address(name))
            return {name}
        case "pause" if known and stage.address(name) not in stage.fake.asleep:  # it says that it sleeps, and keeps its memory
            stage.fake.asleep.add(stage.address(name))
            stage.fake.falling[stage.address(name)] = float("inf")
        case "silent" if known:
            stage.fake.silent.add(stage.address(name))
        case "talk":
            stage.fake.silent.clear()
        case "deaf" | "heed":
            stage.fake.deaf = what == "deaf"
        case "lose" if name:
            stage.unready ^= {name}
        case "delete" if name:
            stage.cluster.objects.pop((Resource.PODS, name))
        case "busy" | "idle":
            stage.planes.of[pool].in_flight = dict.fromkeys(names, int(what == "busy"))
    return set()
