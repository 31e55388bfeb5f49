"""`/live`: the control API's event stream, passed on as it comes, under the visitor's own rights."""

import asyncio
import logging
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from fairlead_client.problems import ClientError
from fairlead_web.routes import Routes
from fairlead_web.visits import Visit

log = logging.getLogger(__name__)
TOPICS = frozenset({"pools", "instances", "migrations", "reroutes", "decisions", "rejections"})
FIRST_EVENT_SECONDS = 0.25


async def live(visit: Visit) -> Response:
    """The tab's one event stream.

    Topics that do not exist are left out; the API limits streams per session and then says `poll`.
    """
    topics = [topic for topic in (visit.param("topics") or "").split(",") if topic in TOPICS]
    query = {"topics": ",".join(topics) or "pools", "pool": visit.param("pool")}
    chunks = visit.api.live_bytes(query, last_event_id=visit.request.headers.get("last-event-id"))
    first: asyncio.Task[bytes] = asyncio.ensure_future(_next(chunks))
    # A refusal comes at once and becomes a proper answer; a stream that is merely quiet must still open.
    await asyncio.wait({first}, timeout=FIRST_EVENT_SECONDS)
    if first.done():
        first.result()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(first, chunks), media_type="text/event-stream", headers=headers)


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks, b"")


async def _events(first: asyncio.Task[bytes], chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream; when its source breaks it just ends, and the browser connects again after its backoff."""
    try:
        yield b": open\n\n"
        yield await first
        async for chunk in chunks:
            yield chunk
    except ClientError as error:
        log.info("live stream ended", extra={"error": str(error)})
    finally:
        first.cancel()


ROUTES = Routes(pages={"/live": live})
