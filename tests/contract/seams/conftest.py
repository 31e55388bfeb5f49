"""Each test of this folder runs against the fake and against the real API, through the client that the
router and the operator ship.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from fairlead_client.internal import SystemApi
from fairlead_testing.running.postgres import fresh_database, shared_server
from fairlead_testing.running.seams import Clients, Seam, fake_seam, real_seam
from fairlead_testing.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with shared_server() as url:
        yield url


@pytest.fixture(params=["fake", "api"])
async def seam(request: pytest.FixtureRequest) -> AsyncIterator[Seam]:
    async with AsyncExitStack() as stack:
        if request.param == "fake":
            yield await stack.enter_async_context(fake_seam())
        else:
            database_url = stack.enter_context(fresh_database(request.getfixturevalue("postgres_url")))
            yield await stack.enter_async_context(real_seam(database_url))


@pytest.fixture
async def clients(seam: Seam) -> AsyncIterator[Clients]:
    operator = SystemApi(seam.url, seam.operator_token, timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS)
    router = SystemApi(seam.url, seam.router_token, timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS)
    async with operator, router:
        yield Clients.of(operator, router)
