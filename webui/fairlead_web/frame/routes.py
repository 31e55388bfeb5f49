"""Declares the routes of a page module: its pages, its forms, and its lists as files. `app` adds these routes to the
site.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.responses import Response, StreamingResponse

from fairlead_web.frame.exports import harmless_csv
from fairlead_web.frame.visits import Visit
from fairlead_web.text.addresses import pool_path

Handler = Callable[[Visit], Awaitable[Response]]
POOL = "/pools/{namespace}/{name}"
"""Path prefix of the pages of one pool; `Visit.pool_key` reads the pool from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A list as a file named `name`.

    The control API serves the list at `/v1/<name>`, or with `of_pool`, below the pool of the page's path.

    `filters` are the query parameters that are passed on. With `ranged`, the time range is passed on too.
    """

    name: str
    filters: tuple[str, ...] = ()
    ranged: bool = False
    of_pool: bool = False

    def handler(self, kind: str) -> Handler:
        """Return a handler that streams the whole filtered list in the format `kind`, `csv` or `json`."""

        async def handle(visit: Visit) -> Response:
            query = visit.filters(*self.filters, ranged=self.ranged)
            del query["limit"], query["cursor"]
            chunks = visit.api.export(f"{self._source(visit)}.{kind}", query)
            # The first chunk is awaited here, so that a refusal becomes a proper error answer and
            # not a broken download.
            body = _rest(await anext(chunks, b""), chunks)
            if kind == "json":
                return StreamingResponse(body, media_type="application/json")
            headers = {"Content-Disposition": f'attachment; filename="{self.name.replace("/", "-")}.csv"'}
            return StreamingResponse(harmless_csv(body), media_type="text/csv; charset=utf-8", headers=headers)

        return handle

    def _source(self, visit: Visit) -> str:
        return f"/v1{pool_path(str(visit.pool_key())) if self.of_pool else ''}/{self.name}"


async def _rest(first: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in chunks:
        yield chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The routes of a page module, with paths below the base path.

    `pages` respond to GET, `writes` take submitted forms, and `exports` serve `.csv` and `.json` below their path.
    """

    pages: Mapping[str, Handler] = field(default_factory=dict)
    writes: Mapping[str, Handler] = field(default_factory=dict)
    exports: Mapping[str, Export] = field(default_factory=dict)
