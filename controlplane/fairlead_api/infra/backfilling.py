"""Fills new columns of tables that grow, in a migration, while the tables are in use.

One UPDATE of a million rows would hold all their locks until its end, and be ended by the migration's time limit. Here
every batch is a transaction of its own. What is interrupted goes on where it was with the next try, so `where` must not
choose a row that is done.
"""

import sqlalchemy as sa
from alembic import op

BATCH = 5000
"""Rows per transaction, few enough that nobody waits long."""


def backfill(table: str, assignments: str, where: str, batch: int = BATCH) -> int:
    """`UPDATE table SET assignments WHERE where`, batch by batch; returns how many rows were changed.

    All three are SQL. Rows that others have locked are waited for, each batch at most the migration's `lock_timeout`.
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
