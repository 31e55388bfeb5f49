"""The connection pool, transactions that are retried when Postgres says so, and the one place where driver errors become ours."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from fairlead_api.services.errors import StoreUnavailable

Result = TypeVar("Result")

_RETRIES = 4


def make_engine(url: str, *, pool_size: int = 10) -> AsyncEngine:
    """Pool of connections that are checked before use, so that a restarted Postgres costs nobody an error."""
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=5,
        pool_pre_ping=True,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
        connect_args={"connect_timeout": 5, "application_name": "fairlead-api"},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def limit_statements(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("SET statement_timeout = '30s'")
        cursor.execute("SET TIME ZONE 'UTC'")
        cursor.close()
        connection.commit()

    return engine


class Database:
    """Short transactions over one engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reads. Raises StoreUnavailable when Postgres is away."""
        try:
            async with self.engine.connect() as connection:
                yield connection
        except (OperationalError, InterfaceError, PoolTimeout) as error:
            raise unavailable(error) from error

    async def writing(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Runs `work` in one transaction, again from the start when Postgres chose it as a deadlock's victim. Raises StoreUnavailable when
        Postgres is away: then nothing was acknowledged."""
        for attempt in range(1, _RETRIES + 1):
            try:
                async with self.engine.begin() as connection:
                    return await work(connection)
            except DBAPIError as error:
                if isinstance(error.orig, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure) and attempt < _RETRIES:
                    continue
                if isinstance(error, OperationalError | InterfaceError):
                    raise unavailable(error) from error
                raise
            except (psycopg.OperationalError, PoolTimeout) as error:  # COPY runs on the driver itself
                raise unavailable(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        await self.engine.dispose()


async def driver(connection: AsyncConnection) -> "psycopg.AsyncConnection[Any]":
    """The psycopg connection under an SQLAlchemy one, in the same transaction; for COPY."""
    raw = await connection.get_raw_connection()
    found = raw.driver_connection
    if not isinstance(found, psycopg.AsyncConnection):
        raise TypeError(f"the database driver is {type(found).__name__}; write postgresql+psycopg:// in FAIRLEAD_DATABASE_URL")
    return found


def unavailable(error: Exception) -> StoreUnavailable:
    """One line, without the statement."""
    cause = getattr(error, "orig", None) or error
    first = str(cause).strip().splitlines()
    return StoreUnavailable(f"the database does not answer: {first[0] if first else type(cause).__name__}")


def moment(seconds: float) -> datetime:
    """Unix seconds → UTC time."""
    return datetime.fromtimestamp(seconds, UTC)
