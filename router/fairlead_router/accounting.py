"""Tickets: one per submitted request, through which alone its scheduler hears of it, so that each request ends exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal

if TYPE_CHECKING:
    from fairlead_router.pools import Pool

MOST_TOKENS = 2**24
"""More than any model's context holds."""


class Ticket:
    """The account of one request. After `ended` no call reaches the scheduler any more, so ending twice is harmless."""

    __slots__ = ("_waiter", "dispatched_at", "ended", "pool", "request", "saw_first_token", "verdict")

    def __init__(self, pool: Pool, request: RoutingRequest) -> None:
        self.pool = pool
        self.request = request
        self.verdict: Dispatch | Refusal | None = None
        self.ended = False
        self.saw_first_token = False
        self.dispatched_at = 0.0
        self._waiter: asyncio.Future[None] | None = None

    def resolve(self, verdict: Dispatch | Refusal, now: float) -> None:
        """The scheduler decided; wakes whoever waits."""
        self.verdict = verdict
        if isinstance(verdict, Refusal):
            self._refused(verdict)
        else:
            self.dispatched_at = now
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def decided(self) -> Dispatch | Refusal:
        """Wait in the scheduler's queue until there is a verdict."""
        while self.verdict is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.verdict

    def first_token(self, now: float) -> None:
        """The engine began to stream; only the first call counts."""
        if not self.ended and not self.saw_first_token:
            self.saw_first_token = True
            self.pool.deliver(self.pool.scheduler.first_token(self.request.id, now), now)

    def retry(self, now: float, failed_instance: str) -> Dispatch | Refusal:
        """The instance failed before the first byte. A further dispatch, or a refusal that ends the ticket: the scheduler counts the attempts."""
        assert not self.ended
        verdict = self.pool.scheduler.retry(self.request.id, now, failed_instance)
        self.verdict = verdict
        if isinstance(verdict, Refusal):
            self._refused(verdict)
        else:
            self.pool.counters.retries += 1
            self.dispatched_at = now
            self.saw_first_token = False
        return verdict

    def complete(self, now: float, output_tokens: int, cached_tokens: int | None) -> None:
        """Answered in full. `cached_tokens` is the engine's own count, None if it told none; counts that cannot be are taken as not told."""
        if self._end():
            if not 0 <= output_tokens <= MOST_TOKENS:
                self.pool.counters.implausible_usages += 1
                output_tokens = 0
            if cached_tokens is not None and not 0 <= cached_tokens <= MOST_TOKENS:
                self.pool.counters.implausible_usages += 1
                cached_tokens = None
            self.pool.counters.served += 1
            self.pool.counters.output_tokens += output_tokens
            self.pool.deliver(self.pool.scheduler.complete(self.request.id, now, output_tokens, cached_tokens), now)

    def fail(self, now: float) -> None:
        """Lost after the first byte, or given up."""
        if self._end():
            self.pool.counters.failed += 1
            self.pool.deliver(self.pool.scheduler.fail(self.request.id, now), now)

    def decline(self, now: float) -> None:
        """The engine refused it as its client made it: the client's fault, not the engine's."""
        if self._end():
            self.pool.counters.rejected_by_engine += 1
            self.pool.deliver(self.pool.scheduler.decline(self.request.id, now), now)

    def cancel(self, now: float) -> None:
        """The client went away."""
        if self._end():
            self.pool.counters.cancelled += 1
            self.pool.deliver(self.pool.scheduler.cancel(self.request.id, now), now)

    def _refused(self, refusal: Refusal) -> None:
        if self._end():
            self.pool.counters.refused[refusal.reason.value] += 1

    def _end(self) -> bool:
        if self.ended:
            return False
        self.ended = True
        self.pool.close(self)
        return True
