"""The page of all clusters."""

from functools import partial
from pathlib import Path

import httpx
import pytest

from fairlead_client.client import ControlApi
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.frame.shells import Shell
from fairlead_web.live.clusters import ClusterAddress, Clusters, ClusterSettings

TOKYO = ClusterAddress(name="tokyo", url="https://tokyo.example.com", api="https://tokyo.example.com")
AWAY = ClusterAddress(name="away", url="https://away.example.com", api="https://away.example.com")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterSettings:
    other = FakePublicApi(World(now=NOW), clock=lambda: NOW)

    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    def connect(url: str) -> ControlApi:
        return ControlApi(url, transport=httpx.ASGITransport(other.app) if url == TOKYO.url else httpx.MockTransport(refused))

    for one in (TOKYO, AWAY):
        (tmp_path / one.name).write_text("viewer-token")
    monkeypatch.setattr("fairlead_web.app.Clusters", partial(Clusters, connect=connect))
    return ClusterSettings(clusters=(TOKYO, AWAY), tokens_dir=str(tmp_path))


async def test_pools_of_all_clusters_stand_on_one_page_with_links_to_their_own(settings: ClusterSettings) -> None:
    async with visitor("viewer", clusters=settings) as viewer:
        page = " ".join((await viewer.http.get("/clusters")).text.split())
        start = (await viewer.http.get("/")).text
    assert 'href="/pools/default/chat"' in page
    assert 'href="https://tokyo.example.com/pools/default/chat"' in page
    assert 'href="https://tokyo.example.com/pools/research/code' in page, "its worst finding"
    assert "Connection refused" in page
    assert page.count("<table") == 2
    assert page.index('<h2 id="h-cluster-1">') < page.index("tokyo.example.com") < page.index("away.example.com")
    assert "viewer-token" not in page
    assert 'href="/clusters"' in start


async def test_who_may_not_see_all_namespaces_here_sees_only_where_other_clusters_are(
    settings: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shell, "may", lambda shell, role: False)
    async with visitor("viewer", clusters=settings) as viewer:
        page = (await viewer.http.get("/clusters")).text
    assert "needs the role viewer in all namespaces" in page
    assert 'href="https://tokyo.example.com/"' in page
    assert "tokyo.example.com/pools" not in page


async def test_without_other_clusters_there_is_no_such_page_and_no_link_to_it() -> None:
    async with visitor("viewer") as viewer:
        assert (await viewer.http.get("/clusters")).status_code == 404
        assert "/clusters" not in (await viewer.http.get("/")).text
