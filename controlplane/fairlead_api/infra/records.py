"""Converts records to rows and back by name: a record's field corresponds to the column of the same name.

Statements, types and the order of columns follow from the table, so there is no second list to maintain. There are
three exceptions: a record's `pool` is the column `pool_id`; the writer supplies columns that the record does not have;
and Postgres fills columns that have a default. A field without a column, and a column without a value, are errors when
the module is imported. A field that its record marks as not stored has no column.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from sqlalchemy import JSON, Column, DateTime, Select, Table, Text, bindparam, cast, column, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import TableValuedAlias

from fairlead.reports.traffic import UNSTORED
from fairlead_api.infra import copying
from fairlead_api.infra.database import driver, moment

Record = TypeVar("Record")
Getter = Callable[[Any], Any]

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's dialects are not typed


def read(kind: type[Record], row: Any, /, **given: Any) -> Record:
    """Convert a row to a record.

    A field's value is in `given`, or is read from the column of the same name (text becomes enums, JSON becomes
    records), or is the field's default.
    """
    named: Any = kind
    taken = _taken(named, row._fields, tuple(given))
    return kind(**{name: row[place] if of is None else msgspec.convert(row[place], of) for name, place, of in taken}, **given)


_AS_THEY_ARE = frozenset(one | None for one in (str, int, bool, datetime)) | {str, int, bool, datetime}
"""Types that the database driver already returns, so that their values need no conversion."""


@lru_cache(maxsize=1024)
def _taken(kind: Any, columns: tuple[str, ...], given: tuple[str, ...]) -> tuple[tuple[str, int, Any], ...]:
    """Return the fields of `kind` that a row with these columns fills: the field's name, its position in the row, and
    the type to convert to (None = no conversion).
    """
    known = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name in columns and field.name not in given]
    return tuple((name, columns.index(name), None if known[name] in _AS_THEY_ARE else known[name]) for name in names)


class Writing(Generic[Record]):
    """Turns records of one kind into rows of one table.

    `given` names two things: columns that are not fields of the record, and fields whose stored form differs from the
    record's. The writer supplies a value for all rows, or a function of the record, for each such column or field: for
    example `router="edge-0"` or `pool_id=lambda load: ids[load.pool]`.
    """

    def __init__(self, table: Table, kind: type[Record], *given: str) -> None:
        names = {field.name for field in fields(kind) if UNSTORED not in field.metadata} - {"pool"}  # type: ignore[arg-type]  # records are dataclasses
        stored = [one for one in table.columns if one.name in names or one.name in given]
        unfilled = [one.name for one in table.columns if one not in stored and not (one.server_default or one.computed or one.nullable)]
        nowhere = sorted((names | set(given)) - {one.name for one in stored})
        if unfilled or nowhere:
            raise TypeError(f"{table.name}: columns without a field of {kind.__name__}: {unfilled}; fields without a column: {nowhere}")
        self._table, self._given = table, frozenset(given)
        self._columns = stored
        self._types = [one.type.compile(_DIALECT).lower() for one in stored]
        self._copy = f"COPY {table.name} ({', '.join(one.name for one in stored)}) FROM STDIN (FORMAT BINARY)".encode()
        source = recordset(stored)
        self._insert = insert(table).from_select([one.name for one in stored], _in_order(source, table)).on_conflict_do_nothing()

    async def copy(self, connection: AsyncConnection, records: Sequence[Record], **given: Any) -> None:
        """Add rows by binary COPY, the fastest way. Raises an error if a row already exists."""
        if not records:
            return
        content = copying.rows(self._fields(given), records)
        async with (await driver(connection)).cursor() as cursor, cursor.copy(self._copy) as written:
            await written.write(content)

    async def add(self, connection: AsyncConnection, records: Sequence[Record], **given: Any) -> None:
        """Add the rows that do not exist yet, in one statement and in the order of their primary keys."""
        if not records:
            return
        names, getters = [one.name for one in self._columns], self._getters(given)
        rows = [{name: get(record) for name, get in zip(names, getters, strict=True)} for record in records]
        await connection.execute(self._insert, bound(rows))

    def _fields(self, given: Mapping[str, Any]) -> list[copying.Field]:
        self._check(given)
        return [
            copying.Field(one.name, kind, given=one.name in given, value=given.get(one.name))
            for one, kind in zip(self._columns, self._types, strict=True)
        ]

    def _getters(self, given: Mapping[str, Any]) -> list[Getter]:
        self._check(given)
        return [_for_json(one, _getter(one.name, given)) for one in self._columns]

    def _check(self, given: Mapping[str, Any]) -> None:
        if given.keys() != self._given:
            raise TypeError(f"{self._table.name}: give {sorted(self._given)}, not {sorted(given)}")


def recordset(columns: Iterable["Column[Any]"]) -> TableValuedAlias:
    """Return a table with these columns, for use in a statement. Its rows come from a parameter of the statement: a
    JSON list of objects, which `bound` makes.

    This is many times faster than one array parameter per column.
    """
    typed = [column(one.name, one.type) for one in columns]
    source = func.json_to_recordset(cast(bindparam("rows", type_=Text), JSON))
    return source.table_valued(*typed, name="n").render_derived(name="n", with_types=True)


def bound(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the parameter for a statement that uses `recordset`, with these rows."""
    return {"rows": msgspec.json.encode(rows).decode()}


def _in_order(source: TableValuedAlias, table: Table) -> "Select[Any]":
    return select(*source.c).order_by(*(source.c[key.name] for key in table.primary_key if key.name in source.c))


def _getter(name: str, given: Mapping[str, Any]) -> Getter:
    if name not in given:
        return attrgetter(name)
    value = given[name]
    return value if callable(value) else lambda _: value


def _for_json(one: "Column[Any]", get: Getter) -> Getter:
    return _moment(get) if isinstance(one.type, DateTime) else get


def _moment(get: Getter) -> Getter:
    """Return a getter of a UTC time, which converts Unix seconds from a record. A value that already is a time is
    unchanged.
    """

    def read_moment(record: Any) -> Any:
        value = get(record)
        return moment(value) if isinstance(value, int | float) else value

    return read_moment
