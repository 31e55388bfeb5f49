"""How the operator's health reports reads that RBAC forbids."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

import fairlead_operator.health
from fairlead_operator.health import CONNECTIONS, Health
from fairlead_operator.leader_election import Lease
from fairlead_operator.settings import LeaseSettings
from fairlead_testing.fakes.cluster import FakeCluster
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port

PODS = "/api/v1/namespaces/team-b/pods"


class Server:
    """A server that forbids everybody to read the `closed` paths."""

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


async def test_the_operators_metrics_are_beside_its_health(server: tuple[Server, str]) -> None:
    _, url = server
    health, lease, port = Health(), Lease(LeaseSettings(), "one", FakeCluster(), asyncio.get_running_loop().time, lambda: 0.0), free_port()
    await health.serve("127.0.0.1", port)
    health.metrics.taken("reconcile", "a/b", "ok", 0.02)
    async with aiohttp.ClientSession(trace_configs=[health.reads.trace]) as session:

        async def page() -> str:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                return await answer.text()

        waiting = await page()
        assert await lease.hold()
        health.waiting_for = ""
        health.watch(lease, ("a/b", "a/c"))
        await session.get(f"{url}{PODS}?watch=true")
        leading = await page()
    await health.close()
    for name, before, after in (("leading", 0, 1), ("ready", 0, 1), ("pools", 0, 2), ("refused_reads", 0, 1)):
        assert f"fairlead_operator_{name} {before}.0\n" in waiting
        assert f"fairlead_operator_{name} {after}.0\n" in leading
    assert 'fairlead_operator_step_seconds_count{outcome="ok",step="reconcile"} 1.0' in leading
    assert "process_cpu_seconds_total" in leading


async def test_strangers_at_the_health_port_take_few_files_and_probes_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairlead_operator.health, "STRANGER_SECONDS", 0.1)
    monkeypatch.setattr(fairlead_operator.health, "VISIT_SECONDS", 2.0)
    health, port = Health(), free_port()
    health.waiting_for = ""
    await health.serve("127.0.0.1", port)
    strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * CONNECTIONS)]
    for _, writer in strangers:
        writer.write(b"GET /healthz HTTP/1.1\r\nx-")
    await asyncio.sleep(0.2)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200
    async with asyncio.timeout(PATIENCE_SECONDS):
        for reader, writer in strangers:
            with contextlib.suppress(ConnectionError):
                await reader.read()  # each has ended, refused or overdue
            writer.close()
    await health.close()
