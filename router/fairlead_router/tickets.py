"""The account of one submitted request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.answers import StreamReader, Usage


class Ticket:
    """The account of one submitted request. Its pool keeps it; others read it."""

    __slots__ = (
        "_waiter", "dispatched_at", "ended", "queued_seconds", "request", "saw_first_token", "stream", "usage", "verdict", "when_decided",
    )  # fmt: skip

    def __init__(self, request: RoutingRequest) -> None:
        self.request = request
        self.verdict: Dispatch | Refusal | None = None
        """The scheduler's last decision; None while the request waits in its queue."""
        self.ended = False
        self.saw_first_token = False
        self.dispatched_at = 0.0
        self.queued_seconds = 0.0
        """How long it waited until it was sent first."""
        self.stream: StreamReader | None = None
        """Its answer, while that is passed on."""
        self.usage: Usage | None = None
        """The tokens of a request that has ended, as its engine told them or else as counted here; None where no engine
        worked for it, or none whose client saw anything.
        """
        self.when_decided: Callable[[], None] | None = None
        """Called with the decision, where no task waits for it. It must ask nothing of the pool."""
        self._waiter: asyncio.Future[None] | None = None

    def decide(self, verdict: Dispatch | Refusal) -> None:
        """The scheduler decided: wake the task that waits for it."""
        self.verdict = verdict
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def decided(self) -> Dispatch | Refusal:
        """Wait until the scheduler has decided."""
        while self.verdict is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.verdict
