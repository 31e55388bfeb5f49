"""A query whose rows another one reads, such as the newest thousands, of which some are looked for.

SQLAlchemy's own subquery makes a dozen objects for each of its columns, in cycles, each time a statement is put
together: they were half of the garbage of the process that draws pages. Here a column is its name and its type.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, literal_column, select

NAME = "searched"


class Columns:
    """The columns of the rows, as attributes or by name."""

    def __init__(self, named: Mapping[str, ColumnElement[Any]]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> ColumnElement[Any]:
        return self._named[name]

    def __getattr__(self, name: str) -> ColumnElement[Any]:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(name) from None


class RowsWithin:
    """The rows of `query`, which must name each of its columns, as the source of another query; `c` has the columns.

    The rows of a `lateral` query may depend on those of a source before it.
    """

    def __init__(self, query: "Select[Any]", *, lateral: bool = False) -> None:
        named = {str(one.key): literal_column(f"{NAME}.{one.key}", one.type) for one in query.selected_columns}
        self._every = [column.label(name) for name, column in named.items()]
        self.source = query.lateral(NAME) if lateral else query.subquery(NAME)
        self.c = Columns(named)

    def select(self, *columns: "ColumnElement[Any]", beside: FromClause | None = None) -> "Select[Any]":
        """A query for these columns of the rows; without any, for all. `beside` is a join of the rows with others."""
        return select(*(columns or self._every)).select_from(self.source if beside is None else beside)
