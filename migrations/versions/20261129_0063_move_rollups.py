"""Rollups of moves, and the minutes that wait to be rolled up: all that have moves, to begin with.

Triggers queue the minute of every move that is added or changes, whichever release's process does it. A sum over a range
takes queued minutes from their rows, so it is right before the first of them is rolled up.

Revision: 0063_move_rollups
Revises: 0062_sizing
"""

import sqlalchemy as sa
from alembic import op

revision = "0063_move_rollups"
down_revision = "0062_sizing"
branch_labels = None
depends_on = None

ROLLUPS = ("move_rollups_1m", "move_rollups_1h")
MOVES = ("migrations", "reroutes")


def upgrade() -> None:
    for name in ROLLUPS:
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            *(sa.Column(count, sa.BigInteger(), server_default="0", nullable=False) for count in ("migrations", "reroutes", "compared")),
            sa.Column("seconds_won", sa.Double(), server_default="0", nullable=False),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", name=op.f(f"pk_{name}")),
            if_not_exists=True,  # a try before this one may have made it, and been stopped as it queued minutes
        )
    op.create_table(
        "move_rollup_queue",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_move_rollup_queue_pool_id")),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_move_rollup_queue_pool_id_minute"), "move_rollup_queue", ["pool_id", "minute"], if_not_exists=True)
    op.execute(
        "CREATE OR REPLACE FUNCTION queue_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO move_rollup_queue (pool_id, minute) "
        "SELECT DISTINCT pool_id, date_bin('1 minute', at, TIMESTAMPTZ 'epoch') FROM changed; RETURN NULL; END $$"
    )
    for table in MOVES:
        for event in ("insert", "update"):
            op.execute(
                f"CREATE OR REPLACE TRIGGER queue_moves_{event} AFTER {event.upper()} ON {table} REFERENCING NEW TABLE AS changed "
                "FOR EACH STATEMENT EXECUTE FUNCTION queue_moves()"
            )
    with op.get_context().autocommit_block():  # triggers lock their tables until they are committed
        for table in MOVES:
            _queue(table)


def _queue(table: str) -> None:
    """The minutes of moves of before, a pool and day a transaction. A minute queued twice is computed once."""
    connection = op.get_bind()
    ends = f"SELECT pool_id, min(at), max(at) FROM {table} GROUP BY pool_id"  # noqa: S608 (constants of this file)
    minutes = (
        "INSERT INTO move_rollup_queue (pool_id, minute) SELECT DISTINCT pool_id, date_bin('1 minute', at, TIMESTAMPTZ 'epoch') "  # noqa: S608
        f"FROM {table} WHERE pool_id = :pool AND at >= CAST(:first AS timestamptz) + :day * interval '1 day' "
        "AND at < CAST(:first AS timestamptz) + (:day + 1) * interval '1 day'"
    )
    for pool, first, last in connection.execute(sa.text(ends)).all():
        for day in range((last - first).days + 1):
            connection.execute(sa.text(minutes), {"pool": pool, "first": first, "day": day})


def downgrade() -> None:
    for table in MOVES:
        for event in ("insert", "update"):
            op.execute(f"DROP TRIGGER queue_moves_{event} ON {table}")
    op.execute("DROP FUNCTION queue_moves()")
    for name in ("move_rollup_queue", *reversed(ROLLUPS)):
        op.drop_table(name)
