"""Both servers of the internal protocol, over HTTP on loopback: the real API on Postgres, and the fake.

Contract tests run the same cases against both.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import psycopg
import uvicorn
from psycopg import sql

from fairlead_api.app import create_api
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_client.lines import HeartbeatLine, StreamLine, SyncedLine
from fairlead_testing.fakes.system_api import OPERATOR_TOKEN, ROUTER_TOKEN, FakeSystemApi
from fairlead_testing.running.api import SECRETS, settings_for
from fairlead_testing.running.postgres import plain, with_database
from fairlead_testing.running.strict_system_api import StrictSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS

Line = TypeVar("Line", bound=StreamLine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The shipped client with the tokens of operator and router.

    `operator_api` and `router_api` return outcomes. `operator` and `router` return answers and raise NotTaken instead.
    """

    operator_api: SystemApi
    router_api: SystemApi
    operator: StrictSystemApi
    router: StrictSystemApi

    @staticmethod
    def of(operator: SystemApi, router: SystemApi) -> "Clients":
        return Clients(operator_api=operator, router_api=router, operator=StrictSystemApi(operator), router=StrictSystemApi(router))


@asynccontextmanager
async def following(api: SystemApi, router: str = "router-9") -> AsyncIterator["Followed"]:
    """Read a router's stream in the background until the block ends."""
    followed = Followed()

    async def read() -> None:
        async for line in api.stream(router):
            followed.lines.put_nowait(line)

    reader = asyncio.create_task(read())
    try:
        yield followed
    finally:
        reader.cancel()
        await asyncio.wait([reader])


class Followed:
    """The lines of a stream, in order of arrival."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[StreamLine] = asyncio.Queue()

    async def until(self, kind: type[Line]) -> Line:
        """Return the next line of this kind and drop the lines before it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(line := await self.lines.get(), kind):
                pass
            return line

    async def snapshot(self) -> list[StreamLine]:
        """Return all lines before the next SyncedLine, without heartbeats."""
        found: list[StreamLine] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(line := await self.lines.get(), SyncedLine):
                if not isinstance(line, HeartbeatLine):
                    found.append(line)
        return found


class Seam(Protocol):
    """An API at `url`, with the operator's token and the token of the routers `router`, `router-0`, `router-1`, …"""

    url: str
    operator_token: str
    router_token: str

    def away(self) -> AbstractAsyncContextManager[None]:
        """During the block, the API answers that its database is unavailable."""

    def slow(self) -> AbstractAsyncContextManager[None]:
        """During the block, the answer to reports that bind sessions is delayed."""

    async def scaling_decisions(self) -> list[str]:
        """Return the ids of the stored scaling decisions, in order."""


class FakeSeam:
    """The fake API."""

    operator_token = OPERATOR_TOKEN
    router_token = ROUTER_TOKEN

    def __init__(self, api: FakeSystemApi) -> None:
        self.url = api.url
        self._api = api

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._api.answers_with = 503
        yield
        self._api.answers_with = None

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[None]:
        self._api.answers_after = 1.0
        yield
        self._api.answers_after = 0.0

    async def scaling_decisions(self) -> list[str]:
        return sorted(self._api.state.scaling_decisions)


class RealSeam:
    """The product's API. Its database can refuse connections, and its table of bindings can be locked."""

    operator_token = SECRETS["system-operator"]
    router_token = SECRETS["system-router"]

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self._database_url = database_url

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        name = self._database_url.partition("?")[0].rpartition("/")[2]
        with psycopg.connect(plain(with_database(self._database_url, "postgres")), autocommit=True) as connection:
            allow = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
            connection.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            yield
            connection.execute(allow.format(sql.Identifier(name), sql.SQL("true")))

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[None]:
        with psycopg.connect(plain(self._database_url)) as connection:
            connection.execute("LOCK TABLE bindings IN ACCESS EXCLUSIVE MODE")
            yield

    async def scaling_decisions(self) -> list[str]:
        async with ControlApi(self.url, SECRETS["viewer"], timeout_seconds=PATIENCE_SECONDS) as api:
            return sorted(item.id for item in (await api.scaling_decisions()).items)


@asynccontextmanager
async def fake_seam() -> AsyncIterator[Seam]:
    """Run a fake API until the block ends."""
    api = FakeSystemApi(heartbeat_seconds=0.2)
    await api.start()
    try:
        yield FakeSeam(api)
    finally:
        await api.stop()


class _Server(uvicorn.Server):
    """A server that leaves signals to the test runner."""

    @contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as its base class
        yield


@asynccontextmanager
async def real_seam(database_url: str) -> AsyncIterator[Seam]:
    """Run the real API on this database, in this event loop, until the block ends."""
    config = uvicorn.Config(
        create_api(settings_for(database_url), patience=5), host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not server.started:
                assert not serving.done(), "the API did not start"
                await asyncio.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield RealSeam(f"http://127.0.0.1:{port}", database_url)
    finally:
        server.should_exit = True
        await serving
