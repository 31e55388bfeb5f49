"""The rows of a query as the source of another: the SQL equals that of SQLAlchemy's subquery, without its objects."""

import gc
import re
from typing import Any

import pytest
from sqlalchemy import Select, func, select
from sqlalchemy.dialects import postgresql

from fairlead_api.infra.paging import RowsWithin
from fairlead_api.tables import decisions, migrations, pools

NEWEST = select(migrations).where(migrations.c.pool_id == 3).order_by(migrations.c.at.desc()).limit(10)


def words(statement: "Select[Any]") -> str:
    compiled = str(statement.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]  # not typed
    return re.sub(r"\bsearched_|\banon_1_", "", compiled.replace("anon_1.", "searched.").replace("AS anon_1", "AS searched"))


def test_all_columns_and_a_test_of_one_are_asked_of_the_rows() -> None:
    newest, theirs = RowsWithin(NEWEST), NEWEST.subquery()
    mine = newest.select().where(newest.c.session == "a", newest.c["paid_off"].is_(True)).order_by(newest.c.at.desc())
    subquery = select(theirs).where(theirs.c.session == "a", theirs.c.paid_off.is_(True)).order_by(theirs.c.at.desc())
    assert list(mine.selected_columns.keys()) == list(subquery.selected_columns.keys())
    assert words(mine).split(" FROM ")[1:] == words(subquery).split(" FROM ")[1:]


def test_rows_can_be_counted_joined_and_read_again() -> None:
    newest = RowsWithin(NEWEST)
    amount = func.count().label("amount")
    by_instance = RowsWithin(newest.select(newest.c.source.label("source"), newest.c.pool_id.label("pool_id"), amount))
    named = by_instance.select().add_columns(pools.c.name).join(pools, pools.c.id == by_instance.c.pool_id)
    assert list(named.selected_columns.keys()) == ["source", "pool_id", "amount", "name"]
    assert words(named).endswith("AS searched JOIN pools ON pools.id = searched.pool_id")


def test_a_column_that_the_rows_do_not_have_is_an_error() -> None:
    newest = RowsWithin(NEWEST)
    with pytest.raises(AttributeError, match="nothing"):
        _ = newest.c.nothing
    with pytest.raises(KeyError, match="nothing"):
        _ = newest.c["nothing"]


def garbage(rows: Any) -> int:
    """Return the number of objects in reference cycles that one statement leaves."""
    query = select(decisions).limit(10)
    gc.collect()
    statement = rows(query)
    del statement
    return gc.collect()


def test_a_statement_leaves_a_tenth_of_the_garbage_that_a_subquery_does() -> None:
    def mine(query: "Select[Any]") -> "Select[Any]":
        newest = RowsWithin(query)
        return newest.select().where(newest.c.session == "a")

    def theirs(query: "Select[Any]") -> "Select[Any]":
        newest = query.subquery()
        return select(newest).where(newest.c.session == "a")

    garbage(mine), garbage(theirs)  # what is kept for good is made the first time
    assert garbage(mine) * 10 <= garbage(theirs)
