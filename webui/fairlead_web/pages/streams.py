"""`/live`: the control API's events, with what the page reads of them, and between them the parts of the page they
changed, each rendered once for all who look at the same.
"""

import asyncio
import hashlib
import logging
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from starlette.responses import Response, StreamingResponse

from fairlead_client.problems import ApiProblem, ClientError
from fairlead_web.live_events import EventCutter, Reads, reads_of, slimmed, value_of
from fairlead_web.visits import REGIONS_MOST, Visit

log = logging.getLogger(__name__)
TOPICS = frozenset({"pools", "instances", "migrations", "reroutes", "decisions", "rejections"})
FIRST_EVENT_SECONDS = 0.25
STATE = frozenset({"pools", "instances"})
OF_STATE = frozenset({"state", "membership", "tick"})
"""What a change of pools or instances concerns: every part that shows the page's state, so that all change together."""
TICK_SECONDS = 10.0
"""What no event tells of (ages, a stale database, the time the page is of) is at most this old."""
GAP_SECONDS, MOST_GAP_SECONDS = 0.9, 1.5
"""Least time between two renderings for one page, and where they take long, as with many people looking."""
RESTS = 3.0
"""The time between two renderings is at least so many times what the former took, up to the most."""
KNOWN_SECONDS = 30.0
"""Whose session ended is told apart after at most this long."""
_AGES = re.compile(rb"<time.*?</time>", re.DOTALL)

Render = Callable[[Visit, str, tuple[str, ...], str], Awaitable[bytes | None]]
"""Renders parts of the page at an address: visit, address, ids, and a stamp; who has the same stamp shares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The page a stream is for: its address below the base path, and for each part the topics that change it."""

    address: str
    parts: dict[str, frozenset[str]]

    def concerned(self, topics: Iterable[str]) -> set[str]:
        """The parts that a change of these topics concerns."""
        wanted = set(topics)
        wanted |= OF_STATE if wanted & STATE else set()
        return {name for name, mine in self.parts.items() if mine & wanted}


def watched(visit: Visit) -> Watched | None:
    """What the browser wants kept current, by its headers `Fairlead-Page: /pools?q=x` and
    `Fairlead-Parts: results=state,tick`.
    """
    address, told = visit.request.headers.get("fairlead-page", ""), visit.request.headers.get("fairlead-parts", "")
    parts = {name: frozenset(topics.split(",")) for name, _, topics in (one.partition("=") for one in told.split()[:REGIONS_MOST])}
    return Watched(address=address, parts=parts) if address.startswith("/") and parts else None


async def live(visit: Visit, render: Render) -> Response:
    """The tab's one event stream.

    Topics that do not exist are left out; the API limits streams per session and then says `poll`.
    """
    topics = [topic for topic in (visit.param("topics") or "").split(",") if topic in TOPICS]
    query = {"topics": ",".join(topics) or "pools", "pool": visit.param("pool")}
    named = replace(visit, identity=await visit.api.whoami())
    chunks = visit.api.live_bytes(query, last_event_id=visit.request.headers.get("last-event-id"))
    first: asyncio.Task[bytes] = asyncio.ensure_future(_next(chunks))
    # A refusal comes at once and becomes a proper answer; a stream that is merely quiet must still open.
    await asyncio.wait({first}, timeout=FIRST_EVENT_SECONDS)
    if first.done():
        first.result()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    reads = reads_of(visit.request.headers.get("fairlead-reads"))
    body = PageStream(named, watched(visit), render, reads).events(first, chunks)
    if "gzip" in visit.request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = _packed(body)
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


