"""A real Postgres per session, a fresh database per test, and API instances in this process over a streaming transport."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from api_running import ApiInstance, running_api
from postgres import fresh_database, shared_server


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
    """Starts further API instances on the same database, as replicas."""
    async with AsyncExitStack() as stack:

        async def start() -> ApiInstance:
            return await stack.enter_async_context(running_api(database_url))

        yield start
