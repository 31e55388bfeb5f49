"""Each test runs against the fake and against the real public API."""

from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead_testing.running.postgres import fresh_database, shared_server
from fairlead_testing.running.public_doors import Door, fake_door, real_door


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with shared_server() as url:
        yield url


@pytest.fixture(params=["fake", "postgres"])
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    if request.param == "fake":
        async with fake_door() as found:
            yield found
        return
    with fresh_database(request.getfixturevalue("postgres_url")) as url:
        async with real_door(url) as found:
            yield found
