"""The control API as rounds use it: what may be asked of it, and how many of an operator's pools ask at once, or not
at all while it is away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from fairlead.pool_states import PoolEvent, PoolObservations, PoolState
from fairlead.tables import PoolKey
from fairlead_client.outcomes import OUTAGES, Answer, Cause, Later, Outcome
from fairlead_operator.backoff import ServerBackoff


class ControlPlane(Protocol):
    """The operator's half of the internal protocol, as `fairlead_client.internal.SystemApi` speaks it."""

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        """Say everything that is observed; learn what the routers do."""

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        """Add to the pool's history."""

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        """The pool is gone. Saying it twice is fine."""


class PacedControlPlane:
    """A ControlPlane of which at most `calls_at_once` calls are under way. While `backoff` lasts nobody is asked, for
    any pool: the outcome is then Later at once, with the rest of the pause.
    """

    def __init__(self, api: ControlPlane, backoff: ServerBackoff, calls_at_once: int) -> None:
        self._api = api
        self._backoff = backoff
        self._places = asyncio.Semaphore(calls_at_once)

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        return await self._ask(lambda: self._api.put_state(pool, state))

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        return await self._ask(lambda: self._api.post_events(pool, events))

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        return await self._ask(lambda: self._api.delete_pool(pool))

    async def _ask(self, call: Callable[[], Awaitable[Outcome[Answer]]]) -> Outcome[Answer]:
        async with self._places:
            left = self._backoff.left()
            if left > 0:
                problem = f"not asked again for {left:.0f} s after: {self._backoff.problem}"
                return Later(cause=Cause.UNAVAILABLE, problem=problem, retry_after_seconds=left)
            asked_at = self._backoff.now()
            outcome = await call()
            if isinstance(outcome, Later) and outcome.cause in OUTAGES:
                self._backoff.failed(asked_at, outcome.problem, outcome.retry_after_seconds)
                return replace(outcome, retry_after_seconds=self._backoff.left())
            self._backoff.answered()
            return outcome
