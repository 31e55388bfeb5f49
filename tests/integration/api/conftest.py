"""A real Postgres per session, a new database per test, and API instances in this process over a streaming
transport.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlead_api.infra.upgrading import upgrade
from fairlead_testing.running.api import ApiInstance, running_api
from fairlead_testing.running.postgres import PostgresProcess, fresh_database, place_of_servers, shared_server

DURABLE = {"max_connections": "40", "shared_buffers": "32MB"}


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with shared_server() as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url) as instance:
        yield instance


@pytest.fixture
async def start_api(database_url: str) -> AsyncIterator[Callable[[], Awaitable[ApiInstance]]]:
    """Yield a function that starts further API instances on the same database, as replicas."""
    async with AsyncExitStack() as stack:

        async def start() -> ApiInstance:
            return await stack.enter_async_context(running_api(database_url))

        yield start


@pytest.fixture(scope="session")
def migrated_cluster() -> Iterator[Path]:
    """Yield the data of a stopped server with fsync and all migrations, which tests copy."""
    with tempfile.TemporaryDirectory(prefix="fl-made-", dir=place_of_servers()) as folder:
        server = PostgresProcess(Path(folder), DURABLE)
        server.start()
        upgrade(server.url)
        server.stop()
        yield Path(folder) / "data"


@pytest.fixture
def own_postgres(migrated_cluster: Path) -> Iterator[PostgresProcess]:
    """Yield a server of this test's own, with fsync, that it may kill or freeze."""
    with tempfile.TemporaryDirectory(prefix="fl-kill-", dir=place_of_servers()) as folder:
        shutil.copytree(migrated_cluster, Path(folder) / "data")
        server = PostgresProcess(Path(folder), DURABLE)
        server.start()
        try:
            yield server
        finally:
            server.stop()
