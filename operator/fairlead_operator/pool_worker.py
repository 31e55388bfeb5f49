"""One worker per pool. Kopf's daemon runs the worker while the pool exists, and kopf's deletion handler uses it to
finalize the pool.

A worker never takes two steps at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from fairlead.tables import PoolKey
from fairlead_operator.cluster import ClusterError, ClusterUnavailable
from fairlead_operator.metrics import OperatorMetrics
from fairlead_operator.settings import Pace

logger = logging.getLogger(__name__)


class Reconciles(Protocol):
    """The steps that a worker takes for its pool, one at a time.

    Every step may raise ClusterError and may be repeated.
    """

    async def reconcile(self) -> float:
        """Reconcile once; return the seconds until the next time, unless an event arrives first."""

    async def finalize(self) -> float | None:
        """Take one step of a deleted pool's finalization. Return the seconds until the next step, None if the pool may
        be removed.
        """

    async def report_deletion(self) -> float | None:
        """Report a pool's deletion to the control API. Return the seconds until the next attempt; None if nothing is
        left to report.
        """

    def changed(self) -> None:
        """Record that an object of the pool changed: the next reconciliation reads the pool's objects."""

    def children_changed(self) -> None:
        """Record that a child changed: the next reconciliation also checks the Service and the PodDisruptionBudget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The state that the workers of all pools share: the lengths of the pauses, the limit of simultaneous steps, and
    the metrics. `chance` gives random numbers (0 to 1), by which pools without work are checked at different times.
    """

    pace: Pace
    places: asyncio.Semaphore
    chance: Callable[[], float]
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)


class PoolWorker:
    """Takes steps for one pool, one at a time. The next step is taken when the worker is woken, and at the latest after
    the pause that the last step returned.

    Use from one event loop only.
    """

    def __init__(self, pool: Reconciles, name: str, turns: Turns) -> None:
        self._pool = pool
        self._name = name
        self._turns = turns
        self._wish = asyncio.Event()
        self._turn = asyncio.Lock()

    def wake(self) -> None:
        """Request the next step soon, because something changed."""
        self._pool.changed()
        self._wish.set()

    def children_changed(self) -> None:
        """Request a check of the children soon."""
        self._pool.children_changed()
        self._wish.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._repeat("reconcile", self._pool.reconcile)

    async def finalize(self) -> None:
        """Finalize the deleted pool; return when it may be removed."""
        await self._repeat("finalize", self._pool.finalize)

    async def report_deletion(self) -> None:
        """Report the deletion; return when the control API knows that the pool is gone."""
        await self._repeat("report-deletion", self._pool.report_deletion)

    async def _repeat(self, name: str, step: Callable[[], Awaitable[float | None]]) -> None:
        """Take steps until one returns None.

        A failed step is repeated after 0.5, 1, 2, … seconds. The pause is at most `pace.settled`, the pause of a pool
        in which nothing is in progress, and at least the time that the server requests.
        """
        pace, failures = self._turns.pace, 0
        loop = asyncio.get_running_loop()
        while True:
            least, outcome = pace.least, "ok"
            async with self._turn, self._turns.places:
                self._wish.clear()
                begun = loop.time()
                try:
                    due, failures = await step(), 0
                except ClusterError as error:
                    logger.warning("reconciling failed", extra={"pool": self._name, "error": str(error)})
                    due, failures = min(pace.settled, 0.5 * 2 ** min(failures, 10)), failures + 1
                    outcome = "refused"
                    if isinstance(error, ClusterUnavailable):
                        least, outcome = max(least, error.retry_after), "unavailable"
                except Exception:  # one pool's bug must not end the operator; it is logged with its traceback and the step repeated
                    logger.exception("reconciling broke", extra={"pool": self._name})
                    due, failures, outcome = min(pace.settled, 0.5 * 2 ** min(failures, 10)), failures + 1, "broke"
                self._turns.metrics.taken(name, self._name, outcome, loop.time() - begun)
            if due is None:
                return
            await self._pause(due, least)

    async def _pause(self, due: float, least: float) -> None:
        await asyncio.sleep(least)
        try:
            await asyncio.wait_for(self._wish.wait(), max(0.0, due * (0.8 + 0.2 * self._turns.chance()) - least))
        except TimeoutError:
            return


class PoolWorkers:
    """The workers of all pools, for the events of their instances and children.

    This is not a kopf index. If the operator may not list the pools of one namespace, for example after its Role was
    deleted there, kopf handles no object at all as long as it waits for an index.
    """

    def __init__(self, make: Callable[[PoolKey], PoolWorker]) -> None:
        self._make = make
        self._workers: dict[PoolKey, list[PoolWorker]] = {}

    def __len__(self) -> int:
        """Return the number of pools that have a worker."""
        return len(self._workers)

    def add(self, pool: PoolKey) -> PoolWorker:
        """Add a new worker. A pool and a deleted namesake have separate workers."""
        worker = self._make(pool)
        self._workers.setdefault(pool, []).append(worker)
        return worker

    def remove(self, pool: PoolKey, worker: PoolWorker) -> None:
        """Remove the worker of a pool that no longer exists."""
        left = [other for other in self._workers.get(pool, ()) if other is not worker]
        if left:
            self._workers[pool] = left
        else:
            self._workers.pop(pool, None)

    def of(self, pool: PoolKey) -> tuple[PoolWorker, ...]:
        """Return the workers of the pools with this name."""
        return tuple(self._workers.get(pool, ()))
