"""What other routers ask of this one."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import Asked, UnderWay, Word
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import PoolKey
from fairlead_router.deciding.connections import RouterConnection
from fairlead_router.deciding.frames import PROTOCOL, Alive, Body, Frame, Gone, Hello, Join, Leave, Welcome, named
from fairlead_router.pool import Pool
from fairlead_router.pools import Pools


class _Guest:
    """A pool of one caller, as the scheduler that decides for it sees it."""

    def __init__(self, connection: RouterConnection, pool: Pool, scheduler: SharedScheduler) -> None:
        self._connection = connection
        self.pool = pool
        self.scheduler = scheduler

    def tell(self, verdict: Dispatch | Refusal, now: float) -> None:
        """Send the verdict to the router that asked."""
        self._connection.say(str(self.pool.key), replace(verdict, request=named(verdict.request.id)))


class _Caller:
    """A router that has said who it is. `ahead_seconds` is what this router's clock is ahead of its, at most: a word
    takes a while, so the least that any of its words shows is the nearest.
    """

    def __init__(self, router: str, ahead_seconds: float) -> None:
        self.router = router
        self.ahead_seconds = ahead_seconds
        self.guests: dict[str, _Guest] = {}


class Callers:
    """All routers that are connected to ask this one. Only those are heard that know the `secret`; they are told the
    `proof`.
    """

    def __init__(self, pools: Pools, secret: str, proof: str, now: Callable[[], float]) -> None:
        self._pools = pools
        self._secret = secret
        self._proof = proof
        self._now = now
        self._callers: dict[RouterConnection, _Caller | None] = {}
        self._takes = True

    @property
    def asking(self) -> int:
        """How many ask for at least one pool."""
        return sum(caller is not None and bool(caller.guests) for caller in self._callers.values())

    def connection(self) -> RouterConnection:
        """For a router that has just connected."""
        made = RouterConnection(self._hear, self._end)
        self._callers[made] = None
        return made

    def let_go(self) -> None:
        """End with those that have not been heard for too long, and give back the requests of pools deleted here."""
        for connection, caller in tuple(self._callers.items()):
            if connection.is_silent:
                connection.close()
                continue
            for name, guest in () if caller is None else tuple(caller.guests.items()):
                if self._pools.get(guest.pool.key) is not guest.pool:
                    connection.say(name, Gone())
                    self._leave(caller, name)

    def decide_no_more(self) -> None:
        """Give every request back to the router it came from, for a router that stops."""
        self._takes = False
        for connection, caller in tuple(self._callers.items()):
            for name in () if caller is None else tuple(caller.guests):
                connection.say(name, Gone())
                self._leave(caller, name)

    def close(self) -> None:
        """End all connections."""
        for connection in tuple(self._callers):
            connection.close()

    def _end(self, connection: RouterConnection) -> None:
        caller = self._callers.pop(connection, None)
        for name in () if caller is None else tuple(caller.guests):
            self._leave(caller, name)

    def _hear(self, connection: RouterConnection, frame: Frame) -> None:
        caller, body = self._callers.get(connection), frame.body
        if isinstance(body, Hello):
            if caller is not None or body.protocol != PROTOCOL or not hmac.compare_digest(body.secret.encode(), self._secret.encode()):
                connection.close()
                return
            for other, known in tuple(self._callers.items()):
                if known is not None and known.router == body.router:
                    other.close()  # it has begun anew, and its requests come again
            self._callers[connection] = _Caller(body.router, self._now() - body.now)
            connection.say("", Welcome(proof=self._proof))
        elif caller is None:
            connection.close()
        elif isinstance(body, Alive):
            connection.say("", Alive())
        elif isinstance(body, Join):
            self._join(connection, caller, frame.pool, body)
        elif isinstance(body, Leave):
            self._leave(caller, frame.pool)
        elif isinstance(body, Welcome | Gone | Dispatch | Refusal):
            connection.close()  # nobody says that to a decider
        elif (guest := caller.guests.get(frame.pool)) is not None:
            now = self._now()
            if isinstance(body, Asked):
                caller.ahead_seconds = min(caller.ahead_seconds, now - body.submitted_at)
            guest.pool.deliver(guest.scheduler.hear_front(guest, _by_this_clock(body, caller.ahead_seconds), now), now)

    def _join(self, connection: RouterConnection, caller: _Caller, name: str, join: Join) -> None:
        self._leave(caller, name)
        namespace, _, short = name.partition("/")
        pool = self._pools.get(PoolKey(namespace=namespace, name=short))
        if not self._takes or pool is None or pool.table.uid != join.uid or not isinstance(pool.scheduler, SharedScheduler):
            connection.say(name, Gone())
            return
        guest = caller.guests[name] = _Guest(connection, pool, pool.scheduler)
        pool.scheduler.join(guest)
        pool.guests += 1

    def _leave(self, caller: _Caller | None, name: str) -> None:
        guest = None if caller is None else caller.guests.pop(name, None)
        if guest is not None:
            now = self._now()
            guest.pool.guests -= 1
            guest.pool.keep_reporting(now)
            guest.pool.deliver(guest.scheduler.leave(guest, now), now)


def _by_this_clock(word: Body, ahead_seconds: float) -> Word:
    """A front's word with its times by the clock of this router."""
    assert not isinstance(word, Hello | Welcome | Alive | Join | Leave | Gone | Dispatch | Refusal)
    if isinstance(word, Asked | UnderWay):
        request = replace(word.request, arrived_at=word.request.arrived_at + ahead_seconds)
        word = replace(word, request=request, submitted_at=word.submitted_at + ahead_seconds)
        if isinstance(word, UnderWay):
            word = replace(word, dispatched_at=word.dispatched_at + ahead_seconds)
    return word
