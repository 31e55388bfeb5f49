"""Encodes rows for Postgres' binary COPY, column by column; and ends the COPY statements of suspended processes."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from fairlead_api.infra.database import Database, moment
from fairlead_api.infra.errors import StoreUnavailable

Column = Callable[[Sequence[Any]], Iterable[bytes]]
"""An encoder of the values of one column. It puts each value's length before the value, as COPY requires."""

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_LENGTH = Struct("!i")
_FIELDS = Struct("!h")
_EPOCH = moment(946_684_800)
_MICROSECOND = timedelta(microseconds=1)

_NUMBERS = {
    "integer": ("i", 4, 23),
    "bigint": ("q", 8, 20),
    "real": ("f", 4, 700),
    "double precision": ("d", 8, 701),
    "boolean": ("?", 1, 16),
}
"""For each numeric type, and for booleans: the struct format, the size in bytes, and Postgres' type id, which an
encoded array names.
"""


class Field:
    """A column and the source of its value: the record's field of the same name, a function of the record, or one value
    for all rows.
    """

    def __init__(self, name: str, kind: str, *, given: bool = False, value: Any = None) -> None:
        """`kind` is the type's name in Postgres. Raises TypeError for a type that cannot be encoded."""
        self.name = name
        self.number = None if given else _NUMBERS.get(kind)
        self.get = value if given and callable(value) else attrgetter(name)
        self.column = _column(kind)
        self.constant = next(iter(self.column([value]))) if given and not callable(value) else None

    def of(self, records: Sequence[Any]) -> Iterable[bytes]:
        return self.column(list(map(self.get, records)))


def rows(fields: Sequence[Field], records: Sequence[Any]) -> bytes:
    """Encode the whole binary content of a COPY."""
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
    """Encode adjacent numeric columns in one step. A row in which a number is None is encoded value by value."""
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
    """Return an encoder that encodes equal values only once."""

    def column(values: Sequence[Any]) -> Iterable[bytes]:
        known = {value: _NULL if value is None else encode(value) for value in set(values)}
        return map(known.__getitem__, values)

    return column


def _arrays(letter: str, length: int, kind: int) -> Column:
    """Return an encoder of one-dimensional arrays without nulls. `letter`, `length` and `kind` are the elements' struct
    format, size and type id.
    """
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
    """Convert Unix seconds or a time to microseconds since the year 2000."""
    return ((value if isinstance(value, datetime) else moment(value)) - _EPOCH) // _MICROSECOND


_log = logging.getLogger(__name__)
_END = text(
    "WITH suspended AS MATERIALIZED ("
    "  SELECT pid, application_name FROM pg_stat_activity"
    "  WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'fairlead-api %'"
    "  AND state = 'active' AND wait_event = 'ClientRead' AND query_start < clock_timestamp() - make_interval(secs => :seconds)"
    ") SELECT application_name, pg_terminate_backend(pid) FROM suspended"
)


async def end_suspended_copies(database: Database, seconds: float) -> int:
    """End COPY statements that began more than `seconds` ago and wait for rows; return the number of ended statements.
    Raises StoreUnavailable if Postgres is unreachable.
    """

    async def work(connection: AsyncConnection) -> int:
        ended = (await connection.execute(_END, {"seconds": seconds})).scalars().all()
        for name in ended:
            _log.warning("ended the transaction of a suspended process", extra={"connection": name, "seconds": seconds})
        return len(ended)

    return await database.writing(work)


async def keep_ending_suspended_copies(database: Database, seconds: float) -> None:
    """End COPY statements of suspended processes until cancelled. Every API process does this, because the suspended
    process may be the one that runs the background jobs.
    """
    while True:
        await asyncio.sleep(seconds / 2)
        with suppress(StoreUnavailable):
            await end_suspended_copies(database, seconds)
