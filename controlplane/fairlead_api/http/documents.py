"""Resources that contain one table: as JSON, as a JSON file, and the table alone as CSV.

Each resource is registered with one call, like a list (`listing`). The module also selects the fields of a row, and
formats values for CSV.
"""

import csv
import dataclasses
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from fairlead.errors import InvalidInput
from fairlead.spreadsheets import harmless
from fairlead_api.http.answers import BoundedStream, answer
from fairlead_api.http.bodies import described_answer
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.spans import Sight

Ask = Callable[[Sight], Awaitable[Any]]
"""A query whose parameters are already set. Its argument is the set of namespaces that the caller may see."""

ROWS_AT_ONCE = 500


def document(
    routes: APIRouter,
    path: str,
    kind: type[Any],
    needs: Callable[..., Any],
    asked: Callable[..., Awaitable[Ask]],
    row: type[Any],
    rows: Callable[[Any], Iterable[Any]],
) -> None:
    """Register three paths: `path`, which responds with a `kind` as JSON; `path`.json, which responds with the same
    JSON as a file; and `path`.csv, with the `rows` of the `kind`.

    `asked` is a FastAPI dependency that reads the parameters. The endpoint gets the name and docstring of `asked`.
    `needs` is a dependency that checks the caller.
    """
    name, file = asked.__name__, path.rsplit("/", 1)[-1].replace("-", "_")
    Checked = Annotated[Caller, Depends(needs)]  # noqa: N806 - it is a type
    Asked = Annotated[Ask, Depends(asked)]  # noqa: N806 - it is a type

    async def whole(caller: Checked, ask: Asked) -> Response:
        return answer(await ask(caller.sight))

    whole.__doc__ = asked.__doc__
    routes.add_api_route(path, whole, methods=["GET"], response_model=kind, name=name)

    async def kept(caller: Checked, ask: Asked) -> Response:
        content = msgspec.json.encode(await ask(caller.sight))
        return BoundedStream(_once(content), media_type="application/json", headers=attachment(file, "json"))

    kept.__doc__ = "The same document as a JSON file."
    routes.add_api_route(f"{path}.json", kept, methods=["GET"], response_model=kind, name=f"{name}_json")

    async def table(caller: Checked, ask: Asked, fields: Fields = None) -> Response:
        names = named(row, fields) or [field.name for field in dataclasses.fields(row)]
        lines = _lines(names, rows(await ask(caller.sight)))
        return BoundedStream(lines, media_type="text/csv; charset=utf-8", headers=attachment(file, "csv"))

    table.__doc__ = f"The rows of the document as CSV, in the form {row.__name__}."
    csv = described_answer("text/csv")
    routes.add_api_route(f"{path}.csv", table, methods=["GET"], response_class=Response, name=f"{name}_csv", responses=csv)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _lines(names: list[str], rows: Iterable[Any]) -> AsyncIterator[bytes]:
    yield line(names)
    left = iter(rows)
    while some := list(islice(left, ROWS_AT_ONCE)):
        yield b"".join(line([cell(getattr(one, name)) for name in names]) for one in some)


Fields = Annotated[str | None, Query(max_length=2000, description="Names of fields, separated by commas; by default all fields.")]


def named(item: type[Any], fields: str | None) -> list[str] | None:
    """Return the names in `fields`, in order and without repetitions; None for all fields. Raises InvalidInput for a
    name that is not a field of `item`.
    """
    if fields is None:
        return None
    known = [field.name for field in dataclasses.fields(item)]
    names = list(dict.fromkeys(name.strip() for name in fields.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise InvalidInput("fields", name, f"write names among {', '.join(known)}")
    if not names:
        raise InvalidInput("fields", fields, f"write names among {', '.join(known)}, or leave it out")
    return names


def only(row: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return only the fields `names` of the row."""
    return {name: getattr(row, name) for name in names}


def attachment(name: str, kind: str) -> dict[str, str]:
    """Return the headers that make a browser save the response as a file."""
    return {"content-disposition": f'attachment; filename="{name}.{kind}"'}


def line(cells: list[str]) -> bytes:
    """Return one CSV record."""
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def cell(value: Any) -> str:
    """Return the text of a value for CSV. A text that a spreadsheet would interpret as a formula gets an apostrophe in
    front.
    """
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, int | float):
        return str(value)
    return harmless(msgspec.json.encode(value).decode())
