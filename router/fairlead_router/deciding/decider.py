"""Another router, which may decide for this router's pools."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_router.deciding.connections import RouterConnection
from fairlead_router.deciding.frames import PROTOCOL, Alive, Body, Challenge, Frame, Gone, Hello, Join, Leave, Proof, Welcome, bounded
from fairlead_router.deciding.listed import Listed
from fairlead_router.deciding.proofs import Handshake, new_nonce
from fairlead_router.pools.pool import Pool

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0
"""Seconds before a router may be asked again to decide for a pool, after it gave the pool up or this router took the
pool back.
"""
LONGEST_AGAIN_SECONDS = 30.0
"""Maximum number of seconds before a router may be asked again to decide for a pool. The pause doubles each time the
router soon gives the pool up again, because it does not have the pool or lets a third router decide for the pool.
"""


class _Words:
    """Sends the messages about one pool to the router that decides for it."""

    def __init__(self, connection: RouterConnection, pool: str) -> None:
        self._connection = connection
        self._pool = pool

    def tell(self, word: Word, now: float) -> None:
        """Send a message to the decider."""
        self._connection.say(self._pool, bounded(word))


class OtherRouter:
    """A connection to a router that can decide for this router, and the pools for which it decides."""

    def __init__(self, router: str, listed: Listed, now: Callable[[], float], ended: Callable[[OtherRouter], None]) -> None:
        self.listed = listed
        self._router = router
        self._now = now
        self._ended = ended
        self._nonce = new_nonce()
        self._handshake: Handshake | None = None
        self._asked: dict[str, Pool] = {}
        self._not_before: dict[str, float] = {}
        self._pauses: dict[str, float] = {}
        """By pool: the last pause in seconds after the other router gave the pool up. The pause doubles if the router
        gives the pool up again soon after this router asked it.
        """
        self._asked_at: dict[str, float] = {}
        self.answers = False
        """Whether the other router has proven its identity and is still connected, so that it can be asked to decide.
        """
        self.was_met = False
        """Whether the other router has ever proven its identity; still true after the connection has ended."""
        self.connection = RouterConnection(self._hear, self._end, hears_stale=True)  # what it decided, it has recorded
        self.connection.say("", Hello(protocol=PROTOCOL, router=router, nonce=self._nonce, now=now()))

    def protocol(self) -> RouterConnection:
        """Return the connection; the event loop calls this when it connects."""
        return self.connection

    @property
    def is_overdue(self) -> bool:
        """Whether the other router has not proven its identity in time."""
        return not self.was_met and self.connection.is_overdue

    @property
    def asked(self) -> tuple[Pool, ...]:
        """The pools for which the other router decides."""
        return tuple(self._asked.values())

    def may_be_asked(self, pool: Pool) -> bool:
        """Return whether the other router can be asked to decide for the pool: it has proven its identity, and the
        pause since it stopped deciding for the pool is over.
        """
        return self.answers and self._not_before.get(str(pool.key), 0.0) <= self._now()

    def ask(self, pool: Pool, scheduler: SharedScheduler) -> None:
        """Let the other router decide for a pool. This router keeps reporting its own requests until the other router
        reports these requests.
        """
        name, now = str(pool.key), self._now()
        self._asked[name] = pool
        self._asked_at[name] = now
        self.connection.say(name, Join(uid=pool.table.uid))
        pool.account.decide_elsewhere(now)
        scheduler.ask(_Words(self.connection, name), now)

    def ask_no_more(self, pool: Pool) -> None:
        """Stop asking the other router about the pool. This router decides for the pool again."""
        name = str(pool.key)
        if self._asked.get(name) is pool:
            self.connection.say(name, Leave())
            self._take_back(name, AGAIN_SECONDS)

    def _left(self, name: str) -> None:
        """Take the pool back, because the other router has said that it does not decide for the pool. The other router
        is not asked again until a pause is over.
        """
        soon = self._now() - self._asked_at[name] < LONGEST_AGAIN_SECONDS
        pause = self._pauses[name] = min(2 * self._pauses.get(name, AGAIN_SECONDS / 2) if soon else AGAIN_SECONDS, LONGEST_AGAIN_SECONDS)
        self._take_back(name, pause)

    def _take_back(self, name: str, pause: float) -> None:
        pool = self._asked.pop(name)
        now = self._now()
        self._not_before[name] = now + pause
        pool.account.decide_here()
        if isinstance(pool.scheduler, SharedScheduler):
            pool.account.deliver(pool.scheduler.ask_nobody(now), now)

    def _hear(self, connection: RouterConnection, frame: Frame) -> None:
        body, pool = frame.body, self._asked.get(frame.pool)
        if not self.was_met:
            self._greet(connection, body)
            return
        if pool is None or isinstance(body, Alive):
            return
        if isinstance(body, Gone):
            self._left(frame.pool)
        elif isinstance(body, Dispatch | Refusal) and isinstance(pool.scheduler, SharedScheduler):
            ticket = pool.account.tickets.get(body.request.id)
            if ticket is not None and ticket.verdict is None:  # else told before this router went on alone, and too late
                now = self._now()
                pool.account.deliver(pool.scheduler.hear(replace(body, request=ticket.request), now), now)

    def _greet(self, connection: RouterConnection, body: Body) -> None:
        """Process a message of the handshake, in which both routers prove their identity. Any other message closes the
        connection.
        """
        if isinstance(body, Challenge) and self._handshake is None:
            self._handshake = Handshake(self.listed.secret, self._router, self.listed.router, (self._nonce, body.nonce))
            connection.say("", Proof(code=self._handshake.of_asking()))
        elif isinstance(body, Welcome) and self._handshake is not None and self._handshake.is_asked(body.code):
            self.answers = self.was_met = True
            connection.trust()
            logger.info("another router met", extra={"other": self.listed.router, "address": f"{self.listed.host}:{self.listed.port}"})
        elif not isinstance(body, Alive):
            connection.close()

    def _end(self, connection: RouterConnection) -> None:
        self.answers = False
        with ExitStack() as steps:  # each is done, whatever becomes of the others
            steps.callback(self._ended, self)
            for name in reversed(self._asked):
                steps.callback(self._take_back, name, AGAIN_SECONDS)
