"""Decodes the bodies of report posts: one Report, or a list of them.

The bytes are decoded straight into dataclasses; if a row does not fit, the body is decoded row by row.
"""

from collections import Counter
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import msgspec

from fairlead.errors import InvalidInput
from fairlead.reports.batches import AskAddress, Report
from fairlead_api.http.bodies import MalformedBody
from fairlead_process.json_documents import DEEPEST, decode_json, nests_deeper

_HINTS = get_type_hints(Report)
_SINGLE = {"id", "router", "sent_at", "asked_at"}
_ROWS = {field.name: get_args(_HINTS[field.name])[0] for field in fields(Report) if field.name not in _SINGLE}
_Loose: Any = msgspec.defstruct(
    "_Loose",
    [
        ("id", str),
        ("router", str),
        ("sent_at", float),
        ("asked_at", msgspec.Raw | None, None),
        *((name, list[msgspec.Raw], msgspec.field(default_factory=list)) for name in _ROWS),
    ],
)
_whole: "msgspec.json.Decoder[Report | list[Report]]" = msgspec.json.Decoder(Report | list[Report])
_loose: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder(_Loose | list[_Loose])
_address: "msgspec.json.Decoder[AskAddress | None]" = msgspec.json.Decoder(AskAddress | None)
_row: "dict[str, msgspec.json.Decoder[Any]]" = {name: msgspec.json.Decoder(kind) for name, kind in _ROWS.items()}


def decode_reports(content: bytes) -> tuple[list[Report], bool, Counter[str]]:
    """The reports, whether they came as a list, and how many malformed rows were left out, by reason.

    Raises MalformedBody for a body that is not JSON, InvalidInput for a report without id, router or time.
    """
    if nests_deeper(content):
        raise InvalidInput("body", None, f"nest values at most {DEEPEST} levels deep")
    try:
        found = decode_json(content, _whole)
    except msgspec.DecodeError:  # ValidationError included
        return _row_by_row(content)
    return (found, True, Counter()) if isinstance(found, list) else ([found], False, Counter())


def _row_by_row(content: bytes) -> tuple[list[Report], bool, Counter[str]]:
    try:
        found = decode_json(content, _loose)
    except msgspec.ValidationError as error:
        message, _, path = str(error).rpartition(" - at `$")
        raise InvalidInput(path.rstrip("`").lstrip(".") or "body", None, message or str(error)) from error
    except msgspec.DecodeError as error:
        raise MalformedBody(str(error)) from error
    ignored: Counter[str] = Counter()
    reports: list[Report] = []
    for loose in found if isinstance(found, list) else [found]:
        rows: dict[str, tuple[Any, ...]] = {}
        for name, decoder in _row.items():
            good: list[Any] = []
            for raw in getattr(loose, name):
                try:
                    good.append(decoder.decode(raw))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    ignored["unreadable"] += 1
            rows[name] = tuple(good)
        try:
            asked_at = None if loose.asked_at is None else _address.decode(loose.asked_at)
        except (msgspec.DecodeError, UnicodeDecodeError):
            asked_at = None
            ignored["unreadable"] += 1
        made: dict[str, Any] = {**rows, "asked_at": asked_at}
        reports.append(Report(id=loose.id, router=loose.router, sent_at=loose.sent_at, **made))
    return reports, isinstance(found, list), ignored
