"""Records and rows match by name, and mismatches are reported when the module is imported."""

from dataclasses import dataclass

import pytest
from sqlalchemy import Column, Double, Integer, MetaData, Table, Text

from fairlead.reports.bindings import BindingReason
from fairlead_api.infra.records import Writing, read
from fairlead_client.resources.sessions import BindingHistoryItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    pool: str
    bird: str
    weight: float | None = None


def table(*more: "Column[object]") -> Table:
    columns = (Column("pool_id", Integer, nullable=False), Column("bird", Text, nullable=False), Column("weight", Double))
    return Table("sightings", MetaData(), *columns, *more)


def test_a_field_without_a_column_is_an_error_at_once() -> None:
    without = Table("sightings", MetaData(), Column("pool_id", Integer, nullable=False), Column("bird", Text, nullable=False))
    with pytest.raises(TypeError, match=r"fields without a column: \['weight'\]"):
        Writing(without, Sighting, "pool_id")


def test_a_column_that_nothing_fills_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match=r"columns without a field of Sighting: \['place'\]"):
        Writing(table(Column("place", Text, nullable=False)), Sighting, "pool_id")


def test_columns_postgres_fills_itself_are_left_to_it() -> None:
    Writing(table(Column("noted", Integer, nullable=False, server_default="0")), Sighting, "pool_id")


class Row(tuple[object, ...]):
    """The part of a database row that `read` uses: values with names."""

    _fields: tuple[str, ...]

    def __new__(cls, **values: object) -> "Row":
        one = super().__new__(cls, values.values())
        one._fields = tuple(values)
        return one


def test_a_row_becomes_a_record_with_its_words_as_enums() -> None:
    times = {"bound_at": None, "released_at": None}
    row = Row(instance="a", version=2, reason="drain", router="edge", migration=None, pool_id=7)
    item = read(BindingHistoryItem, row, **times)
    assert (item.reason, item.version, item.migration) == (BindingReason.DRAIN, 2, None)
    assert read(Sighting, Row(bird="heron"), pool="a/b") == Sighting(pool="a/b", bird="heron")
