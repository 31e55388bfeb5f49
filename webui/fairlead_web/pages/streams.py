"""`/live` and the `.json`/`.csv` twin of every list: the API's bytes, passed on as they come, under the visitor's own rights."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse

from fairlead_client.problems import ClientError
from fairlead_web.addresses import pool_path
from fairlead_web.exports import harmless_csv
from fairlead_web.visits import Visit

log = logging.getLogger(__name__)
TOPICS = frozenset({"pools", "instances", "migrations", "reroutes", "decisions", "rejections"})
FIRST_EVENT_SECONDS = 0.25


async def live(visit: Visit) -> Response:
    """The tab's one event stream. Topics that do not exist are left out; the API limits streams per session and then says `poll`."""
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
        log.info("live stream ended: %s", error)
    finally:
        first.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A list that can be taken home: the API's path for a visit, the file's name, the filters it knows, whether it has a time range."""

    api_path: Callable[[Visit], str]
    name: str
    filters: tuple[str, ...] = ()
    ranged: bool = False

    def handler(self, kind: str) -> Callable[[Visit], Awaitable[Response]]:
        """Streams the whole filtered list as `csv` or `json`."""

        async def handle(visit: Visit) -> Response:
            query = visit.filters(*self.filters, ranged=self.ranged)
            if kind == "csv":
                del query["limit"], query["cursor"]
            chunks = visit.api.export(f"{self.api_path(visit)}.{kind}", query)
            # The first chunk is awaited here, so that a refusal becomes a proper error answer and not a broken download.
            body = _rest(await anext(chunks, b""), chunks)
            if kind == "json":
                return StreamingResponse(body, media_type="application/json")
            headers = {"Content-Disposition": f'attachment; filename="{self.name}.csv"'}
            return StreamingResponse(harmless_csv(body), media_type="text/csv; charset=utf-8", headers=headers)

        return handle


async def _rest(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


def _below_pool(rest: str) -> Callable[[Visit], str]:
    return lambda visit: f"/v1{pool_path(str(visit.pool_key()))}{rest}"


MOVE_FILTERS = ("pool", "source", "target", "trigger", "outcome", "session", "paid_off")

EXPORTS: dict[str, Export] = {
    "/pools": Export(api_path=lambda _: "/v1/pools", name="pools"),
    "/pools/{namespace}/{name}/instances": Export(api_path=_below_pool("/instances"), name="instances"),
    "/pools/{namespace}/{name}/spec": Export(api_path=_below_pool("/revisions"), name="revisions"),
    "/pools/{namespace}/{name}/events": Export(api_path=_below_pool("/events"), name="events"),
    "/sessions": Export(api_path=lambda _: "/v1/sessions", name="sessions", filters=("pool", "instance", "q")),
    "/migrations": Export(api_path=lambda _: "/v1/migrations", name="migrations", filters=MOVE_FILTERS, ranged=True),
    "/reroutes": Export(api_path=lambda _: "/v1/reroutes", name="reroutes", filters=MOVE_FILTERS, ranged=True),
    "/decisions": Export(
        api_path=lambda _: "/v1/decisions", name="decisions", filters=("pool", "instance", "session", "reason"), ranged=True
    ),
    "/rejections": Export(api_path=lambda _: "/v1/rejections", name="rejections", filters=("pool",), ranged=True),
    "/audit": Export(api_path=lambda _: "/v1/audit", name="audit", filters=("actor", "action", "object"), ranged=True),
}
