"""Runs the web UI in a real server over the fake public API, and makes browser contexts for it."""

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from unittest.mock import patch
from urllib.parse import urlsplit

import httpx
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page

from fairlead_client.client import ControlApi
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.world import World
from fairlead_testing.running.compiled_templates import compile_templates_once
from fairlead_testing.running.sandbox import RunningSandbox
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_web.app import create_web_app
from fairlead_web.frame.settings import web_settings
from fairlead_web.live.clusters import NO_CLUSTERS, ClusterAddress, Clusters, ClusterSettings
from processkube.testing.ports import free_port

compile_templates_once()

CHROMIUM = Path("/usr/bin/chromium")
HEADLESS_CHROMIUM = Path(shutil.which("chromium-headless-shell") or CHROMIUM)
"""Chromium without windows if it is installed, otherwise the full Chromium.

It has the same engine, but needs half of the processor time, because the full Chromium also renders a toolbar in each
window.
"""
AXE = Path(__file__).parents[3] / "e2e" / "web" / "vendor" / "axe.min.js"
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu")


class OpenPage(Protocol):
    """A page in any browser: Playwright's page or that of `fairlead_testing.running.firefox`."""

    def evaluate(self, expression: str, arg: Any = None) -> Any: ...

    def wait_for_timeout(self, timeout: float) -> None: ...


@dataclass(kw_only=True)
class RunningSite:
    """The web UI on its own port over the fake API. `push` sends a live event; the test's thread may call it."""

    url: str
    fake: FakePublicApi
    loop: asyncio.AbstractEventLoop

    def push(self, topic: str, items: Sequence[object]) -> None:
        self.loop.call_soon_threadsafe(self.fake.push, topic, items)

    def ask(self, path: str, **query: str | int) -> Any:
        """Return the decoded answer of the fake API to a GET by an admin."""

        async def got() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.fake.app), base_url="http://api") as client:
                return await client.get(path, params=query, headers={"authorization": "Bearer admin-token"})

        answer = asyncio.run_coroutine_threadsafe(got(), self.loop).result(PATIENCE_SECONDS)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()


@contextmanager
def running_site(base: str = "", clusters: bool = False) -> Iterator[RunningSite]:
    """Serve the web UI below the path `base` of a free port until the block ends.

    With `clusters`, its pages also show other clusters.
    """
    fake = FakePublicApi(World(now=datetime.now(UTC)))
    with other_clusters(fake) if clusters else nullcontext(NO_CLUSTERS) as others:
        yield from _served(fake, base, others)


def _served(fake: FakePublicApi, base: str, clusters: ClusterSettings) -> Iterator[RunningSite]:
    holder: dict[str, asyncio.AbstractEventLoop] = {}
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]  # the socket type is not exported
            await super().startup()
            holder["loop"] = asyncio.get_running_loop()
            ready.set()

    port = free_port()
    url = f"http://127.0.0.1:{port}{base}"
    app = create_web_app(httpx.ASGITransport(fake.app), "http://api", url, clusters=clusters)
    server = Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS), "the web UI did not start"
    try:
        yield RunningSite(url=url, fake=fake, loop=holder["loop"])
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def other_clusters(fake: FakePublicApi) -> Iterator[ClusterSettings]:
    """Yield settings with two other clusters, valid until the block ends: one is this API, the other has no token."""
    names = ("frankfurt-production-of-all-customers", "tokyo")
    found = tuple(ClusterAddress(name=one, url=f"https://{one}.example.com", api=f"https://{one}.example.com") for one in names)

    def connect(_: str) -> ControlApi:
        return ControlApi("http://api", transport=httpx.ASGITransport(fake.app))

    with TemporaryDirectory() as tokens, patch("fairlead_web.app.Clusters", partial(Clusters, connect=connect)):
        (Path(tokens) / names[0]).write_text("viewer-token")
        yield ClusterSettings(clusters=found, tokens_dir=tokens)


def session_cookie(url: str) -> str:
    """Return the name of the session cookie of the site at this URL."""
    return web_settings(url).cookie_name(urlsplit(url).netloc)


def signed_in(chromium: Browser, site: RunningSite, role: str = "operator", **options: object) -> BrowserContext:
    """Return a browser context with the session cookie of a person of this role.

    Options are passed to the context (viewport, java_script_enabled, …).
    """
    settings = {"viewport": {"width": 1280, "height": 900}, **options}
    context = chromium.new_context(**settings)  # type: ignore[arg-type]  # options vary by test
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    context.add_cookies([{"name": session_cookie(site.url), "value": f"{role}-token", "url": site.url}])
    return context


def sign_in(page: Page, sandbox: RunningSandbox, role: str = "admin") -> None:
    """Sign in at a running sandbox with a login link, as people do."""
    link = sandbox.request("POST", "/v1/login-links", json={"role": role}).json()
    page.goto(sandbox.url("api") + link["path"])
    page.locator("main form button").first.click()
    page.wait_for_url(f"{sandbox.url('api')}/")


def watch_troubles(page: Page, origin: str) -> list[str]:
    """Return a list that from now on collects console errors, script errors and requests to other origins."""
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
    page.on(
        "request", lambda request: None if request.url.startswith((origin, "data:", "blob:")) else troubles.append(f"left: {request.url}")
    )
    return troubles


def wait_until(page: OpenPage, expression: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll a JavaScript expression until it is true; raises AssertionError after `seconds`.

    Playwright's own wait evaluates a string inside the page, which the pages' content security policy forbids.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not true within {seconds} s: {expression}"
        page.wait_for_timeout(25)


def findings(page: Page, *rules: str) -> list[str]:
    """Return the violations that axe finds, of any impact, a line each; with `rules`, only violations of these
    rules.
    """
    page.evaluate(_axe())
    found = page.evaluate(
        """async (rules) => (await axe.run(document, {resultTypes: ['violations'], ...(rules.length && {runOnly: rules})})).violations
            .map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html + ' ' + node.failureSummary).join(' | ')}`)""",
        rules,
    )
    return [str(line) for line in found]


def findings_in_both_themes(page: Page) -> list[str]:
    """Return all violations in the light theme, and in the dark theme the violations that depend on colours.

    Afterwards the page has the light theme.
    """
    page.emulate_media(color_scheme="light")
    found = findings(page)
    page.emulate_media(color_scheme="dark")
    found += [f"in dark: {one}" for one in findings(page, "color-contrast", "link-in-text-block")]
    page.emulate_media(color_scheme="light")
    return found


CHARTS_FIT = "[...document.querySelectorAll('.uplot')].every((one) => one.offsetWidth <= Math.max(200, one.parentElement.clientWidth))"
"""Whether all charts are at most as wide as their containers. A chart is resized a moment after its window."""


def sticking_out(page: Page) -> list[str]:
    """Return the parts of the page that need sideways scrolling, a line each, on a phone and on 1280 by 900 pixels at
    400 %.
    """
    found = []
    for width, height in ((380, 800), (320, 225)):
        page.set_viewport_size({"width": width, "height": height})
        wait_until(page, CHARTS_FIT)
        needed = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{needed} px wide at {width}"] * (needed > width)
    return found


@cache
def _axe() -> str:
    return AXE.read_text()


def brush_heatmap(page: Page) -> None:
    """Select the right half of the first row of the page's heatmap by dragging with the Shift key held down."""
    page.wait_for_selector("[data-heatmap][data-ready]")
    box = page.locator(".heatmap-surface").bounding_box()
    assert box is not None
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 8, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
