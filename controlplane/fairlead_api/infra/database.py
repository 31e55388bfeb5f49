"""Database connections divided into bulkheads, transactions that are retried when Postgres requires it, and the
translation of the driver's errors.

Only this module translates the driver's errors to Fairlead's errors.
"""

import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from fairlead_api.infra.connections import Connection
from fairlead_api.infra.errors import StoreBusy, StoreUnavailable
from fairlead_api.infra.pulse import Pulse
from fairlead_api.settings import DATABASE_SCHEME

Result = TypeVar("Result")

_RETRIES = 4
NOT_NOW = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)
"""Driver errors that look like internal errors, although the same work may succeed on a later attempt."""

PING_SECONDS = 0.5
"""Two limits in seconds: the maximum duration of a check whether a pooled connection still works, and the time since
the connection's last response within which it is used without a check.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulkhead:
    """A share of the database connections, reserved for one kind of work.

    An idle connection stays open, because a new connection costs Postgres a process and has no prepared statements.
    Postgres enforces `statement_seconds`, `lock_seconds` and `idle_seconds`. `wait_seconds` is the maximum wait for a
    free connection.
    """

    name: str
    connections: int
    statement_seconds: float
    lock_seconds: float = 2.0
    idle_seconds: float = 10.0
    """Maximum pause in seconds within a transaction. After it, Postgres ends the transaction of a suspended process,
    which would otherwise keep its locks.
    """
    wait_seconds: float = 5.0

    def patient(self, times: float) -> "Bulkhead":
        """Return the same bulkhead with its time limits multiplied by `times`."""
        return replace(
            self,
            statement_seconds=self.statement_seconds * times,
            lock_seconds=self.lock_seconds * times,
            idle_seconds=self.idle_seconds * times,
            wait_seconds=self.wait_seconds * times,
        )


READS = Bulkhead(name="reads", connections=8, statement_seconds=5, lock_seconds=1, idle_seconds=60)
"""The bulkhead for data that people read. A page makes half a dozen queries at once."""

REPORTS = Bulkhead(name="reports", connections=6, statement_seconds=15)
"""The bulkhead for routers' reports."""

CONTROL = Bulkhead(name="control", connections=6, statement_seconds=15)
"""The bulkhead for pool states, plans, identities and the stream to routers: short work that must run even when all
other bulkheads are busy.
"""

UPKEEP = Bulkhead(name="upkeep", connections=5, statement_seconds=60)
"""The bulkhead for background jobs, and for creating the partitions that reports need."""

JOBS = Bulkhead(name="jobs", connections=5, statement_seconds=60)
"""The bulkhead for locks of background jobs that only one process runs at a time. A job holds its lock while it waits
for a connection of `UPKEEP`. If locks used `UPKEEP` too, a few jobs could hold all of its connections and wait for each
other.
"""


ROUTER_LIVE_FOR = "make_interval(secs => CAST(current_setting('fairlead.router_live_seconds') AS integer))"
"""SQL for the time after a router's last report during which the router counts as live. Every connection of a
`Database` has this time as a session setting.
"""


