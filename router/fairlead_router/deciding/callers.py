"""The deciding router's end of the connections on which other routers ask for decisions about their requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Asked, UnderWay, Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import PoolKey
from fairlead_router.deciding.connections import RouterConnection
from fairlead_router.deciding.frames import (
    PROTOCOL,
    Alive,
    Body,
    Challenge,
    Control,
    Frame,
    Gone,
    Hello,
    Join,
    Leave,
    Proof,
    Welcome,
    named,
)
from fairlead_router.deciding.proofs import Handshake, new_nonce
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools

MOST_STRANGERS = 64
"""Maximum number of connections to routers that have not proven their identity. When one more router connects, the
oldest of these connections is closed.
"""
LONGEST_NAME = 200
"""Maximum number of characters of a router's name."""


class _Guest:
    """A pool of another router for which this router decides. The pool's scheduler passes decisions to it."""

    def __init__(self, connection: RouterConnection, pool: Pool, scheduler: SharedScheduler) -> None:
        self._connection = connection
        self.pool = pool
        self.scheduler = scheduler

    def tell(self, verdict: Dispatch | Refusal, now: float) -> None:
        """Send a decision about a request to the router that asked for it."""
        self._connection.say(str(self.pool.key), replace(verdict, request=named(verdict.request.id)))


