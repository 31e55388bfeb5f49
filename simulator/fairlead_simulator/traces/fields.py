"""Access to the fields of a trace row. Each value is checked when it is read."""

import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Any

from fairlead_simulator.errors import TraceInvalid

LONGEST_TOKENS = 10_000_000
"""Maximum tokens of a prompt or of an answer. A larger number in a file is refused as a mistake."""
LATEST_MS = 1e15
"""Maximum time in milliseconds. It is large enough for milliseconds since 1970, but too small for nanoseconds since
1970.
"""
_LEAST_ID, _GREATEST_ID = -(2**63), 2**64 - 1
"""Smallest and largest accepted block id: any integer of 64 bits, signed or unsigned."""
_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


class Record:
    """A row of a file, or an object within a row. All errors about its fields name file, line and field."""

    __slots__ = ("document", "file", "line", "within")
    NEEDS = "a row needs timestamp, input_length, output_length and hash_ids"

    def __init__(self, document: Mapping[str, Any], file: str, line: int, within: str = "") -> None:
        self.document = document
        self.file = file
        self.line = line
        self.within = within
        """The path from the row to this object, such as `metrics.`; "" for the row itself. Errors put it before the
        field's name.
        """

    def refusal(self, field: str, problem: str) -> TraceInvalid:
        return TraceInvalid(self.file, self.line, f"{self.within}{field}", problem)

    def given(self, field: str) -> Any:
        """Return the field's value; None if the field is missing or null."""
        return self.document.get(field)

    def needed(self, field: str) -> Any:
        """Return the field's value. Raises TraceInvalid if the field is missing or null."""
        value = self.given(field)
        if value is None:
            is_there = "is null" if field in self.document else "is missing"
            raise self.refusal(field, f"{is_there}; {self.NEEDS}")
        return value

    def inner(self, field: str) -> "Record":
        """Return the object in the field as a record. Raises TraceInvalid if the value is not an object."""
        value = self.given(field)
        if not isinstance(value, dict):
            raise self.refusal(field, f"{shown(value)} must be a JSON object")
        return type(self)(value, self.file, self.line, f"{self.within}{field}.")

    def time_ms(self, field: str, unit_ms: float = 1.0) -> float:
        """Return the time in the field, converted to milliseconds. `unit_ms` is the field's unit in milliseconds."""
        value = self.needed(field)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LATEST_MS / unit_ms:
            unit = {1.0: "milliseconds", 1e3: "seconds", 1e-6: "nanoseconds"}[unit_ms]
            raise self.refusal(field, f"{shown(value)} must be a number of {unit}, from 0 to {LATEST_MS / unit_ms:g}")
        return value if unit_ms == 1.0 else value * unit_ms

    def tokens(self, field: str, minimum: int) -> int:
        """Return the number of tokens in the field, which must be at least `minimum`."""
        value = self.needed(field)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LONGEST_TOKENS:
            raise self.refusal(field, f"{shown(value)} must be a whole number of tokens, from {minimum} to {LONGEST_TOKENS:,}")
        return value

    def ids(self, field: str = "hash_ids") -> tuple[int, ...]:
        """Return the block ids of a prompt, which are in the field."""
        ids = self.needed(field)
        if not isinstance(ids, list) or not all(type(block) is int for block in ids):
            raise self.refusal(field, f"{shown(ids)} must be a list of whole numbers")
        if ids and (min(ids) < _LEAST_ID or max(ids) > _GREATEST_ID):
            wrong = next(block for block in ids if not _LEAST_ID <= block <= _GREATEST_ID)
            raise self.refusal(field, f"{shown(wrong)} must be a whole number of 64 bits")
        return tuple(ids)

    def name(self, field: str) -> str | None:
        """Return the name in the field, such as a session's; None if it is missing."""
        value = self.given(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise self.refusal(field, f"{shown(value)} must be text or a whole number")
        return None if value is None or value == "" else str(value)

    def text(self, field: str) -> str:
        value = self.needed(field)
        if not isinstance(value, str):
            raise self.refusal(field, f"{shown(value)} must be text")
        return value


class Other(Record):
    """A row in another tool's form. Integers that such a tool writes as 512.0 are accepted."""

    __slots__ = ()
    NEEDS = "a request needs it"

    def given(self, field: str) -> Any:
        value = self.document.get(field)
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Cells(Record):
    """A row of a CSV file. Its numbers are written as text, and its block ids are separated by spaces."""

    __slots__ = ()
    NEEDS = "write it in every row"

    def given(self, field: str) -> Any:
        text = self.document.get(field)
        if not isinstance(text, str) or not text.strip():
            return None
        return number_of(text.strip()) if field not in ("session_id", "Session ID", "TIMESTAMP", "hash_ids") else text.strip()

    def ids(self, field: str = "hash_ids") -> tuple[int, ...]:
        parts = [number_of(part) for part in str(self.needed(field)).split()]
        if not all(type(part) is int for part in parts):
            raise self.refusal(field, "must be whole numbers separated by spaces")
        return Record({field: parts}, self.file, self.line).ids(field)


def number_of(text: str) -> int | float | str:
    """Return the number that the text stands for; the text itself if it is not a number."""
    if not _NUMBER.fullmatch(text):
        return text
    if text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return int(value) if value.is_integer() else value


def shown(value: Any) -> str:
    """Return a value from a file as one short line for a message, even if the value is long or deeply nested."""
    text = _SHORT.repr(value) if isinstance(value, list | dict) else repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_SHORT = Repr()
_SHORT.maxlevel = 6
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxstring = _SHORT.maxlong = 60
