"""What is kept as a file: which fields a row has, and how CSV writes them."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import Query

from fairlead.errors import InvalidInput

Fields = Annotated[str | None, Query(max_length=2000, description="Names of fields, separated by commas; by default all fields.")]


def named(item: type[Any], fields: str | None) -> list[str] | None:
    """The fields asked for, in their order, each once; None for all. Raises InvalidInput for an unknown one."""
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
    """The row with these fields alone."""
    return {name: getattr(row, name) for name in names}


def attachment(name: str, kind: str) -> dict[str, str]:
    """Headers of a file to keep."""
    return {"content-disposition": f'attachment; filename="{name}.{kind}"'}


def line(cells: list[str]) -> bytes:
    """A record of CSV."""
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def cell(value: Any) -> str:
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
