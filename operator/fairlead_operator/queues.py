"""One queue per pool: its pool is reconciled when something happened, and at the latest when the last reconciliation said. Never twice at once."""

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Protocol

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterError
from fairlead_operator.settings import Pace

logger = logging.getLogger(__name__)


class Reconciler(Protocol):
    """Reconciles one pool."""

    async def run(self) -> float | None:
        """Reconcile once; seconds until the next time, None when there is nothing left to do for this pool."""


class PoolQueues:
    """All queues. Use from one event loop only. Between `begin` and `halt` pools are reconciled; before and after, they are only remembered.

    At most `pace.reconciles_at_once` pools are reconciled at once. `chance` gives numbers from 0 to 1, which spread many settled pools in time.
    """

    def __init__(self, start: Callable[[PoolKey], Reconciler], pace: Pace, chance: Callable[[], float]) -> None:
        self._start = start
        self._pace = pace
        self._chance = chance
        self._places = asyncio.Semaphore(pace.reconciles_at_once)
        self._acts = False
        self._tasks: dict[PoolKey, asyncio.Task[None]] = {}
        self._wishes: dict[PoolKey, asyncio.Event] = {}
        self._seen: dict[Hashable, Hashable] = {}

    def observe(self, pool: PoolKey, subject: Hashable, essence: Hashable) -> bool:
        """An object of the pool was seen. Wakes the pool's queue when `essence`, what matters of it, differs from last time; None = it is gone.

        Whether it differed.
        """
        if essence is None:
            self._seen.pop(subject, None)
        elif self._seen.get(subject) == essence:
            return False
        else:
            self._seen[subject] = essence
        self.wake(pool)
        return True

    def wake(self, pool: PoolKey) -> None:
        """Have the pool reconciled soon."""
        self._wishes.setdefault(pool, asyncio.Event()).set()
        if self._acts and pool not in self._tasks:
            self._tasks[pool] = asyncio.create_task(self._run(pool), name=f"pool {pool}")

    def pools(self) -> tuple[PoolKey, ...]:
        """Pools that are looked after, or would be."""
        return tuple(self._wishes)

    def begin(self) -> None:
        """Act: reconcile every pool known. What reconcilers remember starts anew, since another operator may have acted meanwhile."""
        self._acts = True
        for pool in self.pools():
            self.wake(pool)

    async def halt(self) -> None:
        """Cancel all reconciliation and wait for its end. What had begun is taken up again by the operator that acts next."""
        self._acts = False
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, pool: PoolKey) -> None:
        reconciler, failures = self._start(pool), 0
        wish = self._wishes[pool]
        while True:
            async with self._places:
                wish.clear()
                due, failures = await self._reconcile(pool, reconciler, failures)
            if due is None:
                if wish.is_set():
                    continue
                del self._tasks[pool], self._wishes[pool]
                return
            await asyncio.sleep(self._pace.least)
            try:
                await asyncio.wait_for(wish.wait(), max(0.0, due * (0.9 + 0.2 * self._chance()) - self._pace.least))
            except TimeoutError:
                continue

    async def _reconcile(self, pool: PoolKey, reconciler: Reconciler, failures: int) -> tuple[float | None, int]:
        """Reconcile once and say when again; a failure is repeated after 0.5, 1, 2, … seconds, at most as long as a settled pool waits."""
        try:
            return await reconciler.run(), 0
        except ClusterError as error:
            logger.warning("reconciling failed", extra={"pool": str(pool), "error": str(error)})
        except Exception:  # one pool's bug must not end the others' queues; it is logged whole and repeated
            logger.exception("reconciling broke", extra={"pool": str(pool)})
        return min(self._pace.settled, 0.5 * 2 ** min(failures, 10)), failures + 1
