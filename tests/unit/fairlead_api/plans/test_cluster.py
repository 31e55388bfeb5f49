"""The control API's connection to the Kubernetes API, which all its callers share."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from fairlead.tables import PoolKey
from fairlead_api.infra.errors import ClusterUnavailable, NotFound
from fairlead_api.plans.cluster import KubernetesCluster
from fairlead_api.plans.objects import Target
from fairlead_testing.waiting import PATIENCE_SECONDS

KUBECONFIG = (
    "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: x, cluster: {{server: '{server}'}}}}]\n"
    "contexts: [{{name: x, context: {{cluster: x, user: x}}}}]\nusers: [{{name: x, user: {{token: good}}}}]\n"
)


class MoodyServer:
    """A server that answers with its name; `/held` when a test lets it, and `/dropped` never, because it cuts the
    connection.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []
        self.let_go = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path == "/dropped" and request.transport is not None:
            request.transport.close()
        if request.path == "/held":
            await self.let_go.wait()
        return web.json_response({"by": self.name})

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@pytest.fixture
async def servers() -> AsyncIterator[dict[str, MoodyServer]]:
    """Yield servers by address."""
    started = [(server, *await server.start()) for server in (MoodyServer("first"), MoodyServer("second"))]
    yield {address: server for server, _, address in started}
    for _, runner, _ in started:
        await runner.cleanup()


async def test_a_call_that_fails_ends_no_other_and_the_next_reads_the_kubeconfig_again(
    servers: dict[str, MoodyServer], tmp_path: Path
) -> None:
    (first, server), (second, _) = servers.items()
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=first), encoding="utf-8")
    cluster = KubernetesCluster(str(path))
    held = asyncio.ensure_future(cluster.ask("GET", "/held"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.asked:
            await asyncio.sleep(0.01)
    path.write_text(KUBECONFIG.format(server=second), encoding="utf-8")
    assert await cluster.ask("GET", "/x") == {"by": "first"}
    failing = (cluster.ask("POST", "/dropped", {}) for _ in range(3))  # a read would be sent once more
    assert [type(found) for found in await asyncio.gather(*failing, return_exceptions=True)] == [ClusterUnavailable] * 3
    assert await cluster.ask("GET", "/x") == {"by": "second"}
    server.let_go.set()
    assert await held == {"by": "first"}
    await cluster.close()


@pytest.mark.parametrize("name", ["..", ".", ""])
async def test_a_name_that_is_a_way_in_a_path_names_nothing(servers: dict[str, MoodyServer], tmp_path: Path, name: str) -> None:
    address, server = next(iter(servers.items()))
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=address), encoding="utf-8")
    cluster = KubernetesCluster(str(path))
    for target in (Target.of_instance(PoolKey(namespace="team-a", name="chat"), name), Target.of_pool(PoolKey(namespace=name, name="x"))):
        with pytest.raises(NotFound):
            await cluster.read(target)
    assert server.asked == []
    await cluster.close()
