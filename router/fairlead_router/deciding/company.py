"""The routers of one machine: which are there, and which of them decides for each pool."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead_router.deciding.callers import Callers
from fairlead_router.deciding.decider import OtherRouter
from fairlead_router.deciding.folder import Folder, Listed
from fairlead_router.deciding.frames import Alive
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pool import Pool
from fairlead_router.pools import Pools

LOOK_SECONDS = 0.25
CONNECT_SECONDS = 0.5
HOST = "127.0.0.1"

logger = logging.getLogger(__name__)


class Company:
    """Finds the other routers of `folder` and asks, for each pool, the one that decides. Whoever does not answer is not
    there, and without others this router decides for all its pools.
    """

    def __init__(self, folder: Path, router_id: str, pools: Pools, metrics: RouterMetrics, now: Callable[[], float]) -> None:
        self._folder = Folder(folder)
        self._router = router_id
        self._pools = pools
        self._metrics = metrics
        self._now = now
        self._secret, self._proof = secrets.token_hex(16), secrets.token_hex(16)
        self._callers = Callers(pools, self._secret, self._proof, now)
        self._others: dict[str, OtherRouter] = {}
        self._server: asyncio.Server | None = None
        self._stopping = False

    async def look(self) -> None:
        """Called several times a second: meet who came, let go of who went, ask who is to decide."""
        if self._server is None and not self._stopping:
            await self._listen()
        self._callers.let_go()
        for other in tuple(self._others.values()):
            if other.connection.is_silent:
                other.connection.close()
            else:
                other.connection.say("", Alive())
        await self._meet()
        self._choose()
        self._metrics.asking_routers = self._callers.asking

    def decide_no_more(self) -> None:
        """Before this router stops: nobody may ask it any more. What it asks for goes on."""
        self._stopping = True
        self._folder.leave(self._router)
        if self._server is not None:
            self._server.close()
        self._callers.decide_no_more()

    def close(self) -> None:
        """End everything."""
        self.decide_no_more()
        self._callers.close()
        for other in tuple(self._others.values()):
            other.connection.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._callers.connection, HOST, 0)

    def _enter(self, server: asyncio.Server, listed: dict[str, Listed]) -> None:
        """Make this router known, again if its file was taken away."""
        own = Listed(router=self._router, port=server.sockets[0].getsockname()[1], secret=self._secret, proof=self._proof)
        if listed.pop(self._router, None) != own:
            self._folder.enter(own)

    async def _meet(self) -> None:
        listed = self._folder.listed()
        if self._server is not None and not self._stopping:
            self._enter(self._server, listed)
        listed.pop(self._router, None)
        for router, known in tuple(self._others.items()):
            if listed.get(router) != known.listed:
                known.connection.close()
        await asyncio.gather(*(self._connect(one) for router, one in listed.items() if router not in self._others))

    async def _connect(self, listed: Listed) -> None:
        other = OtherRouter(self._router, listed, self._now, self._lost)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().create_connection(other.protocol, HOST, listed.port)
        except (OSError, TimeoutError):
            return
        if other.connection.is_open:
            self._others[listed.router] = other

    def _lost(self, other: OtherRouter) -> None:
        name = other.listed.router
        if self._others.get(name) is other:
            del self._others[name]
            if not other.was_met:
                return
            self._metrics.lost_routers += 1
            logger.info("another router of this machine is gone", extra={"other": name})

    def _choose(self) -> None:
        living = self._pools.all()
        for other in self._others.values():
            for pool in other.asked:
                if pool not in living:  # before another of its name is asked for
                    other.ask_no_more(pool)
        asked = 0
        for pool in living:
            decider = self._decider(pool)
            for other in self._others.values():
                if other is not decider:
                    other.ask_no_more(pool)
            if decider is not None and isinstance(pool.scheduler, SharedScheduler):
                asked += 1
                if pool not in decider.asked:
                    decider.ask(pool, pool.scheduler)
        self._metrics.asked_pools = asked

    def _decider(self, pool: Pool) -> OtherRouter | None:
        """Who decides for the pool, None when that is this router.

        A pool that refuses requests after their prefill is not shared: its routers need the answer at once.
        """
        if self._stopping or pool.table.early_rejection.mode == "AfterPrefill":
            return None
        names = [name for name, other in self._others.items() if other.answers]
        other = self._others.get(decider_of(pool.key, [self._router, *names]))
        return other if other is not None and (pool in other.asked or other.may_be_asked(pool)) else None
