"""The operator's calls to the control API, with a bound on the calls in flight and a pause while the API is
unreachable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from fairlead.pool_states import HeldPools, PoolEvent, PoolObservations, PoolState, UnheardPools
from fairlead.tables import PoolKey
from fairlead_client.outcomes import OUTAGES, Answer, Cause, Later, Outcome
from fairlead_operator.backoff import ServerBackoff


class ControlPlane(Protocol):
    """The operator's calls to the control API, as implemented by `fairlead_client.internal.SystemApi`."""

    async def put_state(self, pool: PoolKey, state: PoolState) -> Outcome[PoolObservations]:
        """Send everything observed about the pool; return the routers' observations."""

    async def post_events(self, pool: PoolKey, events: Sequence[PoolEvent]) -> Outcome[None]:
        """Add events to the pool's history."""

    async def delete_pool(self, pool: PoolKey) -> Outcome[None]:
        """Report that the pool is gone; may be repeated."""

    async def held_pools(self) -> Outcome[HeldPools]:
        """Return the pools for which routers hold requests."""

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        """Return the pools for which no state has arrived for this many seconds."""


class PacedControlPlane:
    """A ControlPlane with at most `calls_at_once` calls in flight.

    During a pause of `backoff`, no call is made for any pool: each method immediately returns Later with the remaining
    seconds of the pause.
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

    async def held_pools(self) -> Outcome[HeldPools]:
        return await self._ask(self._api.held_pools)

    async def unheard_pools(self, seconds: float) -> Outcome[UnheardPools]:
        return await self._ask(lambda: self._api.unheard_pools(seconds))

    async def _ask(self, call: Callable[[], Awaitable[Outcome[Answer]]]) -> Outcome[Answer]:
        async with self._places:
            left = self._backoff.left()
            if left > 0:
                problem = f"{self._backoff.problem}; asked again in {left:.0f} s"
                return Later(cause=Cause.UNAVAILABLE, problem=problem, retry_after_seconds=left)
            asked_at = self._backoff.now()
            outcome = await call()
            if isinstance(outcome, Later) and outcome.cause in OUTAGES:
                self._backoff.failed(asked_at, outcome.problem, outcome.retry_after_seconds)
                return replace(outcome, retry_after_seconds=self._backoff.left())
            self._backoff.answered()
            return outcome
