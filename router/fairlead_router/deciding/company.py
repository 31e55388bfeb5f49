"""Connects this router to the other routers, and chooses for each pool the router that decides."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence

from fairlead.reports.shares import Apart
from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_process.accepting import BoundedServer
from fairlead_process.doors import Door
from fairlead_router.deciding.callers import Callers
from fairlead_router.deciding.connections import RouterConnection
from fairlead_router.deciding.decider import OtherRouter
from fairlead_router.deciding.frames import PROTOCOL, Alive
from fairlead_router.deciding.listed import Directory, Listed
from fairlead_router.deciding.meeting import Meeting
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools

LOOK_SECONDS = 0.25
LATE_SECONDS = 1.0
"""If `look` is called more than this many seconds after its previous call, the process was suspended. That call closes
no connection for silence, because messages from the other routers may have arrived and not been read.
"""
LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 256

logger = logging.getLogger(__name__)


class Company:
    """Connects to the other routers that `directories` list, and lets one router decide for each pool. A router that
    does not answer counts as absent. A router that knows no other router decides for all its pools. If directories have
    different entries for a router, the entry of the last directory counts.

    Other routers connect to `listener`. If `listener` is None, they connect to a free port of the loopback interface.
    `door` limits the number of their connections.
    """

    def __init__(
        self,
        directories: Sequence[Directory],
        router_id: str,
        pools: Pools,
        metrics: RouterMetrics,
        now: Callable[[], float],
        listener: socket.socket | None = None,
        door: Door | None = None,
    ) -> None:
        self._directories = directories
        self._router = router_id
        self._pools = pools
        self._metrics = metrics
        self._now = now
        self._listener = listener
        self._secret = secrets.token_hex(32)
        self._door = door or Door(MOST_CONNECTIONS)
        self._callers = Callers(pools, router_id, self._secret, now, self._door.leave)
        self._meeting = Meeting(self._others_end)
        self._server: BoundedServer | None = None
        self._stopping = False
        self._apart = Apart.NOT_FOUND
        self._looked_at = 0.0

    async def look(self) -> None:
        """Connect to new routers, drop routers that left, and choose each pool's deciding router again. Called several
        times a second.
        """
        if self._server is None and not self._stopping:
            self._listen()
        now = asyncio.get_running_loop().time()
        in_time, self._looked_at = now - self._looked_at < LATE_SECONDS, now
        self._callers.let_go()
        for other in self._meeting.others():
            if other.is_overdue or (other.connection.is_silent and in_time):
                other.connection.close()
            else:
                other.connection.say("", Alive())
        try:
            self._meet()
        finally:
            self._choose()
            self._metrics.asking_routers = self._callers.asking
            self._metrics.met_routers = len(self._meeting.answering())

    def let_stale_go(self) -> None:
        """Close the connections of routers that may have decided alone while this process was suspended. Called before
        every decision that a timer triggers.
        """
        self._callers.let_stale_go()

    def decide_no_more(self) -> None:
        """Stop deciding for other routers, before this router stops. The other routers decide about their own requests
        again, but still decide for this router's pools.
        """
        self._stopping = True
        for directory in self._directories:
            directory.leave(self._router)
        if self._server is not None:
            self._server.close()
        self._callers.decide_no_more()

    def close(self) -> None:
        """Stop deciding for others, and end all connections."""
        self.decide_no_more()
        self._callers.close()
        self._meeting.close()

    def _listen(self) -> None:
        listener = self._listener or socket.create_server((LOOPBACK, 0))
        self._server = BoundedServer(listener, self._door, self._callers.connection, RouterConnection.close, lambda: b"")

    def _own(self, server: BoundedServer) -> Listed:
        host, port = server.sockets[0].getsockname()[:2]
        return Listed(router=self._router, host=host, port=port, secret=self._secret, protocol=PROTOCOL)

    def _meet(self) -> None:
        listed: dict[str, Listed] = {}
        for directory in self._directories:
            listed.update(directory.listed())
        listed.pop(self._router, None)
        understood = {name: one for name, one in listed.items() if one.is_understood}
        self._apart = self._why_apart(listed, understood)
        self._meeting.follow(understood, lambda one: OtherRouter(self._router, one, self._now, self._meeting.lost))
        if self._server is not None and not self._stopping:
            own = self._own(self._server)
            for directory in self._directories:
                directory.enter(own)

    def _why_apart(self, listed: Mapping[str, Listed], understood: Mapping[str, Listed]) -> Apart:
        if len(understood) < len(listed):
            return Apart.OTHER_RELEASE
        return Apart.NO_ANSWER if understood.keys() - self._meeting.answering().keys() else Apart.NOT_FOUND

    def _others_end(self, other: OtherRouter) -> None:
        if other.was_met:
            self._metrics.lost_routers += 1
            logger.info("another router is gone", extra={"other": other.listed.router})

    def _choose(self) -> None:
        living = self._pools.all()
        others = self._meeting.others()
        for other in others:
            for pool in other.asked:
                if pool not in living:  # before another of its name is asked for
                    other.ask_no_more(pool)
        asked = 0
        for pool in living:
            decider = self._decider(pool)
            pool.decides_apart(Apart.AFTER_PREFILL if pool.table.early_rejection.mode == "AfterPrefill" else self._apart)
            for other in others:
                if other is not decider:
                    other.ask_no_more(pool)
            if decider is not None and isinstance(pool.scheduler, SharedScheduler):
                asked += 1
                if pool not in decider.asked:
                    self._callers.give_back(pool)  # a router that asks is not asked: each request has one decider
                    decider.ask(pool, pool.scheduler)
        self._metrics.asked_pools = asked

    def _decider(self, pool: Pool) -> OtherRouter | None:
        """Return the other router that decides for the pool; None if this router decides.

        If the pool's scheduler may refuse a request after the request's prefill, each router decides alone for the
        pool, because a router needs that decision at once.
        """
        if self._stopping or pool.table.early_rejection.mode == "AfterPrefill":
            return None
        answering = self._meeting.answering()
        other = answering.get(decider_of(pool.key, [self._router, *answering]))
        return other if other is not None and (pool in other.asked or other.may_be_asked(pool)) else None
