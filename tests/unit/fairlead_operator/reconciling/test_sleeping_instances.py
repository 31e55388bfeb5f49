"""Instances that sleep instead of being deleted: `roles[].warm`."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.instances import ACCEPTING, InstanceState
from fairlead.reconciling.observed import EngineSleep
from fairlead.scaling.signals import PoolDemand
from fairlead.tables import Outlook
from fairlead_operator.cluster import Resource
from fairlead_operator.sleepers import read_answer
from fairlead_testing.examples import examples
from fairlead_testing.fakes.sleeping_engines import FakeEngines
from fairlead_testing.worlds.operator_stages import VirtualStage

ENGINE: dict[str, Any] = {"simulated": {}}
AT_ONCE = {"warming": {"duration": "0s"}}


@dataclass
class SleepingStage(VirtualStage):
    """A pool whose pods have addresses of their own, and become ready some time after they were made."""

    start_seconds: float = 0.0
    born: dict[str, float] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fake = FakeEngines(now=lambda: self.now)
        self.engines = self.fake

    def pool_of(self, replicas: int, asleep: int | None = 1, **role: Any) -> None:
        warm = {} if asleep is None else {"warm": {"asleep": asleep}}
        self.apply(replicas=replicas, engine=ENGINE, routing=AT_ONCE, roles=[{"name": "both", **warm, **role}])

    def pods_become_ready(self) -> None:
        for pod in self.pods():
            name = pod["metadata"]["name"]
            since = self.born.setdefault(name, self.now)
            is_ready = self.now - since >= self.start_seconds and name not in self.unready
            ready = {"type": "Ready", "status": "True" if is_ready else "False"}
            conditions = [ready, {"type": "ContainersReady", "status": ready["status"]}]
            pod["status"] = {"phase": "Running", "podIP": self.ip(name), "conditions": conditions}

    def ip(self, name: str) -> str:
        number = list(self.born).index(name) + 1
        return f"10.0.{number // 250}.{number % 250}"

    def address(self, name: str) -> str:
        return f"{self.ip(name)}:8000"

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            self.pods_become_ready()
            self.now += 1
            await self.round()
            await asyncio.sleep(0)  # what the engines are told, they are told in the background
            await asyncio.sleep(0)

    def states(self) -> dict[str, InstanceState]:
        return {one.id: one.state for one in self.api.states[-1].instances}

    def those(self, state: InstanceState) -> list[str]:
        return sorted(name for name, found in self.states().items() if found is state)

    def role_status(self) -> dict[str, Any]:
        role: dict[str, Any] = self.pool()["status"]["roles"][0]
        return role

    def event_reasons(self) -> list[str]:
        return [event.reason for event in self.api.events]


async def serving(replicas: int = 3, asleep: int | None = 1, **role: Any) -> SleepingStage:
    stage = SleepingStage()
    stage.pool_of(replicas, asleep, **role)
    await stage.seconds(6)
    assert len(stage.those(InstanceState.SERVING)) == replicas
    return stage


async def with_a_sleeper(**role: Any) -> tuple[SleepingStage, str]:
    """Return a stage with two instances that serve and one that sleeps."""
    stage = await serving(3, **role)
    stage.pool_of(2, **role)
    await stage.seconds(8)
    (sleeper,) = stage.those(InstanceState.ASLEEP)
    return stage, sleeper


async def test_scale_in_puts_to_sleep_what_the_role_keeps_and_deletes_the_rest() -> None:
    stage = await serving(4)
    stage.pool_of(2)
    await stage.seconds(10)
    assert len(stage.those(InstanceState.SERVING)) == 2
    assert len(stage.those(InstanceState.ASLEEP)) == 1 == len(stage.fake.asleep)
    assert len(stage.pods()) == 3
    assert stage.role_status() == {**stage.role_status(), "desired": 2, "ready": 2, "asleep": 1, "draining": 0}
    assert stage.pool()["status"]["replicas"] == 2, "autoscalers count no sleeper"
    assert stage.condition("InstancesReady")["message"] == "2 of 2 instances serve, and 1 sleeps"
    assert stage.condition("Progressing")["status"] == "False"


async def test_an_instance_is_drained_before_it_sleeps() -> None:
    stage = await serving(2)
    stage.api.in_flight = dict.fromkeys(stage.states(), 1)
    stage.pool_of(1)
    await stage.seconds(5)
    assert len(stage.those(InstanceState.DRAINING)) == 1
    assert not stage.fake.told
    stage.api.in_flight = {}
    await stage.seconds(5)
    assert len(stage.those(InstanceState.ASLEEP)) == 1


async def test_scale_out_wakes_before_it_creates() -> None:
    stage, sleeper = await with_a_sleeper()
    stage.pool_of(4)
    await stage.seconds(2)
    assert stage.states()[sleeper] is InstanceState.STARTING
    assert stage.role_status()["asleep"] == 0
    assert stage.event_reasons().count("InstanceWoken") == 1
    await stage.seconds(2)
    assert stage.states()[sleeper] is InstanceState.STARTING, "it takes seconds to wake up"
    await stage.seconds(8)
    assert len(stage.those(InstanceState.SERVING)) == 4
    assert len(stage.pods()) == 4, "one was woken and one was made"


async def test_a_pool_at_zero_is_awake_again_as_soon_as_its_sleeper_is() -> None:
    stage = await serving(1)
    scaling = {"mode": "SLO", "zero": {"idleAfter": "10m"}}
    stage.apply(replicas=1, engine=ENGINE, routing=AT_ONCE, scaling=scaling, roles=[{"name": "both", "warm": {"asleep": 1}}])
    stage.api.demand = PoolDemand(held_requests=0, held_prompt_tokens=0, in_flight=0, idle_seconds=700.0)
    await stage.seconds(8)
    (sleeper,) = stage.those(InstanceState.ASLEEP)
    assert stage.condition("Ready")["reason"] == "ScaledToZero"
    assert stage.api.states[-1].outlook is Outlook.COMING, "routers hold what comes"
    stage.api.demand = PoolDemand(held_requests=3, held_prompt_tokens=300, in_flight=0, idle_seconds=0.0)
    await stage.seconds(9)
    assert stage.those(InstanceState.SERVING) == [sleeper]


@pytest.mark.parametrize("after_the_call", [False, True])
async def test_an_operator_killed_while_an_instance_falls_asleep_or_wakes_goes_on(after_the_call: bool) -> None:
    stage = await serving(2)
    stage.fake.deaf = not after_the_call  # the process ends before the call is out
    stage.pool_of(1)
    while not stage.fake.told:
        await stage.seconds(1)
    stage.fake.deaf = False
    stage.restart()
    await stage.seconds(5)
    (sleeper,) = stage.those(InstanceState.ASLEEP)
    stage.fake.told.clear()
    stage.fake.deaf = not after_the_call
    stage.pool_of(2)
    while not stage.fake.told:
        await stage.seconds(1)
    stage.fake.deaf = False
    stage.restart()
    await stage.seconds(12)
    assert stage.states()[sleeper] is InstanceState.SERVING
    assert len(stage.pods()) == 2


async def test_a_sleeper_that_somebody_else_wakes_is_seen_and_its_pool_corrected() -> None:
    stage, sleeper = await with_a_sleeper()
    stage.fake.rouse(stage.address(sleeper))
    await stage.seconds(2)
    assert stage.states()[sleeper] in {InstanceState.WARMING, InstanceState.SERVING}
    await stage.seconds(10)
    assert len(stage.those(InstanceState.SERVING)) == 2
    assert len(stage.those(InstanceState.ASLEEP)) == 1
    assert "somebody else woke it" in next(event.message for event in stage.api.events if event.reason == "InstanceWoken")


async def test_an_instance_that_somebody_else_puts_to_sleep_is_seen_and_woken() -> None:
    stage = await serving(2)
    victim = min(stage.states())
    stage.fake.asleep.add(stage.address(victim))
    await stage.seconds(1)
    assert stage.cluster.objects[Resource.PODS, victim]["metadata"]["annotations"]["fairlead.dev/state"] == "Asleep"
    await stage.seconds(10)
    assert len(stage.those(InstanceState.SERVING)) == 2
    assert len(stage.pods()) == 2, "it was woken, not replaced"
    assert "put to sleep by somebody else" in next(event.message for event in stage.api.events if event.reason == "InstanceAsleep")


@pytest.mark.parametrize("kind", ["unable", "refusing"])
async def test_an_engine_that_cannot_sleep_is_deleted_and_the_pool_says_so(kind: str) -> None:
    stage = await serving(3)
    getattr(stage.fake, kind).update(stage.address(name) for name in stage.states())
    stage.pool_of(2)
    await stage.seconds(10)
    assert len(stage.pods()) == 2
    if kind == "unable":
        degraded = stage.condition("Degraded")
        assert degraded["reason"] == "SleepNotSupported"
        assert "--enable-sleep-mode" in degraded["message"]


async def test_a_silent_engine_is_waited_for_until_the_drain_times_out() -> None:
    stage = await serving(2)
    stage.fake.silent.update(stage.address(name) for name in stage.states())
    stage.pool_of(1)
    await stage.seconds(20)
    assert len(stage.pods()) == 2
    stage.now += 120
    await stage.seconds(3)
    assert len(stage.pods()) == 1


async def test_an_instance_that_does_not_wake_up_is_replaced() -> None:
    stage, sleeper = await with_a_sleeper()
    stage.fake.wake_seconds = float("inf")
    stage.pool_of(3)
    await stage.seconds(3)
    stage.now += 300
    await stage.seconds(10)
    assert sleeper not in stage.states()
    assert len(stage.those(InstanceState.SERVING)) == 3


async def test_an_outdated_sleeper_is_deleted_and_not_rolled_out() -> None:
    stage, sleeper = await with_a_sleeper()
    new = {"simulated": {"maxRunning": 99}}
    stage.apply(replicas=2, engine=new, routing=AT_ONCE, roles=[{"name": "both", "warm": {"asleep": 1}}])
    await stage.seconds(2)
    assert sleeper not in stage.states()


async def test_fewer_sleepers_are_kept_once_the_spec_says_so() -> None:
    stage, _ = await with_a_sleeper()
    stage.pool_of(2, 0)
    await stage.seconds(3)
    assert not stage.those(InstanceState.ASLEEP)


async def test_a_woken_instance_that_is_needed_no_more_sleeps_on() -> None:
    stage, sleeper = await with_a_sleeper()
    stage.pool_of(3)
    await stage.seconds(2)
    stage.pool_of(2)
    await stage.seconds(12)
    assert stage.states()[sleeper] is InstanceState.ASLEEP
    assert len(stage.those(InstanceState.SERVING)) == 2
    assert len(stage.pods()) == 3


async def test_a_woken_instance_has_lost_its_cache_and_warms_up_again() -> None:
    stage, sleeper = await with_a_sleeper()
    annotations = stage.cluster.objects[Resource.PODS, sleeper]["metadata"]["annotations"]
    assert "fairlead.dev/warmed-restarts" not in annotations
    assert "fairlead.dev/draining-since" not in annotations


async def test_the_budget_of_disruptions_does_not_count_on_a_sleeper() -> None:
    stage, _ = await with_a_sleeper()
    (budget,) = stage.cluster.all(Resource.BUDGETS)
    assert budget["spec"]["minAvailable"] == 2, "2 of 3 ready pods: the sleeper serves nobody"


async def test_a_pool_without_sleepers_asks_no_engine() -> None:
    stage = await serving(2, None)
    stage.fake.silent.update(stage.address(name) for name in stage.states())
    stage.pool_of(1, None)
    await stage.seconds(5)
    assert len(stage.pods()) == 1
    assert "asleep" not in stage.role_status()


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"is_sleeping":true}', EngineSleep.ASLEEP),
        (200, b'{"is_sleeping":false}', EngineSleep.AWAKE),
        (404, b'{"detail":"Not Found"}', EngineSleep.UNABLE),
        (405, b"", EngineSleep.UNABLE),
        (200, b'{"is_sleeping":"yes"}', EngineSleep.SILENT),
        (200, b"[true]", EngineSleep.SILENT),
        (200, b"<html>", EngineSleep.SILENT),
        (500, b'{"is_sleeping":true}', EngineSleep.SILENT),
        (None, b"", EngineSleep.SILENT),
    ],
)
def test_only_a_plain_answer_tells_whether_an_engine_sleeps(status: int | None, body: bytes, told: EngineSleep) -> None:
    assert read_answer(status, body) is told


OPERATIONS = st.one_of(
    st.tuples(st.just("scale"), st.integers(1, 5)),
    st.tuples(st.just("keep"), st.integers(0, 3)),
    st.tuples(st.sampled_from(("wake", "sleep", "lose", "delete", "restart", "deaf", "heed", "busy", "idle")), st.integers(0, 4)),
)


@examples(30)
@given(st.lists(st.tuples(OPERATIONS, st.integers(1, 4)), min_size=1, max_size=12))
def test_no_history_leaves_a_sleeper_in_service_or_a_pool_without_its_instances(history: list[tuple[tuple[str, int], int]]) -> None:
    asyncio.run(_play(history))


async def _play(history: list[tuple[tuple[str, int], int]]) -> None:
    stage = await serving(2)
    replicas, asleep = 2, 1
    for (what, number), seconds in history:
        replicas = number if what == "scale" else replicas
        asleep = number if what == "keep" else asleep
        disturb(stage, what, number, replicas, asleep)
        await stage.seconds(seconds)
        known = {stage.address(name) for name, state in stage.states().items() if state in ACCEPTING}
        fresh = {stage.address(sorted(stage.states())[number % len(stage.states())])} if what == "sleep" and stage.states() else set()
        assert not (known & stage.fake.asleep) - (fresh if seconds == 1 else set()), "a request may reach a sleeper"
    stage.fake.deaf = False
    stage.unready.clear()
    stage.api.in_flight = {}
    await stage.seconds(20)
    stage.now += 400  # lost instances and slow wakers are given up
    await stage.seconds(40)
    assert len(stage.those(InstanceState.SERVING)) == replicas
    assert len(stage.those(InstanceState.ASLEEP)) <= asleep
    assert {stage.address(name) for name in stage.those(InstanceState.ASLEEP)} <= stage.fake.asleep
    told = len(stage.fake.told)
    before = stage.states()
    await stage.seconds(10)
    assert (stage.states(), len(stage.fake.told)) == (before, told), "a settled pool goes on changing"


def disturb(stage: SleepingStage, what: str, number: int, replicas: int, asleep: int) -> None:
    names = sorted(stage.states())
    name = names[number % len(names)] if names else ""
    match what:
        case "scale" | "keep":
            stage.pool_of(replicas, asleep)
        case "wake" if name:
            stage.fake.rouse(stage.address(name))
        case "sleep" if name:
            stage.fake.asleep.add(stage.address(name))
        case "lose" if name:
            stage.unready.add(name)
        case "delete" if name:
            stage.cluster.objects.pop((Resource.PODS, name), None)
        case "restart":
            stage.restart()
        case "deaf" | "heed":
            stage.fake.deaf = what == "deaf"
        case "busy" | "idle":
            stage.api.in_flight = dict.fromkeys(names, int(what == "busy"))
