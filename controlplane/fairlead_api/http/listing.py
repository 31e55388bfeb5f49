"""Lists: one page as JSON, and the whole list streamed as `.json` and `.csv`.

Each list is registered with one call. `fields` selects the fields of the items, `sort` reverses the list.
"""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from fairlead_api.http.answers import BoundedStream, answer
from fairlead_api.http.bodies import described_answer
from fairlead_api.http.documents import Fields, attachment, cell, line, named, only
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.spans import Span
from fairlead_client.resources.pages import Page

Fetch = Callable[[Span], Awaitable[Page[Any]]]
"""A list query whose filters are already set. Its argument is the span of rows to read."""

Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(max_length=4000)]
From = Annotated[str | None, Query(alias="from")]
To = Annotated[str | None, Query(alias="to")]
"""The end of a list's range, as RFC 3339 or `now-15m`."""

EXPORT_PAGE = 500


def listing(
    routes: APIRouter,
    path: str,
    item: type[Any],
    needs: Callable[..., Any],
    fetch: Callable[..., Awaitable[Fetch]],
    *,
    by: str | None = None,
    exported_by: str = "",
    about: str = "",
) -> None:
    """Register a list at `path`, `path.json` and `path.csv`.

    `fetch` is a FastAPI dependency that reads the filters (async, because FastAPI runs sync dependencies in threads);
    `needs` is a dependency that checks the caller. `by` is the field by which the list is ordered, with `-` for largest
    first; if given, `sort` can reverse the order. `exported_by` is a fixed order for exports of lists whose usual order
    can lose rows during the export. `about` describes the list in OpenAPI.
    """
    name = path.rsplit("/", 1)[-1].replace("-", "_")
    Chosen = Annotated[Callable[..., Span], Depends(_spans(by))]  # noqa: N806 - it is a type
    of_whole = _spans(None if exported_by else by)
    Whole = Annotated[Callable[..., Span], Depends(of_whole)]  # noqa: N806 - it is a type
    order = f", by {exported_by}" if exported_by else ""

    async def page(
        caller: Annotated[Caller, Depends(needs)],  # first, so that strangers learn nothing from other errors
        chosen: Annotated[Fetch, Depends(fetch)],
        span: Chosen,
        cursor: Cursor = None,
        limit: Limit = 50,
        fields: Fields = None,
    ) -> Response:
        names = named(item, fields)
        found = await chosen(span(cursor=cursor, limit=limit, sight=caller.sight))
        if names is None:
            return answer(found)
        return answer(dataclasses.replace(found, items=[only(row, names) for row in found.items]))

    page.__doc__ = f"{about and about + ' '}One page of {name}; pass next_cursor as cursor for the next page."
    sparse = f"With `fields`, items have only these fields; otherwise all fields of {item.__name__}."
    routes.add_api_route(path, page, methods=["GET"], response_model=Page[item], name=f"list_{name}", response_description=sparse)  # type: ignore[valid-type]  # a type made at run time, for the document
    _exporting(routes, path, item, needs, fetch, of_whole, order)

    async def whole(
        caller: Annotated[Caller, Depends(needs)], chosen: Annotated[Fetch, Depends(fetch)], span: Whole, fields: Fields = None
    ) -> Response:
        names = named(item, fields)
        seen = partial(span, sight=caller.sight, whole=True)
        first = await chosen(seen(limit=EXPORT_PAGE))  # a refusal must come before the answer starts
        return BoundedStream(_documents(chosen, seen, first, names), media_type="application/json", headers=attachment(name, "json"))

    whole.__doc__ = f"All {name} that match, as one JSON document like that of a page, without a cursor{order}."
    routes.add_api_route(f"{path}.json", whole, methods=["GET"], response_model=Page[item], name=f"export_{name}_json")  # type: ignore[valid-type]  # as above


def _exporting(
    routes: APIRouter,
    path: str,
    item: type[Any],
    needs: Callable[..., Any],
    fetch: Callable[..., Awaitable[Fetch]],
    spans: Callable[..., Awaitable[Callable[..., Span]]],
    order: str,
) -> None:
    """Register only `path.csv`, the export of a list."""
    name = path.rsplit("/", 1)[-1].replace("-", "_")

    async def export(
        caller: Annotated[Caller, Depends(needs)],
        chosen: Annotated[Fetch, Depends(fetch)],
        span: Annotated[Callable[..., Span], Depends(spans)],
        fields: Fields = None,
    ) -> Response:
        names = named(item, fields) or [field.name for field in dataclasses.fields(item)]
        seen = partial(span, sight=caller.sight, whole=True)
        first = await chosen(seen(limit=EXPORT_PAGE))  # a refusal must come before the answer starts
        return BoundedStream(_rows(names, chosen, seen, first), media_type="text/csv; charset=utf-8", headers=attachment(name, "csv"))

    export.__doc__ = f"All {name} that match, as CSV{order}."
    routes.add_api_route(
        f"{path}.csv", export, methods=["GET"], response_class=Response, name=f"export_{name}", responses=described_answer("text/csv")
    )


def _spans(by: str | None) -> Callable[..., Awaitable[Callable[..., Span]]]:
    """Return a FastAPI dependency that reads the parameter `sort` and returns a function that creates spans."""
    if by is None:

        async def unsorted() -> Callable[..., Span]:
            return Span

        return unsorted
    other = by[1:] if by.startswith("-") else f"-{by}"
    Sort = Annotated[Literal[by, other], Query(description="Order; `-` before the field puts the largest first.")]  # type: ignore[valid-type]  # noqa: N806  # made at run time, for the document

    async def spans(sort: Sort = by) -> Callable[..., Span]:
        return lambda **given: Span(**given, reverse=sort != by)

    return spans


async def _pages(fetch: Fetch, span: Callable[..., Span], first: Page[Any]) -> AsyncIterator[Page[Any]]:
    """Yield all pages of a list. Only one page is in memory at a time."""
    found = first
    yield found
    while found.next_cursor is not None:
        found = await fetch(span(cursor=found.next_cursor, limit=EXPORT_PAGE))
        yield found


async def _documents(fetch: Fetch, span: Callable[..., Span], first: Page[Any], names: Sequence[str] | None) -> AsyncIterator[bytes]:
    """Yield the pieces of one JSON document with the whole list. A document that was cut off is invalid JSON, so that
    the reader notices.
    """
    count, opening = 0, b'{"items":['
    async for found in _pages(fetch, span, first):
        rows = [msgspec.json.encode(row if names is None else only(row, names)) for row in found.items]
        count += len(rows)
        yield opening + b",".join(rows) if rows else b""
        opening = b"," if count else opening
    yield (b"" if count else opening) + b'],"next_cursor":null,"total":%d,"total_at_least":null}' % count


async def _rows(names: Sequence[str], fetch: Fetch, span: Callable[..., Span], first: Page[Any]) -> AsyncIterator[bytes]:
    yield line(list(names))
    async for found in _pages(fetch, span, first):
        yield b"".join(line([cell(getattr(row, name)) for name in names]) for row in found.items)
