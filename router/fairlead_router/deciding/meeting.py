"""Connects to all listed routers, repeats failed attempts, and ends the connections to routers that are no longer
listed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from fairlead_router.deciding.decider import OtherRouter
from fairlead_router.deciding.listed import Listed

CONNECT_SECONDS = 1.0
SHORTEST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 8.0


class _Attempt:
    """The repeated attempts to connect to one router."""

    def __init__(self, listed: Listed) -> None:
        self.listed = listed
        self.pause = SHORTEST_PAUSE_SECONDS
        self.not_before = 0.0
        self.task: asyncio.Task[None] | None = None


class Meeting:
    """Connects to other routers in the background, so that a router that does not respond delays nothing. `ended` is
    called with each router whose connection has ended.
    """

    def __init__(self, ended: Callable[[OtherRouter], None]) -> None:
        self._ended = ended
        self._others: dict[str, OtherRouter] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._random = random.Random()  # only for jitter between attempts

    def others(self) -> tuple[OtherRouter, ...]:
        """Return the routers with an open connection."""
        return tuple(self._others.values())

    def answering(self) -> dict[str, OtherRouter]:
        """Return the connected routers that have proven their identity, by name."""
        return {name: other for name, other in self._others.items() if other.answers}

    def follow(self, listed: Mapping[str, Listed], made: Callable[[Listed], OtherRouter]) -> None:
        """Connect to the `listed` routers, and close the connections to all other routers. `made` makes the
        `OtherRouter` for an entry of `listed`.
        """
        for router, known in tuple(self._others.items()):
            if listed.get(router) != known.listed:
                known.connection.close()
        for router, attempt in tuple(self._attempts.items()):
            if listed.get(router) != attempt.listed:
                self._give_up(router)
        now = asyncio.get_running_loop().time()
        for router, one in listed.items():
            if router in self._others:
                continue
            attempt = self._attempts.setdefault(router, _Attempt(one))
            if attempt.task is None and attempt.not_before <= now:
                attempt.task = asyncio.create_task(self._connect(attempt, made))

    def lost(self, other: OtherRouter) -> None:
        """Forget a connection that has ended, and connect to its router again after a pause. The pause grows with each
        connection that ended before the other router had proven its identity.
        """
        name = other.listed.router
        if self._others.get(name) is not other:
            return
        del self._others[name]
        attempt = self._attempts.get(name)
        if attempt is not None:
            if other.was_met:
                attempt.pause = SHORTEST_PAUSE_SECONDS
            self._pause(attempt)
        self._ended(other)

    def close(self) -> None:
        """Stop connecting, and end all connections."""
        for router in tuple(self._attempts):
            self._give_up(router)
        for other in self.others():
            other.connection.close()

    def _give_up(self, router: str) -> None:
        attempt = self._attempts.pop(router)
        if attempt.task is not None:
            attempt.task.cancel()

    async def _connect(self, attempt: _Attempt, made: Callable[[Listed], OtherRouter]) -> None:
        listed = attempt.listed
        other = made(listed)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(other.protocol, listed.host, listed.port)
        except (OSError, TimeoutError, ValueError, OverflowError):  # the last two for what is not an address
            self._pause(attempt)
            return
        finally:
            attempt.task = None
        if self._attempts.get(listed.router) is not attempt or not other.connection.is_open:
            other.connection.close()
            self._pause(attempt)
            return
        self._others[listed.router] = other

    def _pause(self, attempt: _Attempt) -> None:
        attempt.not_before = asyncio.get_running_loop().time() + attempt.pause * self._random.uniform(0.5, 1.0)
        attempt.pause = min(2 * attempt.pause, LONGEST_PAUSE_SECONDS)
