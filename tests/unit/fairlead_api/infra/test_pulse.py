"""The watch over Postgres, in virtual time: while a database does not answer, no caller waits for two seconds."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from fairlead_api.infra.connections import Connection
from fairlead_api.infra.database import READS, Database
from fairlead_api.infra.errors import StoreUnavailable
from fairlead_api.infra.pulse import Pulse
from fairlead_testing.worlds.virtual_time import run_virtually, virtual_now

URL = "postgresql+psycopg://app@/fairlead"
MOST_SECONDS = 2.0


class SilentDatabase:
    """A database that answers at once until it is frozen. Then it refuses nothing, answers nothing and closes
    nothing.
    """

    def __init__(self) -> None:
        self.frozen = False
        self.connects = 0
        self.wires: list[Wire] = []

    async def connect(self, *_: object, **__: object) -> "Wire":
        self.connects += 1
        if self.frozen:
            await asyncio.Event().wait()
        self.wires.append(Wire(self))
        return self.wires[-1]


class Wire:
    """The methods of a psycopg connection that the pulse uses, over a real socket that can be closed."""

    def __init__(self, database: SilentDatabase) -> None:
        self._database = database
        self.silent = False
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    autocommit = True
    info = SimpleNamespace(server_version=180000)

    async def set_autocommit(self, _: bool) -> None:
        return

    async def execute(self, statement: str, *_: object, **__: object) -> "Wire":
        self._row: tuple[object, ...] = ("UTF8", None) if "server_encoding" in statement else (False, time.time())
        if (self._database.frozen or self.silent) and await asyncio.get_running_loop().sock_recv(self._ours, 1) == b"":
            raise psycopg.OperationalError("the server closed the connection")
        return self

    async def fetchone(self) -> tuple[object, ...]:
        return self._row

    async def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@asynccontextmanager
async def watched(pulse: Pulse) -> AsyncIterator[None]:
    task = asyncio.create_task(pulse.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> SilentDatabase:
    made = SilentDatabase()
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", made.connect)
    return made


async def use_until_it_fails(pulse: Pulse, connection: Connection) -> float:
    """Query continually, as a busy pool does, and return the virtual time at which the database counts as
    unavailable.
    """
    while True:
        pulse.taken(connection, 30)
        try:
            await connection.execute("SELECT 1")
        except psycopg.OperationalError:
            pulse.returned(connection, works=False)
            return virtual_now()
        pulse.returned(connection, works=True)
        await asyncio.sleep(0.01)


async def connect_until_it_fails(pulse: Pulse) -> float:
    while True:
        try:
            await (await pulse.connect("test")).close()
        except psycopg.OperationalError:
            return virtual_now()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("offset", [step / 40 for step in range(12)])
def test_who_waits_when_the_database_falls_silent_is_told_within_two_seconds(database: SilentDatabase, offset: float) -> None:
    async def story() -> list[float]:
        pulse = Pulse(URL)
        async with watched(pulse):
            await asyncio.sleep(3)
            pulse.require_heard()
            waiting: list[Any] = [use_until_it_fails(pulse, await pulse.connect("test")) for _ in range(3)]
            tasks = [asyncio.create_task(one) for one in (*waiting, connect_until_it_fails(pulse))]
            await asyncio.sleep(1 + offset)
            database.frozen = True
            frozen_at = virtual_now()
            return [ended - frozen_at for ended in await asyncio.gather(*tasks)]

    assert max(run_virtually(story())) < MOST_SECONDS


def test_while_the_database_is_away_nobody_waits_or_connects(database: SilentDatabase) -> None:
    async def story() -> tuple[float, int]:
        pulse = Pulse(URL)
        store = Database(READS, pulse)
        async with watched(pulse):
            await asyncio.sleep(1)
            database.frozen = True
            await asyncio.sleep(MOST_SECONDS)
            asked_at, connects = virtual_now(), database.connects
            with pytest.raises(StoreUnavailable, match="does not answer"):
                async with store.reading():
                    pass
            with pytest.raises(psycopg.OperationalError):
                await pulse.connect("test")
            with pytest.raises(StoreUnavailable):
                pulse.require_heard()
            return virtual_now() - asked_at, database.connects - connects

    assert run_virtually(story()) == (0.0, 0)


def test_one_silent_connection_ends_no_other(database: SilentDatabase) -> None:
    async def story() -> None:
        pulse = Pulse(URL)
        async with watched(pulse):
            await asyncio.sleep(1)
            used = asyncio.create_task(use_until_it_fails(pulse, await pulse.connect("test")))
            asking = database.wires[0]
            asking.silent = True
            await asyncio.sleep(10)
            pulse.require_heard()
            assert not used.done()
            assert database.wires[-1] not in {asking, database.wires[1]}, "it asks on a new connection"
            used.cancel()

    run_virtually(story())
