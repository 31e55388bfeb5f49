"""Rows in the binary form that Postgres' COPY takes, made column by column.

Neighbouring numbers are packed at once, and a text or time that repeats is encoded once. The driver writes a row value
by value, which costs several times as much.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import Any

import msgspec

from fairlead_api.infra.database import moment

Column = Callable[[Sequence[Any]], Iterable[bytes]]
"""The values of one field, each with its length before it as Postgres reads them."""

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_LENGTH = Struct("!i")
_FIELDS = Struct("!h")
_EPOCH = moment(946_684_800)
_MICROSECOND = timedelta(microseconds=1)

_NUMBERS = {"integer": ("i", 4, 23), "bigint": ("q", 8, 20), "real": ("f", 4, 700), "double precision": ("d", 8, 701)}
"""Of each type of number how it is packed, its bytes, and its id in Postgres, which arrays carry."""


class Field:
    """A column and where its value comes from: the record's field of its name, a function of it, one value for all."""

    def __init__(self, name: str, kind: str, *, given: bool = False, value: Any = None) -> None:
        """`kind` is the type's name in Postgres; raises TypeError for one that cannot be written."""
        self.name = name
        self.number = None if given else _NUMBERS.get(kind)
        self.get = value if given and callable(value) else attrgetter(name)
        self.column = _column(kind)
        self.constant = next(iter(self.column([value]))) if given and not callable(value) else None

    def of(self, records: Sequence[Any]) -> Iterable[bytes]:
        return self.column(list(map(self.get, records)))


def rows(fields: Sequence[Field], records: Sequence[Any]) -> bytes:
    """The whole content of a COPY."""
    columns: list[Iterable[bytes]] = []
    same = _FIELDS.pack(len(fields))
    numbers: list[Field] = []
    for field in fields:
        if field.number is not None:
            numbers.append(field)
            continue
        if numbers:
            columns += _with_before(same, records, _together(numbers, records))
            same, numbers = b"", []
        if field.constant is not None:
            same += field.constant
        else:
            columns += _with_before(same, records, field.of(records))
            same = b""
    if numbers:
        columns += _with_before(same, records, _together(numbers, records))
        same = b""
    columns += _with_before(same, records)
    return b"".join((_HEADER, *chain.from_iterable(zip(*columns, strict=True)), _TRAILER))


def _with_before(same: bytes, records: Sequence[Any], *columns: Iterable[bytes]) -> list[Iterable[bytes]]:
    return [[same] * len(records), *columns] if same else list(columns)


def _together(fields: Sequence[Field], records: Sequence[Any]) -> Iterable[bytes]:
    """Numbers that follow each other; a row that has not all of them is made number by number."""
    if len(fields) == 1:
        return fields[0].of(records)
    kinds = [field.number for field in fields if field.number is not None]
    pack = Struct("!" + "".join("i" + letter for letter, _, _ in kinds)).pack
    values: list[Any] = [length for _, length, _ in kinds for _ in range(2)]  # a length before each number
    found: list[bytes] = []
    for record, given in zip(records, map(attrgetter(*(field.name for field in fields)), records), strict=True):
        if None in given:
            found.append(b"".join([part for field in fields for part in field.of([record])]))
        else:
            values[1::2] = given
            found.append(pack(*values))
    return found


def _column(kind: str) -> Column:
    if kind in _NUMBERS:
        letter, length, _ = _NUMBERS[kind]
        pack = Struct("!i" + letter).pack
        return lambda values: [_NULL if value is None else pack(length, value) for value in values]
    if kind.endswith("[]") and kind[:-2] in _NUMBERS:
        return _arrays(*_NUMBERS[kind[:-2]])
    if kind == "text":
        return _once(lambda value: _sized(value.encode()))
    if kind == "timestamp with time zone":
        pack_time = Struct("!iq").pack
        return _once(lambda value: pack_time(8, _microseconds(value)))
    if kind == "jsonb":
        return lambda values: [_NULL if value is None else _sized(b"\x01" + msgspec.json.encode(value)) for value in values]
    raise TypeError(f"no {kind} can be copied")


def _sized(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _once(encode: Callable[[Any], bytes]) -> Column:
    """Encodes each different value once."""

    def column(values: Sequence[Any]) -> Iterable[bytes]:
        known = {value: _NULL if value is None else encode(value) for value in set(values)}
        return map(known.__getitem__, values)

    return column


def _arrays(letter: str, length: int, kind: int) -> Column:
    """Arrays of one dimension, without nulls."""
    empty = Struct("!iiii").pack(12, 0, 0, kind)
    known: dict[int, tuple[Callable[..., bytes], list[Any]]] = {}

    def one(values: Sequence[Any] | None) -> bytes:
        if values is None:
            return _NULL
        count = len(values)
        if not count:
            return empty
        if count not in known:
            head = [20 + count * (4 + length), 1, 0, kind, count, 1]
            known[count] = Struct("!6i" + f"i{letter}" * count).pack, head + [length] * (2 * count)
        pack, content = known[count]
        content[7::2] = values
        return pack(*content)

    return lambda values: [one(value) for value in values]


def _microseconds(value: float | datetime) -> int:
    """Since 2000, of Unix seconds or of a time."""
    return ((value if isinstance(value, datetime) else moment(value)) - _EPOCH) // _MICROSECOND
