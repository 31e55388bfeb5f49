"""Loops: one round at a time, soon after something happened."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterUnavailable
from fairlead_operator.queues import PoolQueues
from fairlead_operator.settings import Pace

KEY = PoolKey(namespace="ns", name="chat")
PACE = Pace(least=0.001, busy=0.01, settled=0.05)


@dataclass(slots=True)
class Script:
    """A reconciler that answers what `answers` says, the last one for ever, and notices overlaps."""

    answers: list[float | Exception | None]
    runs: int = 0
    running: bool = False
    told: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> float | None:
        assert not self.running, "rounds overlap"
        self.running = True
        await asyncio.sleep(0)
        self.running = False
        answer = self.answers[min(self.runs, len(self.answers) - 1)]
        self.runs += 1
        self.told.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True)
class Stuck:
    """A round that never ends by itself."""

    runs: int = 0
    ended: bool = False

    async def run(self) -> float | None:
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
        return None


def acting(script: Script) -> PoolQueues:
    """Loops that act already."""
    queues = PoolQueues(lambda key: script, PACE, lambda: 0.5)
    queues.begin()
    return queues


async def until(wish: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not wish():
            await asyncio.sleep(0.001)


async def test_a_round_follows_an_event_and_another_one_when_it_is_due() -> None:
    script = Script([0.01, 3600.0])
    queues = acting(script)
    queues.wake(KEY)
    await until(lambda: script.runs == 2)
    queues.wake(KEY)
    queues.wake(KEY)
    await until(lambda: script.runs == 3)
    await queues.halt()
    assert script.runs == 3


async def test_only_what_matters_of_an_object_wakes_its_pool() -> None:
    script = Script([3600.0])
    queues = acting(script)
    queues.observe(KEY, "pod", ("Ready",))
    await until(lambda: script.runs == 1)
    queues.observe(KEY, "pod", ("Ready",))
    await asyncio.sleep(0.02)
    assert script.runs == 1
    queues.observe(KEY, "pod", None)
    await until(lambda: script.runs == 2)
    await queues.halt()


async def test_failed_rounds_are_repeated_and_do_not_end_the_loop() -> None:
    script = Script([ClusterUnavailable("away"), ValueError("a bug"), 3600.0])
    queues = acting(script)
    queues.wake(KEY)
    await until(lambda: script.runs == 3)
    assert queues.pools() == (KEY,)
    await queues.halt()


async def test_a_pool_that_is_gone_ends_its_loop_and_may_come_again() -> None:
    script = Script([None])
    queues = acting(script)
    queues.wake(KEY)
    await until(lambda: script.runs == 1 and queues.pools() == ())
    queues.wake(KEY)
    await until(lambda: script.runs == 2 and queues.pools() == ())


async def test_a_standby_remembers_pools_and_looks_at_all_of_them_when_it_may_act() -> None:
    script = Script([3600.0])
    queues = PoolQueues(lambda key: script, PACE, lambda: 0.5)
    queues.observe(KEY, "pod", ("Ready",))
    await asyncio.sleep(0.02)
    assert (script.runs, queues.pools()) == (0, (KEY,))
    queues.begin()
    await until(lambda: script.runs == 1)
    await queues.halt()
    queues.wake(KEY)
    await asyncio.sleep(0.02)
    assert script.runs == 1, "it may not act any more"
    queues.begin()
    await until(lambda: script.runs == 2)
    await queues.halt()


async def test_halting_ends_a_round_in_the_middle() -> None:
    stuck = Stuck()
    queues = PoolQueues(lambda key: stuck, PACE, lambda: 0.5)
    queues.begin()
    queues.wake(KEY)
    await until(lambda: stuck.runs == 1)
    await queues.halt()
    assert stuck.ended


async def test_no_more_rounds_run_at_once_than_allowed() -> None:
    stuck = Stuck()
    queues = PoolQueues(lambda key: stuck, Pace(reconciles_at_once=3), lambda: 0.5)
    queues.begin()
    for number in range(10):
        queues.wake(PoolKey(namespace="ns", name=f"p{number}"))
    await asyncio.sleep(0.02)
    assert stuck.runs == 3
    await queues.halt()
