"""Fifty people who watch pages: real HTTP clients with a session each, in a process of their own.

Each opens a page, holds its event stream as `live.js` does, requests its charts and small pictures repeatedly as
`charts.js` and `main.js` do, loads its heatmap, and goes to the next page after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from multiprocessing import get_context
from multiprocessing.connection import Connection

import httpx
from benchmarks.web_budgets.answering import HEATMAP, POOL
from benchmarks.web_budgets.budgets import Line, percentile

from fairlead_testing.running.browser_site import session_cookie

STAY_SECONDS = 25.0
CHART_SECONDS, PICTURE_SECONDS, HEATMAP_SECONDS = 10.0, 15.0, 60.0
"""Seconds between two requests of an open page: for charts, for pictures, and for heatmaps."""
VIEWER_KB = 8.0
WATCHED = (
    *("/", "/", "/", "/", f"/pools/{POOL}", f"/pools/{POOL}", f"/pools/{POOL}", f"/pools/{POOL}/heatmap", HEATMAP, "/migrations"),
    *("/decisions", "/sessions", f"/pools/{POOL}/instances", f"/pools/{POOL}/instances/{{instance}}", "/rejections"),
)
"""The paths of the pages that people watch. A path that is watched more often occurs more often: nearly three of ten
people watch the overview, and two watch the pool.
"""


@dataclass(slots=True)
class Watching:
    """The viewers' figures for a kind of page: milliseconds to first bytes, bytes of streams, bytes of repeated
    requests, and the seconds for which pages were open.
    """

    first_bytes: list[float] = field(default_factory=list)
    streamed: int = 0
    asked: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Watched:
    """The viewers' figures by path. `failures` lists unsuccessful answers and streams that ended."""

    pages: dict[str, Watching] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        first = [one for page in self.pages.values() for one in page.first_bytes]
        if first:
            yield Line(what="TTFB as the viewers had it", figure=percentile(first, 0.95), unit="ms", told=f"p95 of {len(first)}")
        opened = {path: page for path, page in self.pages.items() if page.seconds}
        for path, page in sorted(opened.items(), key=lambda item: -(item[1].streamed / item[1].seconds)):
            told = f"and {page.asked / page.seconds / 1000:.1f} KB/s for charts and pictures"
            yield Line(
                what=f"stream of {path}, a viewer",
                figure=page.streamed / page.seconds / 1000,
                unit="KB/s",
                most=VIEWER_KB,
                told=told if page.asked else "",
            )
        yield Line(
            what="failures that viewers saw", figure=len(self.failures), unit="", most=0, told="; ".join(sorted(set(self.failures))[:3])
        )


