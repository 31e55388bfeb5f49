"""Changes tables by a migration while the tables are in use: indexes are built CONCURRENTLY, so that no writer waits,
and new columns are filled in batches.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTITIONS = sa.text(
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = CAST(:table AS regclass) ORDER BY 1"
)
_ATTACHED = sa.text(
    "SELECT count(*) FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid "
    "WHERE i.inhparent = CAST(:index AS regclass) AND x.indrelid = CAST(:table AS regclass)"
)


def index_name(table: str, columns: Sequence[str]) -> str:
    """Return the name of an index of these columns by the metadata's naming convention."""
    return f"ix_{table}_{'_'.join(columns)}"


def build(table: str, columns: Sequence[str], where: str = "") -> None:
    """Build an index on a plain table; with `where`, only on the rows that meet this condition."""
    with _patient() as connection:
        _build(connection, index_name(table, columns), table, columns, where)


def build_partial(name: str, table: str, columns: Sequence[str], where: str, include: Sequence[str] = ()) -> None:
    """Build an index on those rows of a plain table that meet the condition `where`. `include` names further columns
    that the index stores.
    """
    also = f" INCLUDE ({', '.join(include)})" if include else ""
    with _patient() as connection:
        connection.execute(sa.text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
        connection.execute(sa.text(f"CREATE INDEX CONCURRENTLY {name} ON {table} ({', '.join(columns)}){also} WHERE {where}"))


def build_on_partitions(table: str, columns: Sequence[str], *, name: str = "", where: str = "") -> None:
    """Build an index on a partitioned table and on each of its partitions; with `where`, only on the rows that meet
    this condition. With `name`, that name replaces the columns in the index's name.
    """
    ending = name or "_".join(columns)
    name, of_rows = f"ix_{table}_{ending}", f" WHERE {where}" if where else ""
    with _patient() as connection:
        connection.execute(sa.text(f"CREATE INDEX IF NOT EXISTS {name} ON ONLY {table} ({', '.join(columns)}){of_rows}"))
        for (partition,) in connection.execute(_PARTITIONS, {"table": table}).all():
            if connection.execute(_ATTACHED, {"index": name, "table": partition}).scalar_one():
                continue  # made with the partition, or by an earlier try
            own = f"{partition}_{ending}_idx"
            _build(connection, own, partition, columns, where)
            connection.execute(sa.text(f"ALTER INDEX {name} ATTACH PARTITION {own}"))


def drop(table: str, columns: Sequence[str]) -> None:
    """Drop the index of these columns from a plain table."""
    with _patient() as connection:
        connection.execute(sa.text(f"DROP INDEX CONCURRENTLY IF EXISTS {index_name(table, columns)}"))


def _build(connection: Any, name: str, table: str, columns: Sequence[str], where: str = "") -> None:
    connection.execute(sa.text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
    of_rows = f" WHERE {where}" if where else ""
    connection.execute(sa.text(f"CREATE INDEX CONCURRENTLY {name} ON {table} ({', '.join(columns)}){of_rows}"))


@contextmanager
def _patient() -> "Iterator[Any]":
    """Yield a connection outside a transaction, without the migration's time limits.

    Time limits are not needed: a concurrent build of an index may wait long, but no writer waits for the build.
    """
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        limits = {name: connection.execute(sa.text(f"SHOW {name}")).scalar_one() for name in ("statement_timeout", "lock_timeout")}
        for name in limits:
            connection.execute(sa.text(f"SET {name} = 0"))
        try:
            yield connection
        finally:
            for name, value in limits.items():
                connection.execute(sa.text(f"SET {name} = '{value}'"))


BATCH = 5000
"""Maximum number of rows that one transaction changes, few enough that no writer waits long."""


def backfill(table: str, assignments: str, where: str, batch: int = BATCH) -> int:
    """Run `UPDATE table SET assignments WHERE where` in batches; return the number of changed rows.

    The first three arguments are SQL. A batch waits for locked rows at most the migration's `lock_timeout`.
    """
    place = "r.tableoid = b.tableoid AND r.ctid = b.ctid"  # a ctid alone is not unique over partitions
    statement = sa.text(
        f"WITH b AS (SELECT tableoid, ctid FROM {table} WHERE {where} LIMIT {int(batch)} FOR UPDATE) "  # noqa: S608 - a migration's own words
        f"UPDATE {table} r SET {assignments} FROM b WHERE {place}"
    )
    changed = 0
    with op.get_context().autocommit_block():
        connection = op.get_bind()
        while (count := connection.execute(statement).rowcount) > 0:
            changed += count
    return changed
