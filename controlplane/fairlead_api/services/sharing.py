"""One answer for many who ask the same at the same time: concurrent askers wait for one computation, and its result serves for a moment longer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

Result = TypeVar("Result")
MAX_KEYS = 256


class Shared:
    """Remembers results for `seconds` (0 = shares nothing)."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._found: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `make`, its own or another's; a failure is shared by those waiting and then forgotten."""
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


async def _run(make: Callable[[], Awaitable[Result]]) -> Result:
    return await make()
