"""The direct requests that wait until their pool has an instance. Routed requests wait in the scheduler.

Direct and routed requests share one limit. Direct requests may use the room that the routed requests leave, and are
refused when the routed requests need the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.reports.loads import HeldDemand
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.tables import HoldingFacts, Outlook, RoutingTable

MOST_BYTES = SchedulerSettings().held_bytes
"""Maximum number of bytes of the bodies of all waiting requests, including the requests that wait in the scheduler."""


class WaitingRoom:
    """The waiting direct requests of one pool. `others`: returns the demand of the requests that wait in the scheduler.
    A request whose task is cancelled leaves the room at once.
    """

    __slots__ = ("_bytes", "_holding", "_others", "_outlook", "waiters")

    def __init__(self, others: Callable[[], HeldDemand]) -> None:
        self._others = others
        self._holding = HoldingFacts()
        self._outlook = Outlook.UNKNOWN
        self.waiters: dict[asyncio.Future[None], int] = {}
        """The waiting requests, in order of arrival, with the bytes of their bodies. Other code must not change it."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.waiters)

    def take(self, table: RoutingTable) -> None:
        """Use this table for further requests."""
        self._holding, self._outlook = table.holding, table.outlook

    def held(self) -> HeldDemand:
        """Return the demand of all requests, direct and routed, that wait until the pool has an instance."""
        others = self._others()
        return HeldDemand(requests=others.requests + len(self), prompt_tokens=others.prompt_tokens)

    def has_room(self, body_bytes: int) -> bool:
        """Return whether one more request with a body of this size may wait."""
        others = self._others()
        return len(self) + others.requests < self._holding.held_requests and self._bytes + others.body_bytes + body_bytes <= MOST_BYTES

    def make_room(self) -> None:
        """Refuse the newest direct requests until the others fit, because the scheduler may have more waiting requests
        now.
        """
        others, most = self._others(), self._holding.held_requests
        while self.waiters and (len(self) + others.requests > most or self._bytes + others.body_bytes > MOST_BYTES):
            self._let_go(next(reversed(self.waiters)))

    async def wait_for_instance(self, body_bytes: int) -> None:
        """Wait for an instance if one is expected and there is room to wait; otherwise return at once."""
        if self._outlook is Outlook.COMING and self.has_room(body_bytes):
            await self.wait(body_bytes, self._holding.hold_for_seconds)

    def open(self) -> None:
        """Let all waiting requests try again, in order of arrival."""
        for waiter in tuple(self.waiters):
            self._let_go(waiter)

    def _let_go(self, waiter: asyncio.Future[None]) -> None:
        self._bytes -= self.waiters.pop(waiter, 0)
        if not waiter.done():
            waiter.set_result(None)

    async def wait(self, body_bytes: int, seconds: float) -> None:
        """Wait until `open`, or until other requests need the room, for at most `seconds`."""
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
