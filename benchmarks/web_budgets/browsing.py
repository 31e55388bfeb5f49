"""Measurements of pages in Chromium: their weight, the time to draw a heatmap, and the tasks and heap of open pages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.web_budgets.answering import HEATMAP, POOL
from benchmarks.web_budgets.budgets import Line, percentile, say, slope
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from fairlead_testing.running.browser_site import CHROMIUM, CHROMIUM_ARGUMENTS, session_cookie, wait_until

WEIGHT_KB, WEIGHT_WITH_CHARTS_KB = 60.0, 90.0
DATA_KB = 160.0
SMALL = f"/pools/{POOL}/heatmap?from=now-2m&to=now&columns=120"
PAINT_MS, TASK_MS, NODES, LARGEST_PAINT_MS = 500.0, 50.0, 2500.0, 1000.0
HEAP_MB = 5.0
PAINTS = 5
SETTLE_SECONDS = 8.0
HEAP_SECONDS = 10.0
LEAST_HEAPS = 3
"""The least number of measurements from which a slope and its range can be computed."""
SETTLED_SECONDS = 300.0
"""Minimum age of a page in seconds for a reliable growth of its heap. Until then its caches fill, and this growth does
not last.
"""
LIVE_PAGES = {"overview": "/", "pool": f"/pools/{POOL}", "the largest heatmap": HEATMAP}
OF_PAGE = frozenset({"Document", "Stylesheet", "Script"})

WATCH = """
window.seen = { tasks: [], largest: 0, painted: 0, said: [] };
new PerformanceObserver((list) => { for (const one of list.getEntries()) seen.tasks.push([one.startTime, one.duration]); })
  .observe({ type: "longtask", buffered: true });
new PerformanceObserver((list) => { for (const one of list.getEntries()) seen.largest = one.startTime; })
  .observe({ type: "largest-contentful-paint", buffered: true });
