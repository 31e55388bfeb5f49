"""Keeping all decisions of a session for some minutes: bounded in number and time, audited, told to routers."""

from datetime import datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInput
from fairlead.tables import PoolKey
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.errors import Conflict
from fairlead_client.resources.sessions import KeepSessionRequest, KeptSession
from fairlead_client.resources.sessions import KeptSessions as Kept

MOST_SESSIONS = 20
"""Sessions of one pool at a time."""
MOST_MINUTES = 60
LONGEST_SESSION = 500


class KeptSessionStore(Protocol):
    """Kept sessions in the database. A write appends its audit entry and tells the routers, in the same transaction."""

    async def kept(self, pool: PoolKey, now: datetime) -> list[KeptSession]:
        """Those whose time is not over. Raises NotFound for the pool."""

    async def keep(self, pool: PoolKey, session: KeptSession, caller: Caller, now: datetime, most: int) -> bool:
        """Keeps one, or prolongs it; False if there are `most` others already. Raises NotFound for the pool."""

    async def let_go(self, pool: PoolKey, session: str, caller: Caller, now: datetime) -> None:
        """Ends one; nothing if it is not kept. Raises NotFound for the pool."""


class KeptSessions:
    """Use cases of kept sessions."""

    def __init__(self, store: KeptSessionStore) -> None:
        self._store = store

    async def kept(self, pool: PoolKey, now: datetime) -> Kept:
        return Kept(pool=str(pool), sessions=await self._store.kept(pool, now))

    async def keep(self, pool: PoolKey, request: KeepSessionRequest, caller: Caller, now: datetime) -> KeptSession:
        """Keeps all decisions of a session. Raises InvalidInput, NotFound, Conflict."""
        if not request.session or len(request.session) > LONGEST_SESSION or "\0" in request.session:
            raise InvalidInput("session", request.session, f"write the session's name, of at most {LONGEST_SESSION} characters")
        if not 1 <= request.minutes <= MOST_MINUTES:
            raise InvalidInput("minutes", request.minutes, f"write 1 to {MOST_MINUTES}")
        until = now + timedelta(minutes=request.minutes)
        session = KeptSession(session=request.session, until=until, by=caller.identity.subject)
        if not await self._store.keep(pool, session, caller, now, MOST_SESSIONS):
            detail = f"the decisions of {MOST_SESSIONS} sessions of {pool} are kept already; end one of them, or wait"
            raise Conflict("too-many-kept-sessions", detail)
        return session

    async def let_go(self, pool: PoolKey, session: str, caller: Caller, now: datetime) -> None:
        """Ends it before its time. Raises NotFound."""
        await self._store.let_go(pool, session, caller, now)
