"""The direct requests that wait for their pool's first instance. Routed requests wait in the scheduler.

Both share one limit: direct requests may use the room that the scheduler's requests leave, and are sent away when the
scheduler needs the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.reports.loads import HeldDemand
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import HoldingFacts, Outlook, RoutingTable

MOST_BYTES = SchedulerSettings().held_bytes
"""Maximum number of bytes of the bodies of all waiting requests, including requests that wait in the scheduler."""


class WaitingRoom:
    """The waiting direct requests of one pool. `others` returns the demand that waits in the scheduler. A request whose
    task is cancelled leaves at once.
    """

    __slots__ = ("_bytes", "_holding", "_others", "_outlook", "waiters")

    def __init__(self, others: Callable[[], HeldDemand]) -> None:
        self._others = others
        self._holding = HoldingFacts()
        self._outlook = Outlook.UNKNOWN
        self.waiters: dict[asyncio.Future[None], int] = {}
        """The waiting requests with the bytes of their bodies, in order of arrival. Read only."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.waiters)

    def take(self, table: RoutingTable) -> None:
        """Use this table from now on."""
        self._holding, self._outlook = table.holding, table.outlook

    def held(self) -> HeldDemand:
        """Return the demand of all requests, direct and routed, that wait for the pool to have an instance."""
        others = self._others()
        return HeldDemand(requests=others.requests + len(self), prompt_tokens=others.prompt_tokens)

    def has_room(self, body_bytes: int) -> bool:
        """Return whether one more request may wait."""
        others = self._others()
        return len(self) + others.requests < self._holding.held_requests and self._bytes + others.body_bytes + body_bytes <= MOST_BYTES

    def make_room(self) -> None:
        """Refuse the newest requests until the others fit, because the number of requests that wait in the scheduler
        may have grown.
        """
        others, most = self._others(), self._holding.held_requests
        while self.waiters and (len(self) + others.requests > most or self._bytes + others.body_bytes > MOST_BYTES):
            self._let_go(next(reversed(self.waiters)))

    async def wait_for_instance(self, body_bytes: int) -> None:
        """Wait for an instance, if one is expected and there is room to wait."""
        if self._outlook is Outlook.COMING and self.has_room(body_bytes):
            await self.wait(body_bytes, self._holding.hold_for_seconds)

    def open(self) -> None:
        """Let all waiting requests continue, in order of arrival."""
        for waiter in tuple(self.waiters):
            self._let_go(waiter)

    def _let_go(self, waiter: asyncio.Future[None]) -> None:
        self._bytes -= self.waiters.pop(waiter, 0)
        if not waiter.done():
            waiter.set_result(None)

    async def wait(self, body_bytes: int, seconds: float) -> None:
        """Wait until `open`, or until the room is needed for other requests; at most `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters[waiter] = body_bytes
        self._bytes += body_bytes
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return
        finally:
            self._let_go(waiter)
