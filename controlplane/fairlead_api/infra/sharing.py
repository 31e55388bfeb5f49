"""Shares one result among callers who make the same request at the same time.

`Shared` lets concurrent callers wait for one computation, and reuses its result for a moment. `Recent` is for figures
that cover minutes and hardly change within seconds: as long as callers keep requesting such a figure, none of them
waits.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")
MAX_KEYS = 256
RESTS = 40
"""Minimum pause before a figure is recomputed in the background, as a multiple of the seconds that its computation
took. The pause is never longer than half of the time for which the figure is usable.
"""
PAUSE_SECONDS = 0.25
"""Seconds before a figure is recomputed in the background, so that the other requests of the same caller come first."""


class Shared:
    """Remembers results for `seconds`; with 0, results are not shared."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._found: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of `make`, which is called for this caller or for another caller with the same key.

        If `make` fails, all waiting callers get its error. The error is not reused for later callers.
        """
        if self._seconds <= 0:
            return await make()
        now = self._monotonic()
        known = self._found.get(key)
        if known is not None and (not known[1].done() or now - known[0] < self._seconds):
            result: Result = await asyncio.shield(known[1])
            return result
        if len(self._found) >= MAX_KEYS:
            self._found.clear()
        future: asyncio.Future[Result] = asyncio.ensure_future(_run(make))
        self._found[key] = (now, future)
        try:
            return await asyncio.shield(future)
        except BaseException:
            if future.done() and self._found.get(key, (0.0, None))[1] is future:
                del self._found[key]
            raise

    def forget(self) -> None:
        """Drop all results, including results that are still being computed, so that later callers do not get them."""
        self._found.clear()


async def _run(make: Callable[[], Awaitable[Result]]) -> Result:
    return await make()


class Recent:
    """Figures that may be up to `usable_seconds` old when they are returned.

    If a figure is older than `fresh_seconds` when it is requested, it is computed again in the background, for later
    callers. After a slow computation there is a pause of RESTS times its duration, but of at most half of
    `usable_seconds`. With `fresh_seconds` 0, every caller waits for a new result.
    """

    def __init__(self, fresh_seconds: float, usable_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fresh = fresh_seconds
        self._usable = usable_seconds
        self._monotonic = monotonic
        self._shared = Shared(fresh_seconds, monotonic)
        self._found: dict[Hashable, tuple[float, float, Any]] = {}
        """For each figure: when it was requested, how many seconds it took, and its value."""
        self._refreshing: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        """Return a recent result of `make`.

        If `make` fails, only callers that wait for it get the error. In the background, a failure leaves the earlier
        result in use until it is too old.
        """
        known = self._found.get(key)
        age = self._usable if known is None else self._monotonic() - known[0]
        if known is None or age >= self._usable or self._fresh <= 0:
            return await self._make(key, make)
        if age >= max(self._fresh, min(RESTS * known[1], self._usable / 2)) and key not in self._refreshing:
            task = self._refreshing[key] = asyncio.ensure_future(self._later(key, make))
            task.add_done_callback(lambda done: self._refreshed(key, done))
        result: Result = known[2]
        return result

    async def close(self) -> None:
        """Cancel the computations that run in the background."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _later(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        await asyncio.sleep(PAUSE_SECONDS)
        return await self._make(key, make)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        asked = self._monotonic()
        result = await self._shared.get(key, make)
        if len(self._found) >= MAX_KEYS:
            self._found.clear()
        self._found[key] = (asked, self._monotonic() - asked, result)
        return result

    def _refreshed(self, key: Hashable, done: "asyncio.Task[Any]") -> None:
        self._refreshing.pop(key, None)
        if not done.cancelled():
            done.exception()  # the next caller that has to wait gets the error
