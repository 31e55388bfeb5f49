"""Engine and gateway for real clients, closed after each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_testing.fakes.system_api import FakeSystemApi
from fairlead_testing.running.client_doors import Door, Doors
from fairlead_testing.running.engine import engine_starter
from fairlead_testing.worlds.router_worlds import World


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    api = FakeSystemApi()
    await api.start()
    world = World(api=api, directory=tmp_path)
    with engine_starter() as start:
        yield Doors(world, start)
        for running in tuple(world.routers):
            await world.stop_router(running)
    await api.stop()


@pytest.fixture(params=["engine", "gateway"])
async def door(request: pytest.FixtureRequest, doors: Doors) -> Door:
    """Return one of the two servers; a test that takes it runs against both."""
    return doors.engine() if request.param == "engine" else await doors.gateway()
