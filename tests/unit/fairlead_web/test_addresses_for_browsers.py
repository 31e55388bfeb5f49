"""The addresses that browser tests visit lead to every page."""

import pytest

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.browser_site import other_clusters
from fairlead_testing.running.every_page import addresses, furnish
from fairlead_testing.running.web_client import NOW, visitor
from fairlead_web.frame.rendering import TEMPLATES, Context, Renderer

OF_OTHER_TESTS = {"pages/error.html", "pages/error_bare.html", "pages/heatmap_words.html", "pages/login.html"}
"""Pages for missing objects and signed-out people, and a part of an open heatmap."""


async def test_the_addresses_of_browser_tests_lead_to_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = set[str]()
    render = Renderer.render

    def noted(renderer: Renderer, context: Context, block: str | None = None) -> str:
        rendered.add(context.template)
        return render(renderer, context, block)

    monkeypatch.setattr(Renderer, "render", noted)
    with other_clusters(FakePublicApi(World(now=NOW))) as others:
        async with visitor("admin", clusters=others) as admin:
            furnish(admin.fake, CHAT, INSTANCES[CHAT][1])
            answers = {path: (await admin.http.get(path)).status_code for path in addresses(CHAT, INSTANCES[CHAT][1])}
    assert {path: status for path, status in answers.items() if status != 200} == {}
    assert {f"pages/{one.name}" for one in (TEMPLATES / "pages").glob("*.html")} - rendered == OF_OTHER_TESTS
