"""An HTTP client of the web UI over the fake public API. Both run in this process, and the clock stands still."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx

from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.compiled_templates import compile_templates_once
from fairlead_web.app import create_web_app
from fairlead_web.frame.settings import web_settings
from fairlead_web.live.clusters import NO_CLUSTERS, ClusterSettings
from fairlead_web.text.outside_links import NO_LINKS, LinkPatterns

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
ORIGIN = "http://127.0.0.1:8080"
COOKIE = "fairlead-session-8080"


compile_templates_once()


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """A client with the session of a role (`role-token`), and the API behind the site."""

    http: httpx.AsyncClient
    fake: FakePublicApi
    token: str

    def form_token(self, page: str) -> str:
        """Return the CSRF token in a page's HTML."""
        return page.split('name="csrf" value="', 1)[1].split('"', 1)[0]

    async def submit(self, path: str, page: str = "/help", **fields: str | Sequence[str]) -> httpx.Response:
        """Post a form as a browser does, with the CSRF token of `page`."""
        shown = await self.http.get(page)
        data = {"csrf": self.form_token(shown.text), **fields}
        return await self.http.post(path, data=data, headers={"sec-fetch-site": "same-origin", "origin": ORIGIN})


@asynccontextmanager
async def visitor(
    role: str | None = "operator",
    public_url: str = ORIGIN,
    secure: bool | None = None,
    links: LinkPatterns = NO_LINKS,
    clusters: ClusterSettings = NO_CLUSTERS,
) -> AsyncIterator[Visitor]:
    """Yield a client with the session of `role`; without a session if `role` is None."""
    fake = FakePublicApi(World(now=NOW), clock=lambda: NOW)
    app = create_web_app(httpx.ASGITransport(fake.app), "http://api", public_url, secure, clock=lambda: NOW, links=links, clusters=clusters)
    settings = web_settings(public_url, secure)
    cookies = {settings.cookie_name(urlsplit(settings.public_url).netloc): f"{role}-token"} if role else {}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=web_settings(public_url, False).origin, cookies=cookies
    ) as http:
        yield Visitor(http=http, fake=fake, token=f"{role}-token")
