"""Renders pages that people open before it refreshes pages that are already open.

One event causes dozens of refreshing renderings at once. They share one processor with everybody who waits for a page.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

AT_ONCE = 2
"""Maximum number of refreshes of open pages that are rendered at the same time."""
PATIENCE_SECONDS = 0.3
"""Maximum seconds for which the refresh of an open page is delayed in favour of people who open a page. The delay is
short, so that live pages stay live.
"""


class Turns:
    """Orders work: work in `first` begins at once; work in `after` waits a limited time until no work in `first` is
    running.
    """

    def __init__(self) -> None:
        self._first = 0
        self._free = asyncio.Event()
        self._free.set()
        self._after = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        self._first += 1
        self._free.clear()
        try:
            yield
        finally:
            self._first -= 1
            if self._first == 0:
                self._free.set()

    @asynccontextmanager
    async def after(self) -> AsyncIterator[None]:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._free.wait()
        async with self._after:
            yield
