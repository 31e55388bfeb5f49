"""The account of one submitted request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead_router.metrics.endings import Ending
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.traffic_recording import Served
from fairlead_router.protocols.answers import StreamReader, Usage


class Ticket:
    """The account of one submitted request.

    The pool's account writes and settles it. The code that relays the request records which parts the engine and the
    client have received (`given`, `passed_on`, `stream`). Other code only reads the ticket.
    """

    __slots__ = (
        "_waiter", "carried_at", "charge", "dispatched_at", "ended_at", "ending", "first_token_at", "given", "is_carried", "passed_on",
        "queued_seconds", "request", "saw_first_token", "stream", "usage", "verdict", "when_decided",
    )  # fmt: skip

    def __init__(self, request: RoutingRequest, charge: Charge | None = None) -> None:
        self.request = request
        self.charge = charge
        """The charge of the request to its key; None for a request without a key."""
        self.given = False
        """Whether an engine has received the request, or a prefill instance has received its prompt."""
        self.passed_on = False
        """Whether the client has received a part of the answer. Set only for an answer that is not streamed."""
        self.verdict: Dispatch | Refusal | None = None
        """The scheduler's last decision; None while the request is queued."""
        self.ending: Ending | None = None
        """The way in which the request ended; None before its end."""
        self.saw_first_token = False
        self.carried_at: float | None = None
        """The time at which the answer broke off, while the router waits for another instance to continue it. Otherwise
        None.
        """
        self.is_carried = False
        """Whether more than one instance generated the answer."""
        self.dispatched_at = 0.0
        self.first_token_at = 0.0
        """The time at which the first token arrived; valid if `saw_first_token`."""
        self.ended_at = 0.0
        self.queued_seconds = 0.0
        """Seconds from the request's arrival to its first dispatch."""
        self.stream: StreamReader | None = None
        """The reader of the answer's stream; None if the answer is not streamed or has not begun."""
        self.usage: Usage | None = None
        """The token counts of an ended request, from the engine or, if the engine sent no counts, from the router. None
        if there was no answer to count. If a long answer fails near its end, the counts are set before the request
        ends.
        """
        self.when_decided: Callable[[], None] | None = None
        """A function to call after the decision, if no task waits for the decision. It must not call the pool."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def served(self) -> Served | None:
        """The service of the request by the target that last received it; None if no target received it. The durations
        are set only if that engine alone served the request.
        """
        verdict = self.verdict
        if not isinstance(verdict, Dispatch):
            return None
        if self.ending is not Ending.SERVED or not self.saw_first_token or self.is_carried or verdict.decode is not None:
            return Served(verdict.instance, verdict.hit_tokens, self.dispatched_at)
        return Served(
            verdict.instance,
            verdict.hit_tokens,
            self.dispatched_at,
            self.first_token_at - self.dispatched_at,
            self.ended_at - self.dispatched_at,
        )

    @property
    def ended(self) -> bool:
        """Whether the request has ended."""
        return self.ending is not None

    def decide(self, verdict: Dispatch | Refusal) -> None:
        """Record the scheduler's decision and wake the task that waits for it."""
        self.verdict = verdict
        if isinstance(verdict, Dispatch) and verdict.request.named is not None:
            self.request = verdict.request  # it has another session than its client said
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def decided(self) -> Dispatch | Refusal:
        """Wait for the scheduler's decision, and return it."""
        while self.verdict is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.verdict
