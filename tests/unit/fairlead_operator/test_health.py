"""What the operator's health tells of reads that it has no right to."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from fairlead_operator.health import Health
from fairlead_operator.leader_election import Lease
from fairlead_operator.settings import LeaseSettings
from fairlead_testing.fakes.cluster import FakeCluster

PODS = "/api/v1/namespaces/team-b/pods"


class Server:
    """Lets nobody read the `closed` paths."""

    def __init__(self) -> None:
        self.closed = {PODS}

    async def answer(self, request: web.Request) -> web.Response:
        return web.json_response({}, status=403 if request.path in self.closed else 200)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    scripted, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield scripted, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_the_namespace_that_lets_the_operator_read_nothing_is_named_until_it_does(server: tuple[Server, str]) -> None:
    scripted, url = server
    health, lease = Health(), Lease(LeaseSettings(), "one", FakeCluster(), asyncio.get_running_loop().time, lambda: 0.0)
    assert await lease.hold()
    health.waiting_for = ""
    health.watch(lease, ())
    leading = {"state": "leading", "holder": "one", "pools": 0}
    async with aiohttp.ClientSession(trace_configs=[health.reads.trace]) as session:
        for path in (PODS, "/api/v1/namespaces/team-a/pods", PODS):
            await session.get(f"{url}{path}?watch=true")
        assert health.document() == {**leading, "refused": [PODS]}
        assert health.is_ready(), "the others go on"
        scripted.closed.clear()
        await session.get(f"{url}{PODS}")
        assert health.document() == leading