def make_engine(bulkhead: Bulkhead, pulse: Pulse, router_live_seconds: int) -> AsyncEngine:
    """Create a pool of connections that have time limits and are checked before use.

    The check avoids an error for callers after a restart of Postgres.
    """
    settings = {
        "statement_timeout": bulkhead.statement_seconds,
        "lock_timeout": bulkhead.lock_seconds,
        "idle_in_transaction_session_timeout": bulkhead.idle_seconds,
    }
    of_session = {name: f"{round(seconds * 1000)}ms" for name, seconds in settings.items()}
    of_session["fairlead.router_live_seconds"] = str(router_live_seconds)

    async def connect(*_: Any, **__: Any) -> Connection:
        return await pulse.connect(bulkhead.name, of_session, autocommit=False)

    engine = create_async_engine(
        DATABASE_SCHEME,  # where it is and how to connect, the pulse knows: all connections begin alike
        pool_size=bulkhead.connections,
        max_overflow=0,
        pool_timeout=bulkhead.wait_seconds,
        isolation_level="AUTOCOMMIT",
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
        connect_args={"async_creator_fn": connect},
    )
    ping_seconds = PING_SECONDS * pulse.patience
    longest = bulkhead.statement_seconds * 2  # Postgres ends a statement long before; this is for a connection that went silent alone

    @event.listens_for(engine.sync_engine, "connect")
    def fresh(_: object, record: Any) -> None:
        record.info["made_at"] = record.info["heard_at"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def check(connection: Any, record: Any, _: object) -> None:
        raw = connection.driver_connection
        if record.info["made_at"] < pulse.switched_at:
            raise InvalidatePoolError
        pulse.taken(raw, ping_seconds)
        if record.info["heard_at"] <= max(pulse.lost_at, time.monotonic() - PING_SECONDS) or _is_told_something(raw):
            try:
                engine.sync_engine.dialect.do_ping(connection)
            except psycopg.Error as error:
                raise InvalidatePoolError from error
        pulse.limits.set(raw, longest)

    @event.listens_for(engine.sync_engine, "reset")
    def discard_unknown(connection: Any, _record: object, _state: object) -> None:
        raw = connection.driver_connection
        if raw.info.transaction_status in {TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN}:
            raw.pgconn.finish()

    @event.listens_for(engine.sync_engine, "checkin")
    def heard(connection: Any, record: Any) -> None:
        if connection is not None:
            record.info["heard_at"] = time.monotonic()
            pulse.returned(connection.driver_connection, works=True)

    @event.listens_for(engine.sync_engine, "invalidate")
    def dropped(connection: Any, _record: object, _error: object) -> None:
        pulse.returned(connection.driver_connection, works=False)

    return engine


def _is_told_something(connection: "psycopg.AsyncConnection[Any]") -> bool:
    """Return whether the server sent anything on an idle connection. Usually this means that the server closed the
    connection.
    """
    looking = select.poll()
    looking.register(connection.fileno(), select.POLLIN)
    return bool(looking.poll(0))


class Database:
    """Reads, and short transactions, within one bulkhead.

    A read is not a transaction. At Postgres' default isolation level, each statement sees the data that was committed
    when the statement begins, inside a transaction or not; and a transaction costs two more round trips.
    """

    def __init__(self, bulkhead: Bulkhead, pulse: Pulse, router_live_seconds: int = 10) -> None:
        self.engine = make_engine(bulkhead, pulse, router_live_seconds)
        self._transactions = self.engine.execution_options(isolation_level="READ COMMITTED")
        self._bulkhead = bulkhead
        self._pulse = pulse

    @property
    def switched_at(self) -> float:
        """The monotonic time at which another server became the primary. The new primary may lack data that this
        process read from the earlier primary.
        """
        return self._pulse.switched_at

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection for reads, outside a transaction: each statement commits its writes and releases its locks
        when it ends.

        Raises StoreUnavailable if Postgres is unreachable, StoreBusy if it is too busy.
        """
        async with self._connected(self.engine) as connection:
            yield connection

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a transaction, for locks or a consistent view of the data. The transaction is always
        rolled back at its end. Raises the errors of `reading`.
        """
        async with self._connected(self._transactions) as connection:
            yield connection

    @asynccontextmanager
    async def _connected(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        self._pulse.require()
        try:
            async with engine.connect() as connection:
                yield connection
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            raise self._unavailable(error) from error
        except DBAPIError as error:
            if isinstance(error.orig, NOT_NOW):
                raise self._unavailable(error) from error
            raise

    async def writing(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Run `work` in one transaction, and again from the start if Postgres ended the transaction to resolve a
        deadlock.

        Raises StoreUnavailable if Postgres is unreachable or read-only, StoreBusy if it is too busy. The transaction is
        then rolled back. If the connection was lost during the commit, however, the transaction may be committed.
        """
        for attempt in range(1, _RETRIES + 1):
            self._pulse.require()
            try:
                async with self._transactions.begin() as connection:
                    return await work(connection)
            except DBAPIError as error:
                if isinstance(error.orig, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure) and attempt < _RETRIES:
                    continue
                if isinstance(error.orig, psycopg.errors.ProgramLimitExceeded):
                    raise  # the driver calls it operational, but the row will always be too large
                if isinstance(error, OperationalError | InterfaceError) or isinstance(error.orig, NOT_NOW):
                    raise self._unavailable(error) from error
                raise
            except (psycopg.OperationalError, *NOT_NOW, PoolTimeout) as error:  # COPY runs on the driver itself
                raise self._unavailable(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def go_on(self, connection: AsyncConnection) -> None:
        """Keep a transaction of `holding` alive. Postgres would otherwise end it after `idle_seconds` without a
        statement.
        """
        self._pulse.limits.set(await driver(connection), self._bulkhead.statement_seconds * 2)
        await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        await self.engine.dispose()

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        """Return a StoreUnavailable that describes the error in one line, without the SQL statement."""
        cause = getattr(error, "orig", None) or error
        bulkhead = self._bulkhead
        if isinstance(cause, PoolTimeout):
            return StoreBusy(f"all {bulkhead.connections} database connections for {bulkhead.name} are in use")
        if isinstance(cause, psycopg.errors.QueryCanceled):
            return StoreBusy(f"the database took longer than {bulkhead.statement_seconds:g} s; ask for less, such as a shorter range")
        if isinstance(cause, psycopg.errors.LockNotAvailable):
            return StoreBusy(f"the rows were locked by others for longer than {bulkhead.lock_seconds:g} s")
        lines = str(cause).strip().splitlines()
        first = lines[0] if lines else type(cause).__name__
        if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
            return StoreUnavailable(f"the database takes no writes: {first}")
        return StoreUnavailable(f"the database does not answer: {first}")


async def driver(connection: AsyncConnection) -> "psycopg.AsyncConnection[Any]":
    """Return the psycopg connection under an SQLAlchemy connection, in the same transaction. It is needed for COPY."""
    raw = await connection.get_raw_connection()
    found = raw.driver_connection
    if not isinstance(found, psycopg.AsyncConnection):
        raise TypeError(f"the database driver is {type(found).__name__}; write postgresql+psycopg:// in FAIRLEAD_DATABASE_URL")
    return found


def moment(seconds: float) -> datetime:
    """Convert Unix seconds to a UTC time."""
    return datetime.fromtimestamp(seconds, UTC)