class PageStream:
    """One tab's stream: the API's events, and messages with the parts of the page that changed."""

    def __init__(
        self,
        visit: Visit,
        page: Watched | None,
        render: Render,
        reads: Reads | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._visit = visit
        self._page = page
        self._render = render
        self._reads = reads
        self._monotonic = monotonic
        self._events = EventCutter()
        self._due: set[str] = set()
        self._stamp = ""
        self._sent: dict[tuple[str, ...], bytes] = {}
        self._rendered_at = -GAP_SECONDS
        self._gap = GAP_SECONDS
        self._known_at = monotonic()

    async def events(self, first: "asyncio.Task[bytes]", chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The stream; when its source breaks it just ends, and the browser connects again after its backoff."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(64)
        pump = asyncio.create_task(_pump(first, chunks, queue))
        tick_at = self._next_tick()
        try:
            yield b": open\n\n"
            while True:
                now = self._monotonic()
                wake = min(tick_at, self._rendered_at + self._gap) if self._due else tick_at
                try:
                    chunk = await asyncio.wait_for(queue.get(), max(0.0, wake - now))
                except TimeoutError:
                    chunk = b""
                if chunk is None:
                    return
                for event in self._events.feed(chunk):
                    self._hear(event)
                    yield slimmed(event, self._reads)
                now = self._monotonic()
                if now >= tick_at:
                    tick_at = self._next_tick()
                    self._stamp = f"tick {int(self._visit.site.clock().timestamp() / TICK_SECONDS)}"
                    self._due |= self._page.concerned({"tick"}) if self._page else set()
                if self._due and now - self._rendered_at >= self._gap:
                    self._rendered_at = now
                    message = await self._changed()
                    self._gap = gap_after(self._monotonic() - now)
                    if message:
                        yield message
        except ClientError as error:
            log.info("live stream ended", extra={"error": str(error)})
        finally:
            pump.cancel()
            first.cancel()

    def _hear(self, event: bytes) -> None:
        """Take in what the API says: which topic changed, and the id of its look."""
        topic, stamp = value_of(event, b"event"), value_of(event, b"id")
        if topic and self._page is not None:
            self._due |= self._page.concerned({topic})
        self._stamp = stamp or self._stamp

    async def _changed(self) -> bytes | None:
        """A message with the parts that are due, rendered from one read; None if they are as they were sent last."""
        assert self._page is not None
        names = tuple(name for name in self._page.parts if name in self._due)
        self._due.clear()
        try:
            if self._monotonic() - self._known_at >= KNOWN_SECONDS:
                self._visit = replace(self._visit, identity=await self._visit.api.whoami())
                self._known_at = self._monotonic()
            html = await self._render(self._visit, self._page.address, names, self._stamp)
        except ApiProblem as error:
            if error.problem.status == 401:
                raise
            return None
        except ClientError:
            return None  # the page says so by itself when nothing comes
        if html is None:
            return None
        digest = hashlib.blake2b(_AGES.sub(b"", html), digest_size=16).digest()
        ticked = self._stamp.startswith("tick")
        if self._sent.get(names) == digest and not ticked:
            return None
        self._sent[names] = digest
        return b"".join(b"data: %s\n" % line for line in html.splitlines()) + b"\n"

    def _next_tick(self) -> float:
        """Ticks of all tabs come together, so that they share what is rendered."""
        return self._monotonic() + TICK_SECONDS - self._visit.site.clock().timestamp() % TICK_SECONDS


def gap_after(seconds: float) -> float:
    """The least time from the begin of a rendering that took so long to the next, in seconds."""
    return min(MOST_GAP_SECONDS, max(GAP_SECONDS, RESTS * seconds))


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks, b"")


async def _pump(first: "asyncio.Task[bytes]", chunks: AsyncIterator[bytes], queue: "asyncio.Queue[bytes | None]") -> None:
    try:
        await queue.put(await first)
        async for chunk in chunks:
            await queue.put(chunk)
    except ClientError as error:
        log.info("live stream ended", extra={"error": str(error)})
    await queue.put(None)


async def _packed(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream as gzip, each piece complete: parts of a page repeat what was sent before."""
    packer = zlib.compressobj(5, zlib.DEFLATED, 31)
    async for piece in body:
        yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