class _Stranger:
    """A connection whose router has not proven its identity."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.handshake: Handshake | None = None
        self.ahead_seconds = 0.0


class _Caller:
    """Another router that has proven its identity and may ask this router to decide.

    `ahead_seconds`: an upper bound on how far this router's clock is ahead of the other router's clock. It is the
    smallest difference seen between a message's receiving time (this router's clock) and its sending time (the other
    router's clock). It is an upper bound because every message takes some time to arrive.
    """

    def __init__(self, router: str, ahead_seconds: float) -> None:
        self.router = router
        self.ahead_seconds = ahead_seconds
        self.guests: dict[str, _Guest] = {}


class Callers:
    """The connections to other routers that ask this router to decide.

    `router` is this router's name. Messages are processed only from routers that prove that they know `secret`; other
    connections are closed. `left` is called with each connection that has ended.
    """

    def __init__(self, pools: Pools, router: str, secret: str, now: Callable[[], float], left: Callable[[RouterConnection], None]) -> None:
        self._left = left
        self._pools = pools
        self._router = router
        self._secret = secret
        self._now = now
        self._strangers: dict[RouterConnection, _Stranger] = {}
        self._callers: dict[RouterConnection, _Caller] = {}
        self._takes = True

    @property
    def asking(self) -> int:
        """Number of other routers for which this router decides in at least one pool."""
        return sum(bool(caller.guests) for caller in self._callers.values())

    def connection(self) -> RouterConnection:
        """Return the protocol object for a router that has just connected."""
        if len(self._strangers) >= MOST_STRANGERS:
            next(iter(self._strangers)).close()
        made = RouterConnection(self._hear, self._end, hears_stale=False)
        self._strangers[made] = _Stranger()
        return made

    def let_go(self) -> None:
        """Close the connections of routers that have been silent for too long. Stop deciding for each pool that this
        router no longer has.
        """
        for connection in tuple(self._strangers):
            if connection.is_silent or connection.is_overdue:
                connection.close()
        for connection, caller in tuple(self._callers.items()):
            if connection.is_silent:
                connection.close()
                continue
            for name, guest in tuple(caller.guests.items()):
                if self._pools.get(guest.pool.key) is not guest.pool:
                    self._give_back(connection, caller, name)

    def let_stale_go(self) -> None:
        """Close the connections of routers whose silence is long enough that they may have given up on this router."""
        for connection in tuple(self._callers):
            if connection.is_stale:
                connection.close()

    def give_back(self, pool: Pool) -> None:
        """Stop deciding for the pool on behalf of other routers. These routers decide for their own requests again."""
        for connection, caller in tuple(self._callers.items()):
            if str(pool.key) in caller.guests:
                self._give_back(connection, caller, str(pool.key))

    def decide_no_more(self) -> None:
        """Stop deciding for other routers, before this router stops. These routers decide about their own requests
        again.
        """
        self._takes = False
        for connection, caller in tuple(self._callers.items()):
            for name in tuple(caller.guests):
                self._give_back(connection, caller, name)

    def close(self) -> None:
        """End all connections."""
        for connection in (*self._strangers, *self._callers):
            connection.close()

    def _end(self, connection: RouterConnection) -> None:
        self._left(connection)
        self._strangers.pop(connection, None)
        caller = self._callers.pop(connection, None)
        if caller is not None:
            with ExitStack() as steps:  # each is done, whatever becomes of the others
                for name in reversed(caller.guests):
                    steps.callback(self._leave, caller, name)

    def _greet(self, connection: RouterConnection, stranger: _Stranger, body: Body) -> None:
        if isinstance(body, Hello) and stranger.hello is None and body.protocol == PROTOCOL and len(body.router) <= LONGEST_NAME:
            stranger.hello, nonce = body, new_nonce()
            stranger.ahead_seconds = self._now() - body.now
            stranger.handshake = Handshake(self._secret, body.router, self._router, (body.nonce, nonce))
            connection.say("", Challenge(nonce=nonce))
        elif isinstance(body, Proof) and stranger.hello is not None and stranger.handshake is not None:
            if stranger.handshake.is_asking(body.code):
                self._welcome(connection, stranger.hello, stranger.handshake, stranger.ahead_seconds)
            else:
                connection.close()
        elif not isinstance(body, Alive):
            connection.close()

    def _welcome(self, connection: RouterConnection, hello: Hello, handshake: Handshake, ahead_seconds: float) -> None:
        for other, known in tuple(self._callers.items()):
            if known.router == hello.router:
                other.close()  # it has restarted, and its requests come again
        del self._strangers[connection]
        self._callers[connection] = _Caller(hello.router, ahead_seconds)
        connection.trust()
        connection.say("", Welcome(code=handshake.of_asked()))

    def _hear(self, connection: RouterConnection, frame: Frame) -> None:
        stranger, body = self._strangers.get(connection), frame.body
        if stranger is not None:
            self._greet(connection, stranger, body)
            return
        caller = self._callers.get(connection)
        if caller is None:
            connection.close()
        elif isinstance(body, Alive):
            connection.say("", Alive())
        elif isinstance(body, Join):
            self._join(connection, caller, frame.pool, body)
        elif isinstance(body, Leave):
            self._leave(caller, frame.pool)
        elif isinstance(body, Hello | Challenge | Proof | Welcome | Gone | Dispatch | Refusal):
            connection.close()  # nobody says that to a decider
        elif (guest := caller.guests.get(frame.pool)) is not None:
            now = self._now()
            if isinstance(body, Asked):
                caller.ahead_seconds = min(caller.ahead_seconds, now - body.submitted_at)
            guest.pool.account.deliver(guest.scheduler.hear_front(guest, _by_this_clock(body, caller.ahead_seconds), now), now)

    def _join(self, connection: RouterConnection, caller: _Caller, name: str, join: Join) -> None:
        self._leave(caller, name)
        namespace, _, short = name.partition("/")
        pool = self._pools.get(PoolKey(namespace=namespace, name=short))
        may = self._takes and pool is not None and pool.table.uid == join.uid and not pool.account.is_decided_elsewhere
        if not may or pool is None or not isinstance(pool.scheduler, SharedScheduler):
            connection.say(name, Gone())
            return
        guest = caller.guests[name] = _Guest(connection, pool, pool.scheduler)
        pool.scheduler.join(guest)
        pool.account.join()

    def _give_back(self, connection: RouterConnection, caller: _Caller, name: str) -> None:
        connection.say(name, Gone())
        self._leave(caller, name)

    def _leave(self, caller: _Caller, name: str) -> None:
        guest = caller.guests.pop(name, None)
        if guest is not None:
            now = self._now()
            guest.pool.account.leave(now)
            guest.pool.account.deliver(guest.scheduler.leave(guest, now), now)


def _by_this_clock(word: Body, ahead_seconds: float) -> Word:
    """Return another router's message with its times converted from that router's clock to this router's clock.
    `ahead_seconds`: how far this router's clock is ahead; it is added to the times.
    """
    assert not isinstance(word, Control | Dispatch | Refusal)
    if isinstance(word, Asked | UnderWay):
        request = replace(word.request, arrived_at=word.request.arrived_at + ahead_seconds)
        word = replace(word, request=request, submitted_at=word.submitted_at + ahead_seconds)
        if isinstance(word, UnderWay):
            word = replace(word, dispatched_at=word.dispatched_at + ahead_seconds)
    return word
