"""Watches whether Postgres responds, and ends operations that wait for it too long.

A separate connection tests the database continuously. A frozen server or a network that drops packets does not refuse
connections but stays silent, and the cancellation of a psycopg operation itself waits for the server. Therefore
operations are not cancelled; the connection's socket is shut down instead. libpq treats this as the end of the
connection: the operation fails as if the server had closed the connection, and the pool discards the connection.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import psycopg

from fairlead_api.infra.connections import Connection, begin_session, libpq_url, why_unfit
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_process.clock import OtherClock, SteadyClock

CONNECT_SECONDS = 5.0
"""Maximum seconds to connect to Postgres, including login.

An unreachable database is usually detected sooner. The limit is long, so that a database on a busy machine does not
count as unreachable.
"""

RECONNECT_SECONDS = 1.8
"""Maximum seconds for the testing connection to reconnect, if the database has responded before."""

ASK_SECONDS = 0.25
"""Seconds between two tests whether the database responds."""

SILENCE_SECONDS = 1.2
"""Seconds without a response on any connection, after which the database counts as unreachable."""

LATE_SECONDS = 0.1
"""Minimum delay of a timer, in seconds, that shows that this process itself was suspended. Responses may then be
waiting unread in the socket.
"""

KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}
"""libpq settings with which the kernel notices a dead peer (TCP only; the last one in milliseconds, the others in
seconds).
"""

DEAF = (
    "notices of the database do not arrive: a pooler in transaction mode is in front of it; connect to the database itself, or to a pooler in "
    "session mode"
)
_log = logging.getLogger(__name__)


def shut(connection: Connection) -> None:
    """End the connection without contacting the server. A task that waits for the connection gets an
    OperationalError.
    """
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


TOLD_SECONDS = 5.0
"""Minimum difference in seconds between the database's clock and this machine's clock that is logged."""
_QUESTION = "SELECT current_setting('transaction_read_only')::bool, extract(epoch FROM clock_timestamp())::float8"


class WaitLimits:
    """Shuts down connections that are still busy after their time limit."""

    def __init__(self) -> None:
        self._timers: WeakKeyDictionary[Connection, asyncio.TimerHandle] = WeakKeyDictionary()

    def set(self, connection: Connection, seconds: float) -> None:
        """Set the time limit of the connection: `seconds` from now. An earlier limit of the connection no longer
        applies.
        """
        self.lift(connection)
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        self._timers[connection] = loop.call_at(due, partial(self._expire, connection, due))

    def lift(self, connection: Connection) -> None:
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, connection: Connection, due: float) -> None:
        if asyncio.get_running_loop().time() - due > LATE_SECONDS:
            self.set(connection, LATE_SECONDS)
            return
        shut(connection)


class Pulse:
    """The state of one database, as observed by this process.

    Every user of the database calls `require` first, so that no caller waits for a database that is known to be
    unreachable. Until `run` has finished its first test, the database counts as reachable.
    """

    def __init__(self, url: str, patience: float = 1.0, older: Collection[str] = ()) -> None:
        """`patience` multiplies the times after which a connection or the database counts as failed. `older` has the
        migrations with which this version cannot work.
        """
        self.patience = patience
        self._older = older
        self._target = libpq_url(url)
        self.limits = WaitLimits()
        self._in_use: WeakSet[Connection] = WeakSet()
        self._connecting: set[asyncio.Timeout] = set()
        self._heard_at: float | None = None
        self._steady = SteadyClock()
        self._database_clock = OtherClock()
        self._away: str | None = None
        self._unfit: str | None = None
        self._deaf = False
        self.lost_at = 0.0
        """Time at which the database was last found unreachable (`time.monotonic`). Connections that were opened before
        this time are not trusted.
        """
        self._read_only = False
        self.switched_at = 0.0
        """Time at which the database last began or stopped accepting writes (`time.monotonic`). An older connection may
        lead to a server that is no longer the primary, and must not be used.
        """

    @property
    def read_only(self) -> bool:
        """Whether the database currently accepts no writes."""
        return self._read_only

    def now(self) -> datetime:
        """The time by the database's clock, which all processes of the API share; by this machine's clock until the
        database has responded.
        """
        return datetime.fromtimestamp(self._steady() + self._database_clock.ahead_seconds, UTC)

    def require(self) -> None:
        """Raises StoreUnavailable while the database is unreachable, or if this version cannot work with the
        database.
        """
        if self._away is not None:
            raise StoreUnavailable(f"the database does not answer: {self._away}")
        if self._unfit is not None:
            raise StoreUnavailable(self._unfit)

    def require_heard(self) -> None:
        """Raises the errors of `require`. Also raises StoreUnavailable before the database's first response, and while
        notices do not arrive.
        """
        self.require()
        if self._heard_at is None:
            raise StoreUnavailable("the database has not answered yet")
        if self._deaf:
            raise StoreUnavailable(DEAF)

    def notices(self, *, arrive: bool) -> None:
        """Record whether notices sent with NOTIFY arrive at this process."""
        if self._deaf and arrive:
            _log.info("notices arrive again")
        elif not arrive and not self._deaf:
            _log.error("not ready", extra={"error": DEAF})
        self._deaf = not arrive

    async def connect(self, application: str, settings: Mapping[str, str] = MappingProxyType({}), *, autocommit: bool = True) -> Connection:
        """Connect to the database within CONNECT_SECONDS. Gives up at once if the database is, or becomes, unreachable.
        `settings` are added to the session settings that every connection has.

        Raises psycopg.Error.
        """
        if self._away is not None:
            raise psycopg.OperationalError(self._away)
        return await self._connect(CONNECT_SECONDS * self.patience, application, settings, autocommit=autocommit)

    async def _connect(
        self, seconds: float, application: str, settings: Mapping[str, str] = MappingProxyType({}), *, autocommit: bool = True
    ) -> Connection:
        made = await self._opened(seconds, application_name=f"fairlead-api {application}", client_encoding="UTF8", autocommit=autocommit)
        self.taken(made, seconds)  # for its first statement, and what a pool does with it; using it sets another limit
        try:
            await begin_session(made, settings)
        except BaseException:
            self.limits.lift(made)
            shut(made)
            await made.close()
            raise
        finally:
            self._in_use.discard(made)
        return made

    async def _opened(self, seconds: float, **parameters: Any) -> Connection:
        made: Connection | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as limit:
                self._connecting.add(limit)
                try:
                    made = await psycopg.AsyncConnection.connect(self._target, **KEEPALIVE, **parameters)
                finally:
                    self._connecting.discard(limit)
        if made is None:  # raised out here, so that no traceback keeps the half-made connection open
            raise psycopg.OperationalError(f"no connection within {seconds:g} s")
        return made

    def taken(self, connection: Connection, seconds: float) -> None:
        """Record that a connection is in use, for at most `seconds`."""
        self._in_use.add(connection)
        self.limits.set(connection, seconds)

    def returned(self, connection: Connection, *, works: bool) -> None:
        """Record that a connection is no longer in use. A connection that `works` counts as a response of the
        database.
        """
        self._in_use.discard(connection)
        self.limits.lift(connection)
        if works:
            self._heard_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Test repeatedly, until cancelled, whether the database responds."""
        while True:
            try:
                seconds = CONNECT_SECONDS if self._heard_at is None else RECONNECT_SECONDS
                connection = await self._connect(seconds * self.patience, "pulse")
                try:
                    await self._ask(connection)
                finally:
                    shut(connection)
                    self.limits.lift(connection)
                    await connection.close()
            except psycopg.Error as error:
                self._lost(error)
            await asyncio.sleep(ASK_SECONDS)

    async def _ask(self, connection: Connection) -> None:
        looked = False
        while True:
            self.limits.set(connection, SILENCE_SECONDS * self.patience)
            if not looked or self._unfit is not None:
                self._judge(await why_unfit(connection, self._older))
                looked = True
            asked_at = self._steady()
            row = await (await connection.execute(_QUESTION)).fetchone()
            self.limits.lift(connection)
            self._hear_clock(None if row is None else row[1], asked_at)
            self._heard_at = asyncio.get_running_loop().time()
            self._found(read_only=bool(row and row[0]))
            await asyncio.sleep(ASK_SECONDS)
            if self._read_only:
                return  # a new connection may find the primary

    def _hear_clock(self, said: float | None, asked_at: float) -> None:
        clock = self._database_clock
        if clock.hear(said, asked_at, self._steady()) and abs(clock.ahead_seconds) > TOLD_SECONDS:
            seconds = round(clock.ahead_seconds, 1)
            _log.warning("the database's clock differs from this machine's, and is used for times", extra={"ahead_seconds": seconds})

    def _judge(self, unfit: str | None) -> None:
        """Record whether this version can work with the database; `unfit` says why it cannot."""
        if unfit is not None and unfit != self._unfit:
            _log.error("the database cannot be used", extra={"error": unfit})
        self._unfit = unfit

    def _found(self, *, read_only: bool) -> None:
        """Record that the database responded, and whether it is read-only."""
        if self._away is not None:
            _log.info("the database answers again")
            self._away = None
        if read_only != self._read_only:
            if read_only:
                _log.warning("the database takes no writes")
            else:
                _log.info("the database takes writes again")
            self._read_only, self.switched_at = read_only, time.monotonic()

    def _lost(self, error: psycopg.Error) -> None:
        """Record that the database is unreachable, and end all waiting operations. Neither happens if the database has
        recently responded on another connection.
        """
        now = asyncio.get_running_loop().time()
        if self._in_use and self._heard_at is not None and now - self._heard_at < SILENCE_SECONDS * self.patience / 2:
            return
        lines = str(error).strip().splitlines()
        if self._away is None:
            _log.warning("the database does not answer", extra={"error": lines[0] if lines else type(error).__name__})
        self._away = lines[0] if lines else type(error).__name__
        self.lost_at = time.monotonic()
        for connection in list(self._in_use):
            shut(connection)
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(now)
