"""`/live`: the stream of an open page. It has the control API's events, reduced to the fields that the page reads, and
the parts of the page that these events changed. Each part is rendered once for all tabs that show the same page.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from starlette.responses import Response, StreamingResponse

from fairlead_client.problems import ClientError
from fairlead_web.frame.visits import REGIONS_MOST, Visit, problem_of
from fairlead_web.live.paces import ticks
from fairlead_web.live.tab_messages import EventCutter, PartsSent, Reads, reads_of, slimmed, value_of

log = logging.getLogger(__name__)
TOPICS = frozenset({"pools", "instances", "migrations", "reroutes", "decisions", "rejections"})
FIRST_EVENT_SECONDS = 0.25
STATE = frozenset({"pools", "instances"})
OF_STATE = frozenset({"state", "membership"})
"""Topics of the page's parts that show the state of pools or instances. Whenever pools or instances change, all of
these parts are rendered, so that they change together. Parts that are only refreshed by ticks show no such state.
"""
KNOWN_SECONDS = 30.0
"""If the session was checked longer than this many seconds ago, it is checked again before parts are rendered."""

Render = Callable[[Visit, str, tuple[str, ...], str], Awaitable[bytes]]
"""A function that renders parts of the page at an address. Its arguments are the visit, the address, the ids of the
parts, and a stamp. Calls with the same stamp share the result. Raises ClientError, also if the page does not exist.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The page to which a tab's stream belongs: its address below the base path, and for each part of the page the
    topics whose events change it.
    """

    address: str
    parts: dict[str, frozenset[str]]

    def concerned(self, topics: Iterable[str]) -> set[str]:
        """Return the ids of the page's parts that show data of these topics."""
        wanted = set(topics)
        wanted |= OF_STATE if wanted & STATE else set()
        return {name for name, mine in self.parts.items() if mine & wanted}


def watched(visit: Visit) -> Watched | None:
    """Return the page and parts that the stream must keep current, from the request's headers `Fairlead-Page:
    /pools?q=x` and `Fairlead-Parts: results=state,tick`; None without these headers.
    """
    address, told = visit.request.headers.get("fairlead-page", ""), visit.request.headers.get("fairlead-parts", "")
    parts = {name: frozenset(topics.split(",")) for name, _, topics in (one.partition("=") for one in told.split()[:REGIONS_MOST])}
    return Watched(address=address, parts=parts) if address.startswith("/") and parts else None


async def live(visit: Visit, render: Render) -> Response:
    """Open the only event stream of a tab.

    Topics that do not exist are left out. If the session has too many streams, the API sends one event `poll`.
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
    """The stream of one tab: the API's events, and messages with those parts of the page that have changed."""

    def __init__(
        self,
        visit: Visit,
        page: Watched | None,
        render: Render,
        reads: Reads | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._visit = visit
        self._page = page or Watched(address="", parts={})
        self._render = render
        self._reads = reads
        self._monotonic = monotonic
        self._events = EventCutter()
        self._pace = visit.site.paces.of((self._page.address, tuple(self._page.parts.items()), visit.rights))
        self._ticks = ticks(self._page.address)
        self._wanted = 0
        self._due: set[str] = set()
        self._ticked = False
        self._held = b""
        self._sent = PartsSent()
        self._refused = False
        self._known_at = monotonic()

    async def events(self, first: "asyncio.Task[bytes]", chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the stream. It ends when the stream of the API ends or breaks; the browser reconnects after a pause."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(64)
        pump = asyncio.create_task(_pump(first, chunks, queue))
        number, rest = self._tick()
        tick_at = self._monotonic() + rest
        try:
            yield b"event: release\ndata: %s\n\n" % self._visit.site.assets.version.encode()
            while True:
                try:
                    chunk = await asyncio.wait_for(queue.get(), max(0.0, min(tick_at, self._due_at()) - self._monotonic()))
                except TimeoutError:
                    chunk = b""
                if chunk is None:
                    return
                if told := b"".join([self._hear(event) for event in self._events.feed(chunk)]):
                    yield told
                if (now := self._monotonic()) >= tick_at:
                    number, rest = self._tick()
                    tick_at = now + rest
                    self._ticked = True
                    self._want(("tick", number), self._page.concerned({"tick"}))
                if now >= self._due_at() and (message := self._released() + await self._changed()):
                    yield message
        except ClientError as error:
            log.info("live stream ended", extra={"error": str(error)})
        finally:
            pump.cancel()
            first.cancel()

    def _hear(self, event: bytes) -> bytes:
        """Return the bytes to send to the tab at once because of an event. If the event changes parts of the page but
        the page reads no field of it, the result is empty. Such an event is sent later, together with the changed
        parts, to save a message.
        """
        topic, stamp = value_of(event, b"event"), value_of(event, b"id")
        concerned = self._page.concerned({topic}) if topic else set()
        slim = slimmed(event, self._reads)
        if concerned:
            self._want((topic, stamp or object()), concerned)
            if self._reads is not None and not self._reads.get(topic):
                self._held += slim
                return b""
        return self._released() + slim

    def _released(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _want(self, event: tuple[object, ...], parts: set[str]) -> None:
        if parts:
            self._wanted = max(self._wanted, self._pace.hear(event, parts))
            self._due |= parts

    def _due_at(self) -> float:
        """Return the time from which the parts that this tab waits for may be rendered; infinity if it waits
        for none.
        """
        if not self._wanted:
            return float("inf")
        return self._pace.next_at if self._wanted > self._pace.round else 0.0

    async def _changed(self) -> bytes:
        """Return a message with the parts that have changed since they were last sent to this tab; empty if none have.

        If the parts cannot be rendered, the message is `refused` with the status, because a page that no longer changes
        must not be shown as live.
        """
        begun, leads, ticked = self._monotonic(), self._wanted > self._pace.round, self._ticked
        if leads:
            self._pace.begin(begun)
        names = tuple(name for name in self._page.parts if name in self._pace.names or name in self._due)
        self._wanted, self._due, self._ticked = 0, set(), False
        try:
            if begun - self._known_at >= KNOWN_SECONDS:
                self._visit = replace(self._visit, identity=await self._visit.api.whoami())
                self._known_at = begun
            html = await self._render(self._visit, self._page.address, names, f"round {self._pace.round}")
        except ClientError as error:
            status = problem_of(error).status
            if status == 401:
                raise
            self._refused = True
            self._due |= set(names)  # they come with the next event, whatever that concerns
            return b"event: refused\ndata: %d\n\n" % status
        finally:
            if leads:
                self._pace.took(self._monotonic() - begun)
        whole, self._refused = ticked or self._refused, False
        return self._sent.message(html, whole=whole)

    def _tick(self) -> tuple[int, float]:
        return self._ticks(self._visit.site.clock().timestamp())


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
    """Compress the stream with gzip. Each piece can be decompressed when it arrives. This saves much, because parts of
    a page repeat earlier content.
    """
    packer = zlib.compressobj(5, zlib.DEFLATED, 31)
    async for piece in body:
        yield packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