new MutationObserver((changes, observer) => {
  if (!document.querySelector("[data-heatmap][data-ready=yes]")) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { seen.painted = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });
"""
CELLS = "() => { const { map } = document.querySelector('[data-heatmap]').heat; return `${map.rows.length} × ${map.columns}`; }"
DATA_AT = "() => performance.getEntriesByType('resource').find((one) => one.name.includes('heatmap.bin'))?.responseEnd ?? 0"


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()


def person(browser: Browser, url: str, session: str) -> BrowserContext:
    """Return a browser context of its own that has an empty cache and is signed in."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    context.add_cookies([{"name": session_cookie(url), "value": session, "url": url}])
    context.add_init_script(WATCH)
    return context


def first_visits(browser: Browser, url: str, session: str, paths: Mapping[str, str]) -> Iterator[Line]:
    """Yield the weight of each page on a first visit: the bytes of HTML, style sheets and scripts on the wire (with
    headers), the number of nodes, and the time of the largest paint.
    """
    nodes: dict[str, int] = {}
    paints: dict[str, float] = {}
    weights: dict[str, tuple[float, bool]] = {}
    for name, path in paths.items():
        context = person(browser, url, session)
        page = context.new_page()
        sizes = _sizes(page)
        page.goto(url + path)
        wait_until(page, "document.documentElement.classList.contains('scripted')")
        charts = page.locator("[data-chart]")
        if charts.count():
            charts.first.scroll_into_view_if_needed()
            page.wait_for_selector("[data-chart][data-ready]")
        page.wait_for_timeout(300)
        weights[name] = (sum(size for kind, size in sizes.values() if kind in OF_PAGE) / 1000, charts.count() > 0)
        nodes[name] = page.evaluate("document.querySelectorAll('*').length")
        paints[name] = page.evaluate("seen.largest")
        context.close()
    for drawn, most, words in ((True, WEIGHT_WITH_CHARTS_KB, "with charts"), (False, WEIGHT_KB, "without charts")):
        found = {name: size for name, (size, charted) in weights.items() if charted is drawn}
        heaviest = max(found, key=lambda name: found[name])
        over = "".join(f"; {name} {size:.1f} KB" for name, size in found.items() if size > most and name != heaviest)
        told = f"{heaviest}, the heaviest of {len(found)}{over}; the lightest {min(found.values()):.1f} KB"
        yield Line(what=f"weight of a first visit {words}", figure=found[heaviest], unit="KB", most=most, told=told)
    most_nodes, slowest = max(nodes, key=lambda name: nodes[name]), max(paints, key=lambda name: paints[name])
    yield Line(what="nodes of a page", figure=nodes[most_nodes], unit="", most=NODES, told=f"{most_nodes}, the largest of {len(nodes)}")
    largest = percentile(list(paints.values()), 0.95)
    told = f"p95 of {len(paints)} pages, with an empty cache; the slowest {slowest} {paints[slowest]:.0f} ms"
    yield Line(what="largest contentful paint", figure=largest, unit="ms", most=LARGEST_PAINT_MS, told=told)


def heatmaps(browser: Browser, url: str, session: str) -> Iterator[Line]:
    """Yield the time from the last byte of the cells to the second frame after they are drawn, the longest task, and
    sizes.
    """
    context = person(browser, url, session)
    drawn: list[float] = []
    whole: list[float] = []
    tasks: list[float] = []
    size = small = 0.0
    cells = ""
    for _ in range(PAINTS):
        page = context.new_page()
        sizes = _sizes(page)
        page.goto(url + HEATMAP)
        wait_until(page, "seen.painted > 0")
        painted, data = page.evaluate("seen.painted"), page.evaluate(DATA_AT)
        drawn.append(painted - data)
        whole.append(painted)
        tasks += [long for at, long in page.evaluate("seen.tasks") if at + long >= data]
        size = max(one for address, (_, one) in sizes.items() if "heatmap.bin" in address) / 1000
        cells = page.evaluate(CELLS)
        page.close()
    page = context.new_page()
    sizes = _sizes(page)
    page.goto(url + SMALL)
    wait_until(page, "seen.painted > 0")
    small = max(one for address, (_, one) in sizes.items() if "heatmap.bin" in address) / 1000
    few = page.evaluate(CELLS)
    context.close()
    told = f"slowest of {PAINTS}, median {percentile(drawn, 0.5):.0f} ms; from the click {percentile(whole, 0.5):.0f} ms"
    yield Line(what=f"heatmap of {cells} painted after its data", figure=max(drawn), unit="ms", most=PAINT_MS, told=told)
    yield Line(what="longest task while it is drawn", figure=max(tasks, default=0.0), unit="ms", most=TASK_MS, told="0: none over 50 ms")
    yield Line(what=f"data of a heatmap of {cells}, nothing but noise", figure=size, unit="KB", most=DATA_KB)
    yield Line(what=f"data of a heatmap of {few}", figure=small, unit="KB")


def live(browser: Browser, url: str, session: str, minutes: float) -> Iterator[Line]:
    """Yield the figures of three pages that stay open."""
    context = person(browser, url, session)
    open_pages = {name: _open(context, url + path) for name, path in LIVE_PAGES.items()}
    time.sleep(SETTLE_SECONDS)
    watched = {name: _Live(page) for name, page in open_pages.items()}
    begun = time.monotonic()
    while True:
        for one in watched.values():
            one.measure()
        gone = time.monotonic() - begun
        say(f"  {gone:4.0f} s: " + ", ".join(f"{name} {one.heap[-1][1]:.2f} MB" for name, one in watched.items()))
        if gone >= minutes * 60 and all(len(one.heap) >= LEAST_HEAPS for one in watched.values()):
            break
        open_pages["overview"].wait_for_timeout(min(HEAP_SECONDS, max(1.0, minutes * 6)) * 1000)
    for name, one in watched.items():
        yield from one.lines(name)
    context.close()


class _Live:
    """A page that stays open: the size of its heap after each garbage collection, and its tasks. The tasks of the
    garbage collections themselves are left out.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("HeapProfiler.enable")
        self._from = page.evaluate("performance.now()")
        self._pauses: list[tuple[float, float]] = []
        self.heap: list[tuple[float, float]] = []

    def measure(self) -> None:
        before = self._page.evaluate("performance.now()")
        for _ in range(2):  # what the first frees may hold what the second can
            self._session.send("HeapProfiler.collectGarbage")
        used = self._session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        after = self._page.evaluate("performance.now()")
        self._pauses.append((before, after))
        self.heap.append((after / 3_600_000, used))

    def lines(self, name: str) -> Iterator[Line]:
        until = self._page.evaluate("performance.now()")
        tasks = [
            long
            for at, long in self._page.evaluate("seen.tasks")
            if at >= self._from and not any(at < end and at + long > start for start, end in self._pauses)
        ]
        seconds = (until - self._from) / 1000
        told = f"{len(tasks)} over 50 ms in {seconds:.0f} s" if tasks else f"none over 50 ms in {seconds:.0f} s"
        yield Line(what=f"longest task of {name}, live", figure=max(tasks, default=0.0), unit="ms", most=TASK_MS, told=told)
        grown, range_ = slope(self.heap)
        unsure = seconds < SETTLED_SECONDS or grown - range_ <= HEAP_MB < grown + range_
        told = f"± {range_:.1f}, of {len(self.heap)} measurements in {seconds / 60:.1f} min from {self.heap[0][1]:.1f} to {self.heap[-1][1]:.1f} MB"
        yield Line(what=f"heap of {name} grows", figure=grown, unit="MB/h", most=HEAP_MB, told=told, unsure=unsure)


def _open(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#live-pill[data-state=live]")
    return page


def _sizes(page: Page) -> dict[str, tuple[str, float]]:
    """Return a mapping from address to the resource's kind and its bytes on the wire with headers.

    The mapping grows while the page loads.
    """
    sizes: dict[str, tuple[str, float]] = {}
    asked: dict[str, tuple[str, str]] = {}
    session = page.context.new_cdp_session(page)

    def began(event: dict[str, Any]) -> None:
        asked[event["requestId"]] = (event["request"]["url"], event.get("type", "Other"))

    def ended(event: dict[str, Any]) -> None:
        address, kind = asked.get(event["requestId"], ("", ""))
        sizes[address] = (kind, event["encodedDataLength"])

    session.on("Network.requestWillBeSent", began)
    session.on("Network.loadingFinished", ended)
    session.send("Network.enable")
    return sizes
