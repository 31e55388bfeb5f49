"""A pool's worker: it runs one step at a time, soon after an event."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterRefused, ClusterUnavailable
from fairlead_operator.pool_worker import PoolWorker, PoolWorkers, Turns
from fairlead_operator.settings import Pace
from fairlead_testing.waiting import PATIENCE_SECONDS

PACE = Pace(least=0.001, busy=0.01, settled=0.05)


@dataclass(slots=True)
class Script:
    """Steps that return the `answers` in order, the last one repeatedly, and detect overlaps.

    While `is_open` is not set, a step does not end.
    """

    answers: list[float | Exception | None]
    steps: list[str] = field(default_factory=list)
    running: bool = False
    changes: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_open.set()

    async def reconcile(self) -> float:
        answer = await self._step("reconcile")
        assert answer is not None
        return answer

    async def finalize(self) -> float | None:
        return await self._step("finalize")

    async def report_deletion(self) -> float | None:
        return await self._step("report")

    def changed(self) -> None:
        self.changes += 1

    def children_changed(self) -> None:
        self.steps.append("children")

    async def _step(self, name: str) -> float | None:
        assert not self.running, "steps overlap"
        self.running = True
        try:
            answer = self.answers[min(len(self.steps), len(self.answers) - 1)]
            self.steps.append(name)
            await asyncio.sleep(0)
            await self.is_open.wait()
        finally:
            self.running = False
        if isinstance(answer, Exception):
            raise answer
        return answer


def turns(places: int = 16) -> Turns:
    return Turns(pace=PACE, places=asyncio.Semaphore(places), chance=lambda: 0.5)


@asynccontextmanager
async def daemon(worker: PoolWorker) -> AsyncIterator[None]:
    """Yield while the worker runs as a daemon of kopf; cancel it as kopf does."""
    task = asyncio.create_task(worker.run())
    try:
        yield
        assert not task.done(), "a daemon never ends by itself: kopf would not start it again"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(wish: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not wish():
            await asyncio.sleep(0.001)


async def test_a_step_follows_an_event_and_another_one_when_it_is_due() -> None:
    script = Script([0.01, 3600.0])
    worker = PoolWorker(script, "ns/chat", turns())
    async with daemon(worker):
        await until(lambda: len(script.steps) == 2)
        worker.wake()
        worker.wake()
        await until(lambda: len(script.steps) == 3)
        await asyncio.sleep(0.02)
    assert len(script.steps) == 3


async def test_an_event_during_a_step_is_not_lost() -> None:
    script = Script([3600.0])
    script.is_open.clear()
    worker = PoolWorker(script, "ns/chat", turns())
    async with daemon(worker):
        await until(lambda: script.running)
        worker.wake()
        script.is_open.set()
        await until(lambda: len(script.steps) == 2)


async def test_failed_steps_are_repeated_and_do_not_end_the_daemon() -> None:
    script = Script([ClusterUnavailable("away"), ValueError("a bug"), 3600.0])
    async with daemon(PoolWorker(script, "ns/chat", turns())):
        await until(lambda: len(script.steps) == 3)


async def test_steps_count_by_how_they_ended_and_failed_ones_by_pool() -> None:
    script = Script([RuntimeError("a bug"), ClusterUnavailable("away"), ClusterRefused(403, "Forbidden", "no"), 60.0])
    counted = turns()
    async with daemon(PoolWorker(script, "a/b", counted)):
        await until(lambda: len(script.steps) == 4 and not script.running)
        await asyncio.sleep(0)

    def value(name: str, **labels: str) -> float | None:
        return counted.metrics.registry.get_sample_value(name, labels)

    ended = {
        outcome: value("fairlead_operator_step_seconds_count", step="reconcile", outcome=outcome)
        for outcome in ("ok", "broke", "unavailable", "refused")
    }
    assert ended == {"ok": 1.0, "broke": 1.0, "unavailable": 1.0, "refused": 1.0}
    failed = {outcome: value("fairlead_operator_failed_steps_total", pool="a/b", outcome=outcome) for outcome in ended}
    assert failed == {"ok": None, "broke": 1.0, "unavailable": 1.0, "refused": 1.0}


async def test_no_event_wakes_a_pool_before_the_server_wishes_to_be_asked_again() -> None:
    script = Script([ClusterUnavailable("busy", 429, retry_after=3600.0), 3600.0])
    worker = PoolWorker(script, "ns/chat", turns())
    async with daemon(worker):
        await until(lambda: len(script.steps) == 1)
        for _ in range(20):
            worker.wake()
            await asyncio.sleep(0.005)
    assert len(script.steps) == 1


async def test_finalizing_goes_on_until_the_pool_may_go_and_never_beside_a_reconciliation() -> None:
    script = Script([3600.0, 0.01, ClusterUnavailable("away"), None])
    script.is_open.clear()
    worker = PoolWorker(script, "ns/chat", turns())
    async with daemon(worker):
        await until(lambda: script.running)
        finalizing = asyncio.create_task(worker.finalize())
        await asyncio.sleep(0.01)
        assert script.steps == ["reconcile"]
    script.is_open.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await finalizing
    assert script.steps == ["reconcile", "finalize", "finalize", "finalize"]


async def test_a_deletion_is_reported_until_it_is_known() -> None:
    script = Script([0.01, None])
    async with asyncio.timeout(PATIENCE_SECONDS):
        await PoolWorker(script, "ns/chat", turns()).report_deletion()
    assert script.steps == ["report", "report"]


async def test_changed_children_are_looked_at_soon() -> None:
    script = Script([3600.0])
    worker = PoolWorker(script, "ns/chat", turns())
    async with daemon(worker):
        await until(lambda: script.steps == ["reconcile"])
        worker.children_changed()
        await until(lambda: script.steps == ["reconcile", "children", "reconcile"])


async def test_no_more_steps_run_at_once_than_allowed() -> None:
    script = [Script([3600.0]) for _ in range(10)]
    for one in script:
        one.is_open.clear()
    shared = turns(places=3)
    tasks = [asyncio.create_task(PoolWorker(one, f"ns/p{number}", shared).run()) for number, one in enumerate(script)]
    await until(lambda: sum(one.running for one in script) == 3)
    await asyncio.sleep(0.02)
    assert sum(one.running for one in script) == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_pool_and_its_namesake_that_is_being_deleted_have_a_worker_each_until_they_are_gone() -> None:
    chat, other = PoolKey(namespace="ns", name="chat"), PoolKey(namespace="ns", name="other")
    workers = PoolWorkers(lambda pool: PoolWorker(Script([3600.0]), str(pool), turns()))
    first, second = workers.add(chat), workers.add(chat)
    assert (workers.of(chat), workers.of(other), len(workers)) == ((first, second), (), 1)
    workers.remove(chat, first)
    assert workers.of(chat) == (second,)
    workers.remove(chat, second)
    workers.remove(chat, second)
    assert (workers.of(chat), len(workers)) == ((), 0)
