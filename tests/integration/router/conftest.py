"""The world in which router tests run; afterwards all of it is stopped."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_testing.fakes.system_api import FakeSystemApi
from fairlead_testing.worlds.router_worlds import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    api = FakeSystemApi()
    await api.start()
    made = World(api=api, directory=tmp_path)
    yield made
    for running in tuple(made.routers):
        await made.stop_router(running)
    for engine in made.engines:
        await engine.stop()
    await api.stop()
