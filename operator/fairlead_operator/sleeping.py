"""Pools at zero: one call a second tells which of them routers hold requests for, and those are reconciled at once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from fairlead.pool_states import HeldPools
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome, Taken

logger = logging.getLogger(__name__)


class TellsHeldPools(Protocol):
    """The call of the control API that is needed here."""

    async def held_pools(self) -> Outcome[HeldPools]:
        """The pools for which routers hold requests."""


class SleepingPools:
    """The pools of this operator that have no instance until a request comes.

    A pool that is missed here, such as while the control API is away, is woken by its own next round.
    """

    def __init__(self) -> None:
        self._asleep: set[PoolKey] = set()

    def note(self, pool: PoolKey, *, asleep: bool) -> None:
        """Note the state that the last round of a pool left."""
        if asleep:
            self._asleep.add(pool)
        else:
            self._asleep.discard(pool)

    async def ask(self, control_plane: TellsHeldPools, wake: Callable[[PoolKey], None]) -> None:
        """Wake the sleeping pools that have held requests. Nothing is asked while none sleeps."""
        if not self._asleep:
            return
        outcome = await control_plane.held_pools()
        if isinstance(outcome, Taken):
            for pool in outcome.answer.pools:
                if pool in self._asleep:
                    wake(pool)

    async def watch(self, control_plane: TellsHeldPools, wake: Callable[[PoolKey], None], seconds: float) -> None:
        """Ask forever, with these pauses."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.ask(control_plane, wake)
            except Exception:  # one bad answer must not keep pools asleep for ever
                logger.exception("asking for held requests broke")
