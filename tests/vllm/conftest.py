"""Two real engines for all tests, and a world that puts a router before them."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlead_testing.fakes.system_api import FakeSystemApi
from fairlead_testing.running.vllm_engine import VllmEngine
from fairlead_testing.worlds.real_engines import Live, live_before
from fairlead_testing.worlds.router_worlds import World


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, VllmEngine]]:
    """Yield the engines by id. A test that ends one starts it again."""
    tools = os.environ.get("FAIRLEAD_TEST_VLLM")
    if not tools:
        pytest.skip("needs a real vLLM: make test-vllm")
    folder = tmp_path_factory.mktemp("vllm")
    made = {name: VllmEngine(tools=Path(tools), log=folder / f"{name}.log", name=name) for name in ("i0", "i1")}
    with ExitStack() as ends:
        for engine in made.values():
            ends.callback(engine.kill)
            engine.start()
        for engine in made.values():
            engine.wait_ready()
        yield made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    api = FakeSystemApi()
    await api.start()
    made = World(api=api, directory=tmp_path)
    yield made
    for running in tuple(made.routers):
        await made.stop_router(running)
    await api.stop()


@pytest.fixture
async def live(world: World, engines: dict[str, VllmEngine]) -> Live:
    """Return a router before the two engines of all tests."""
    return await live_before(world, engines)
