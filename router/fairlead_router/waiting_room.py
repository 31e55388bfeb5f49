"""Direct requests that wait for their pool's first instance; the scheduler holds the routed ones."""

from __future__ import annotations

import asyncio

from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import HoldingFacts

MOST_BYTES = SchedulerSettings().held_bytes
"""Bytes of bodies that wait at most, as in a scheduler."""


class WaitingRoom:
    """The direct requests of one pool that wait. A request whose task is cancelled leaves at once."""

    __slots__ = ("_bytes", "_waiters")

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiters)

    def has_room(self, body_bytes: int, others: int, holding: HoldingFacts) -> bool:
        """Whether one more request may wait, beside `others` that the scheduler holds."""
        return len(self) + others < holding.held_requests and self._bytes + body_bytes <= MOST_BYTES

    def open(self) -> None:
        """Let all go on, in the order of their arrival."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, body_bytes: int, seconds: float) -> None:
        """Wait until the room is opened, at most `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        self._bytes += body_bytes
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return
        finally:
            del self._waiters[waiter]
            self._bytes -= body_bytes
