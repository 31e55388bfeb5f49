"""The forms of answers: JSON, pages of lists, CSV and problem documents, and examples for paths without made-up
data.
"""

import csv
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairlead_client.resources.pages import Page
from fairlead_client.resources.problems import PlanConflict, Problem, SessionOfKey
from fairlead_testing.builders.wire_examples import example

Endpoint = Callable[[Request], Awaitable[Response]]
Source = Callable[[Request], Sequence[Any]]
"""A function that returns the items of a list that a request asks for, of all pages together."""


class Refusal(Exception):
    """An error because of which a request gets a problem document."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        kind: str = "about:blank",
        remedy: str | None = None,
        field: str | None = None,
        value: str | None = None,
        conflict: PlanConflict | None = None,
        sessions: list[SessionOfKey] | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=kind,
            title=title,
            status=status,
            detail=detail,
            request_id="r-fake",
            remedy=remedy,
            field=field,
            value=value,
            conflict=conflict,
            sessions=sessions,
        )

    def answer(self) -> Response:
        return Response(msgspec.json.encode(self.problem), self.problem.status, media_type="application/problem+json")


def as_json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def list_routes(path: str, source: Source, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
    """Return the routes of a list in its three forms: a page of it at `path`, the whole list at `path`.json and
    `path`.csv.
    """
    return [
        Route(path, guard(_paged(source)), methods=["GET"]),
        Route(f"{path}.json", guard(_whole(source)), methods=["GET"]),
        Route(f"{path}.csv", guard(_csv(source)), methods=["GET"]),
    ]


def document_routes(path: str, endpoint: Endpoint, member: str, guard: Callable[[Endpoint], Endpoint]) -> list[Route]:
    """Return the routes of a document in its three forms: JSON at `path` and `path`.json, the rows of its `member` at
    `path`.csv.
    """

    async def table(request: Request) -> Response:
        rows = json.loads(bytes((await endpoint(request)).body))[member]
        buffer = io.StringIO()
        csv.writer(buffer).writerows([list(rows[0]) if rows else [], *([_text(cell) for cell in row.values()] for row in rows)])
        return Response(buffer.getvalue(), media_type="text/csv")

    made = {path: endpoint, f"{path}.json": endpoint, f"{path}.csv": table}
    return [Route(each, guard(one), methods=["GET"]) for each, one in made.items()]


def one_of(source: Callable[[], Sequence[Any]]) -> Endpoint:
    """Return an endpoint that answers the item whose id the path names, or 404."""

    async def handle(request: Request) -> Response:
        wanted = request.path_params["id"]
        found = next((item for item in source() if str(item.id) == wanted), None)
        if found is None:
            raise Refusal(404, "Not found", f"There is no {request.url.path.split('/')[2].rstrip('s')} {wanted}.")
        return as_json(found)

    return handle


def example_of(kind: Any) -> Endpoint:
    """Return an endpoint that answers an example of the type `kind`, so that a new page can be opened before it has
    data.
    """

    async def handle(_: Request) -> Response:
        return as_json(example(kind))

    return handle


def _paged(source: Source) -> Endpoint:
    async def handle(request: Request) -> Response:
        items = source(request)
        first, limit = int(request.query_params.get("cursor", 0)), int(request.query_params.get("limit", 50))
        shown = list(items[first : first + limit])
        following = first + limit
        return as_json(Page(items=shown, next_cursor=str(following) if following < len(items) else None, total=len(items)))

    return handle


def _whole(source: Source) -> Endpoint:
    async def handle(request: Request) -> Response:
        items = list(source(request))
        return as_json(Page(items=items, total=len(items)))

    return handle


def _csv(source: Source) -> Endpoint:
    async def handle(request: Request) -> Response:
        items = source(request)

        async def lines() -> AsyncIterator[bytes]:
            names = [field.name for field in fields(items[0])] if items else []
            for row in [names, *([_text(getattr(item, name)) for name in names] for item in items)]:
                buffer = io.StringIO()
                csv.writer(buffer).writerow(row)
                yield buffer.getvalue().encode()

        return StreamingResponse(lines(), media_type="text/csv")

    return handle


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value))
