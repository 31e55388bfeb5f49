"""Lists: one page as JSON (also under `.json`), and the whole list streamed as `.csv`.

Each list is registered with one call.
"""

import csv
import dataclasses
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from fairlead_api.routes.answers import answer
from fairlead_api.routes.streaming import BoundedStream
from fairlead_api.services.access.access import Caller
from fairlead_api.services.spans import Span
from fairlead_client.resources.pages import Page

Fetch = Callable[[Span], Awaitable[Page[Any]]]
"""A list with its filters already applied; it takes the span to read."""

Limit = Annotated[int, Query(ge=1, le=100)]
From = Annotated[str | None, Query(alias="from")]
To = Annotated[str | None, Query(alias="to")]
"""The range of a list, as RFC 3339 or `now-15m`."""

EXPORT_PAGE = 500


def listing(routes: APIRouter, path: str, item: type[Any], needs: Callable[..., Any], fetch: Callable[..., Fetch]) -> None:
    """Registers `path`, `path.json` and `path.csv`.

    `fetch` is a dependency that reads the filters; `needs` is one that checks the caller.
    """
    name = path.rsplit("/", 1)[-1].replace("-", "_")

    async def page(
        caller: Annotated[Caller, Depends(needs)],  # first, so that strangers learn nothing from other errors
        chosen: Annotated[Fetch, Depends(fetch)],
        cursor: Annotated[str | None, Query(max_length=4000)] = None,
        limit: Limit = 50,
    ) -> Response:
        return answer(await chosen(Span(cursor=cursor, limit=limit)))

    page.__doc__ = f"One page of {name}; pass next_cursor as cursor for the next."
    routes.add_api_route(path, page, methods=["GET"], response_model=Page[item], name=f"list_{name}")  # type: ignore[valid-type]  # a type made at run time, for the document
    routes.add_api_route(f"{path}.json", page, methods=["GET"], include_in_schema=False)
    exporting(routes, path, item, needs, fetch)


def exporting(routes: APIRouter, path: str, item: type[Any], needs: Callable[..., Any], fetch: Callable[..., Fetch]) -> None:
    """Registers only `path.csv`."""
    name = path.rsplit("/", 1)[-1].replace("-", "_")

    async def export(caller: Annotated[Caller, Depends(needs)], chosen: Annotated[Fetch, Depends(fetch)]) -> Response:
        first = await chosen(Span(limit=EXPORT_PAGE))  # a refusal must come before the answer starts
        headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
        return BoundedStream(_rows(item, chosen, first), media_type="text/csv; charset=utf-8", headers=headers)

    export.__doc__ = f"All {name} that match, as CSV."
    routes.add_api_route(f"{path}.csv", export, methods=["GET"], response_class=Response, name=f"export_{name}")


async def _rows(item: type[Any], fetch: Fetch, first: Page[Any]) -> AsyncIterator[bytes]:
    names = [field.name for field in dataclasses.fields(item)]
    yield _line(names)
    found = first
    while True:
        yield b"".join(_line([_cell(getattr(row, name)) for name in names]) for row in found.items)
        if found.next_cursor is None:
            return
        found = await fetch(Span(cursor=found.next_cursor, limit=EXPORT_PAGE))


def _line(cells: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    """Text of a value; a value that a spreadsheet would take for a formula gets an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()