@contextmanager
def watching(url: str, sessions: list[str], seen: Watched) -> Iterator[None]:
    """Let the viewers watch until the block ends; `seen` has their figures afterwards."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(url, sessions, there), daemon=True)
    process.start()
    there.close()  # so that its end is noticed here
    here.recv()  # each has its stream
    try:
        yield
    finally:
        here.send(None)
        found: Watched = here.recv()
        seen.pages, seen.failures = found.pages, found.failures
        process.join(30)
        if process.is_alive():
            process.kill()


def _run(url: str, sessions: list[str], control: Connection) -> None:
    asyncio.run(_watch(url, sessions, control))


async def _watch(url: str, sessions: list[str], control: Connection) -> None:
    seen = Watched()
    opened = [asyncio.Event() for _ in sessions]
    people = [asyncio.create_task(_Viewer(url, session, number, seen).watch(opened[number])) for number, session in enumerate(sessions)]
    try:
        await asyncio.wait_for(asyncio.gather(*(one.wait() for one in opened)), 120)
    finally:
        control.send(None)
    await asyncio.get_running_loop().run_in_executor(None, control.recv)
    for one in people:
        one.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    control.send(seen)


class _Viewer:
    def __init__(self, url: str, session: str, number: int, seen: Watched) -> None:
        self._url, self._session, self._number, self._seen = url, session, number, seen

    async def watch(self, opened: asyncio.Event) -> None:
        headers = {"accept-encoding": "gzip"}
        cookies = {session_cookie(self._url): self._session}
        await asyncio.sleep(self._number * 0.2)  # nobody comes at the same moment
        async with httpx.AsyncClient(base_url=self._url, cookies=cookies, headers=headers, timeout=60, trust_env=False) as self._http:
            for step in itertools.count():
                path = WATCHED[(self._number + 7 * step) % len(WATCHED)]
                seen = self._seen.pages.setdefault(path, Watching())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STAY_SECONDS * (0.5 + (self._number * 37 % 50) / 50 if step == 0 else 1.0)):
                        await self._stay(path.format(instance=f"i{1 + self._number}"), seen, opened)

    async def _stay(self, path: str, seen: Watching, opened: asyncio.Event) -> None:
        begun = time.perf_counter()
        try:
            async with self._http.stream("GET", path) as answer:
                seen.first_bytes.append((time.perf_counter() - begun) * 1000)
                page = _Page((await answer.aread()).decode())
                answer.raise_for_status()
        except httpx.HTTPError as error:
            self._seen.failures.append(f"{path}: {type(error).__name__}")
            await asyncio.sleep(1)  # and then to the next page: a server that is down is not to be flooded
            return
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as work:
                work.create_task(self._again(page.charts, CHART_SECONDS, seen))
                work.create_task(self._again(page.pictures, PICTURE_SECONDS, seen, tick=True))
                work.create_task(self._again(page.heatmaps, HEATMAP_SECONDS, seen))
                work.create_task(self._hold(path, page, seen, opened))
        finally:
            seen.seconds += time.monotonic() - began

    async def _hold(self, path: str, page: _Page, seen: Watching, opened: asyncio.Event) -> None:
        headers = {
            "accept": "text/event-stream",
            "fairlead-page": path,
            "fairlead-parts": " ".join(f"{name}={topics.replace(' ', ',')}" for name, topics in page.parts.items()),
            "fairlead-reads": " ".join(page.reads) or "nothing",
        }
        while True:
            try:
                async with self._http.stream("GET", page.stream, headers=headers) as stream:
                    stream.raise_for_status()
                    async for piece in stream.aiter_raw():
                        seen.streamed += len(piece)
                        opened.set()
                self._seen.failures.append(f"the stream of {path} ended")
            except httpx.HTTPError as error:
                self._seen.failures.append(f"stream of {path}: {type(error).__name__}")
            await asyncio.sleep(1)

    async def _again(self, addresses: list[str], seconds: float, seen: Watching, *, tick: bool = False) -> None:
        while addresses:
            for address in addresses:
                asked = f"{address}{'&' if '?' in address else '?'}tick={int(time.time())}" if tick else address
                try:
                    async with self._http.stream("GET", asked) as answer:
                        answer.raise_for_status()
                        seen.asked += sum([len(piece) async for piece in answer.aiter_raw()])
                except httpx.HTTPError as error:
                    self._seen.failures.append(f"{address.partition('?')[0]}: {type(error).__name__}")
            await asyncio.sleep(seconds)


class _Page(HTMLParser):
    """The parts of a page that its scripts would find in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stream = ""
        self.parts: dict[str, str] = {}
        self.pictures: list[str] = []
        self.heatmaps: list[str] = []
        self.reads: list[str] = []
        self._charts: dict[str, list[str]] = {}
        self.feed(html)

    @property
    def charts(self) -> list[str]:
        """Return a request for each address of charts, with all their metrics."""
        return [f"{source}&metrics={','.join(metrics)}&buckets=180" for source, metrics in self._charts.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "data-live-stream" in found:
            self.stream = found["hx-sse:connect"]
        if "data-live-refresh" in found:
            self.parts[found["id"]] = found["data-live-refresh"]
        if "data-chart" in found:
            known = self._charts.setdefault(found["data-src"], [])
            known += [metric for metric in found["data-metrics"].split() if metric not in known]
        if "data-minimap" in found:
            self.pictures.append(found["src"])
        if "data-live-reads" in found:
            self.reads += found["data-live-reads"].split()
        if "data-heatmap" in found:
            self.heatmaps.append(found["data-src"])
