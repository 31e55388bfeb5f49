"""Loops: one round at a time, soon after something happened."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterUnavailable
from fairlead_operator.loops import PoolLoops
from fairlead_operator.settings import Pace

KEY = PoolKey(namespace="ns", name="chat")
PACE = Pace(least=0.001, busy=0.01, settled=0.05)


@dataclass(slots=True)
class Script:
    """Rounds that answer what `answers` says, at last for ever, and notice overlaps."""

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


async def until(wish: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not wish():
            await asyncio.sleep(0.001)


async def test_a_round_follows_an_event_and_another_one_when_it_is_due() -> None:
    script = Script([0.01, 3600.0])
    loops = PoolLoops(lambda key: script, PACE)
    loops.wake(KEY)
    await until(lambda: script.runs == 2)
    loops.wake(KEY)
    loops.wake(KEY)
    await until(lambda: script.runs == 3)
    await loops.stop()
    assert script.runs == 3


async def test_only_what_matters_of_an_object_wakes_its_pool() -> None:
    script = Script([3600.0])
    loops = PoolLoops(lambda key: script, PACE)
    loops.notice(KEY, "pod", ("Ready",))
    await until(lambda: script.runs == 1)
    loops.notice(KEY, "pod", ("Ready",))
    await asyncio.sleep(0.02)
    assert script.runs == 1
    loops.notice(KEY, "pod", None)
    await until(lambda: script.runs == 2)
    await loops.stop()


async def test_failed_rounds_are_repeated_and_do_not_end_the_loop() -> None:
    script = Script([ClusterUnavailable("away"), ValueError("a bug"), 3600.0])
    loops = PoolLoops(lambda key: script, PACE)
    loops.wake(KEY)
    await until(lambda: script.runs == 3)
    assert loops.pools() == (KEY,)
    await loops.stop()


async def test_a_pool_that_is_gone_ends_its_loop_and_may_come_again() -> None:
    script = Script([None])
    loops = PoolLoops(lambda key: script, PACE)
    loops.wake(KEY)
    await until(lambda: script.runs == 1 and loops.pools() == ())
    loops.wake(KEY)
    await until(lambda: script.runs == 2 and loops.pools() == ())
